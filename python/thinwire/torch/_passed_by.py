"""Notices steps of an optimiser whose gradients do not come through the link that has its momentum."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import torch

from ._parameters import has_values
from ._warn import warn_user

_ENOUGH = 3  # steps in a row


class PassedBy:
    """Warns, once, when the optimiser has taken some steps in a row that had gradients, and the link no exchange.

    Args:
        known: the ids of the link's parameters.
    """

    def __init__(self, known: set[int]) -> None:
        self.known = known
        self._steps = 0  # in a row
        self._has_exchanged = self._is_told = False
        self._handles: list[Any] = []

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        self._handles = [optimizer.register_step_pre_hook(self._before_step)]

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()

    def note_exchange(self) -> None:
        """The optimiser's next step is of gradients that came through the link."""
        self._has_exchanged = True

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._has_exchanged:
            self._has_exchanged, self._steps = False, 0
            return
        if self._is_told or not self._has_gradients(optimizer):
            return
        self._steps += 1
        if self._steps == _ENOUGH:
            self._is_told = True
            warn_user(
                f"the optimizer took {_ENOUGH} steps in a row with gradients that did not come through the link which holds its "
                "momentum, so that these steps had none: give the model that is trained now to compress, with optimizer=, or "
                "call link.release_optimizer() on all ranks, after which the momentum is the optimizer's own again")

    def _has_gradients(self, optimizer: torch.optim.Optimizer) -> bool:
        # Not those of torch.distributed.checkpoint, which takes a step with zeros at a learning rate of zero.
        return any(parameter.grad is not None and has_values(parameter.grad)
                   for group in optimizer.param_groups if group.get("lr", 1) != 0
                   for parameter in group["params"] if id(parameter) in self.known)
