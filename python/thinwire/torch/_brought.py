"""Follows the means that exchanges bring: whether an optimiser uses them, and whether .grad still has them when the next
backward pass begins."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ..errors import ContractError
from ._parameters import gets_gradient, has_values
from ._warn import warn_user

_UNUSED = ("If all gradients of a pass are thrown away, as a discriminator's are in a generator's step, call "
           "link.skip_step() on all ranks before it, or run its forward pass under model.no_sync() or with the model's "
           "parameters frozen by requires_grad_(False). If some of them are used, as where one DistributedDataParallel has "
           "generator and discriminator, make one DistributedDataParallel and one link for each part")


class Brought:
    """A memory keeps what the codec leaves out of a gradient, and sends it in later steps, whatever the script does with
    the mean. So an exchange does harm whose mean the script throws away, and one whose gradients still have a mean that
    the optimiser has used.

    A step of a usual script costs a look at each parameter's .grad, and no value is read: a gradient that was zeroed in
    its place is another version of the same tensor.

    Args:
        parameters: those of the link.
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self._parameters = {id(parameter): parameter for parameter in parameters}
        self.is_there = False  # in .grad, for all that is known
        self._is_used = False  # by a step of an optimiser
        self._has_stepped = False  # an optimiser, at any time
        self._stepping: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()  # their step is under way
        self._used: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}  # gradients behind a step, and their versions
        self._is_told = False
        _all.add(self)

    def note_exchange(self, skipped: bool) -> None:
        self.is_there, self._is_used = not skipped, False
        self._used = {}

    def begin_step(self, optimizer: torch.optim.Optimizer) -> None:
        if any(True for _ in self._those_of(optimizer)):
            self._stepping.add(optimizer)

    def end_step(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer not in self._stepping:
            return
        self._stepping.discard(optimizer)
        self._has_stepped = self._is_used = True
        if self.is_there:
            self._note_used(self._those_of(optimizer))

    def _note_used(self, parameters: Iterable[torch.Tensor]) -> None:
        """Their gradients have a mean that the optimiser has used, and what passes under no_sync have added since."""
        self._used.update((id(one), (weakref.ref(one.grad), one.grad._version)) for one in parameters if one.grad is not None)

    def _those_of(self, optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
        return (one for group in optimizer.param_groups for one in group["params"] if id(one) in self._parameters)

    def begin_pass(self, exchanges: bool) -> bool:
        """When a backward pass begins, whether it exchanges its gradients or not. Returns whether it does, and the script
        has thrown the last mean away.

        Raises:
            ContractError: it does, and .grad still has a mean that the optimiser has used.
        """
        own = list(self._parameters.values())
        if not self.is_there or not any(gets_gradient(one) for one in own):  # torch.autograd.grad adds to no .grad
            return False
        if self._is_used:
            mixed = [one for one in own if self._has_used_mean(one) and gets_gradient(one)]
            if mixed and not exchanges:
                torch.autograd.Variable._execution_engine.queue_callback(lambda: self._note_used(mixed))
            elif mixed:
                raise ContractError(
                    "backward: .grad still has the mean with which the optimizer took its last step, and this pass would "
                    "exchange that mean again. The memory would keep both, and send what the codec leaves out of them in later "
                    "steps, even if the script throws them away now. (With codec \"auto\", and behind a change of codec, this "
                    "counts as long as there may be a memory.) If the gradients of this pass are used, call "
                    f"optimizer.zero_grad() before it. {_UNUSED}")
            return False
        return self._is_unused() and exchanges

    def is_thrown_away(self) -> bool:
        """Before an exchange of a sharded model, in whose gradients the last mean is not: whether it was zeroed without a step
        of the optimiser, or is still in .grad behind one."""
        if self.is_there and self._is_used:
            return any(self._has_used_mean(one) for one in self._parameters.values())
        return self.is_there and self._is_unused()

    def _is_unused(self) -> bool:
        """Of a mean with which no optimiser took a step."""
        if any(one.grad is not None and has_values(one.grad) for one in self._parameters.values()):
            return False  # a sum of several passes
        self.is_there = False
        return self._has_stepped and not self._stepping

    def _has_used_mean(self, parameter: torch.Tensor) -> bool:
        gradient, (known, version) = parameter.grad, self._used.get(id(parameter), (_nothing, 0))
        return (gradient is not None and known() is gradient and gradient._version == version and has_values(gradient))

    def tell_of_unused(self) -> None:
        """Warns, once."""
        if self._is_told:
            return
        self._is_told = True
        warn_user("gradients were exchanged and thrown away: they were zeroed without a step of the optimizer, or more were "
                  "added to them behind one. What was sent of them is lost, and the memory sends what the codec left out "
                  "in later steps. That does no harm if it is rare, as where a script leaves out a step whose gradient is too "
                  f"large. {_UNUSED}")


def _nothing() -> None:
    pass


_all: weakref.WeakSet[Brought] = weakref.WeakSet()


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for one in list(_all):
        one.begin_step(optimizer)


def _after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for one in list(_all):
        one.end_step(optimizer)


# One pair for all, for good: torch runs its hooks while it iterates over them, so that none may remove itself. The second
# runs behind those of the optimiser itself, which put gradients back.
register_optimizer_step_pre_hook(_before_step)
register_optimizer_step_post_hook(_after_step)
