"""Notices training that is resumed without the state of its link."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import warnings
import weakref
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook


class _Link(Protocol):
    def carries(self, parameter: torch.Tensor) -> bool: ...
    def lacks_state(self) -> bool: ...


# An optimiser that has state before its first step in this process has loaded it.
_stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
_without_steps: weakref.WeakSet[Any] = weakref.WeakSet()  # links whose parameters no optimiser has moved


def watch(link: _Link) -> None:
    """Warns once, at the first step of an optimiser of the link's parameters, if the optimiser has a loaded state
    and the link none. Neither is kept alive."""
    _without_steps.add(link)


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if optimizer in _stepped:
        return
    _stepped.add(optimizer)
    for link in list(_without_steps):
        carried = [p for group in optimizer.param_groups for p in group["params"] if link.carries(p)]
        if not carried:
            continue
        _without_steps.discard(link)
        if any(optimizer.state.get(parameter) for parameter in carried) and link.lacks_state():
            warnings.warn("the optimiser goes on from a state, and the link begins with empty memories: what codecs "
                          "left out of earlier gradients is lost; link.load_state_dict(...) goes on with it",
                          stacklevel=2)


register_optimizer_step_pre_hook(_before_step)
