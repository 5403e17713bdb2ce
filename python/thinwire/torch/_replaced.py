"""Refuses steps of another optimiser whose momentum would act beside the one that a link has taken over."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..errors import ContractError
from ._attached import innermost, is_of_a_link
from ._momentum import momentum_in


class Replaced:
    """Raises when an optimiser with momentum, other than the one that was named, is to take a step with what the link has
    exchanged of parameters whose momentum is the link's. A wrapper of the named optimiser, and one that a link of its own
    has, take their steps.

    Args:
        known: the ids of the link's parameters.
        where: what the link does with the momentum of the named optimiser, for the error.
        acts: whether it does so at present.
    """

    def __init__(self, known: set[int], where: str, acts: Callable[[], bool]) -> None:
        self.known, self._where, self._acts = known, where, acts
        self._named: Optional[weakref.ref[torch.optim.Optimizer]] = None
        self._held: set[int] = set()
        self._has_exchanged = False  # since the named optimiser's last step

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        self._named = weakref.ref(optimizer)
        self._note_groups(optimizer)
        _attached.add(self)

    def detach(self) -> None:
        _attached.discard(self)

    def note_exchange(self) -> None:
        self._has_exchanged = True

    def _note_groups(self, named: torch.optim.Optimizer) -> None:
        self._held = {id(parameter) for group in named.param_groups if momentum_in(group) != 0
                      for parameter in group["params"]} & self.known

    def look(self, optimizer: torch.optim.Optimizer) -> None:
        named = self._named() if self._named is not None else None
        if named is not None and _steps(optimizer, named):
            self._has_exchanged = False
            return
        if not self._has_exchanged or not self._acts():
            return
        if named is not None:
            self._note_groups(named)
        own = next((momentum_in(group) for group in optimizer.param_groups
                    if momentum_in(group) != 0 and group.get("lr", 1) != 0
                    and any(id(parameter) in self._held for parameter in group["params"])), 0.0)
        if own == 0 or is_of_a_link(optimizer, self._held):
            return
        raise ContractError(
            f"{type(optimizer).__name__}.step: compress was given another optimizer, {self._where}, and the momentum of this one, "
            f"{own}, would act on the mean: call link.release_optimizer() on all ranks before the first step of another "
            "optimizer, or give that one to compress with a new DistributedDataParallel, as optimizer=")


def _steps(optimizer: torch.optim.Optimizer, named: torch.optim.Optimizer) -> bool:
    """Whether it is the named optimiser, or a wrapper of it."""
    return innermost(optimizer) is named or any(one is group for one in optimizer.param_groups for group in named.param_groups)


_attached: weakref.WeakSet[Replaced] = weakref.WeakSet()


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for one in list(_attached):
        one.look(optimizer)


register_optimizer_step_pre_hook(_before_step)
