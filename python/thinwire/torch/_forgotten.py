"""Notices training that is resumed without the state of its link."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ._parameters import local_part
from ._warn import warn_user


class _Link(Protocol):
    def carries(self, parameter: torch.Tensor) -> bool: ...
    def has_exchanged(self) -> bool: ...
    def lacks_state(self) -> bool: ...


# An optimiser that goes on from some steps before its first step in this process has loaded them.
_stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
_without_steps: weakref.WeakSet[Any] = weakref.WeakSet()  # links whose parameters no optimiser has moved


_allocated: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()  # by a step that moves nothing
_loaded: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()  # a state after that, beside their link
_MARK = "thinwire"  # in a parameter group of a saved state: a link has exchanged its gradients


class Mark:
    """Tells a loaded state of the optimiser from none, once it was named to a link. What SGD saves of its parameters may be
    empty after any number of steps: its momentum is in the link's memories. One that is not, as Adam's, tells itself and has
    no mark, which torch.distributed.checkpoint would miss in what the same run saved before its first exchange.

    The mark is a number in the saved parameter groups, and not in those of the optimiser itself. Where no link is, it is
    one more key that nobody reads. torch.distributed.checkpoint loads only keys that the new optimiser has, which has no
    mark. It takes a step that only allocates before it loads, so that its loads are told by that. Any other state without
    a mark may be the optimiser's own from before its first step: frameworks save it and load it again.

    Args:
        known: the ids of the link's parameters.
    """

    def __init__(self, known: set[int]) -> None:
        self.known = known
        self._has_exchanged = False
        self._handles: list[Any] = []

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        self._handles = [optimizer.register_state_dict_post_hook(self._write),
                         optimizer.register_load_state_dict_post_hook(_note_load)]

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()

    def note_exchange(self) -> None:
        self._has_exchanged = True

    def _write(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        if not self._has_exchanged:
            return
        carrying = [saved for group, saved in zip(optimizer.param_groups, state["param_groups"])
                    if any(id(parameter) in self.known for parameter in group["params"])]
        states = [state["state"].get(index, {}) for saved in carrying for index in saved["params"]]
        if all(value is None for one in states for value in one.values()):
            for saved in carrying:
                saved[_MARK] = 1


def _note_load(optimizer: torch.optim.Optimizer) -> None:
    if optimizer in _allocated:
        _loaded.add(optimizer)


def watch(link: _Link) -> None:
    """Warns once, at the first step of an optimiser of the link's parameters, if the optimiser has a loaded state
    and the link none. Neither is kept alive."""
    _without_steps.add(link)


def _allocates(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the step only makes the optimiser's state, so that one can be loaded into it: torch.distributed.checkpoint
    takes a step with zeros at a learning rate of zero."""
    return all(group.get("lr", 1) == 0 for group in optimizer.param_groups)


def _goes_on(state: Mapping[str, Any]) -> bool:
    """Whether a parameter's state comes from steps, and not from the optimiser's constructor or from a step that only
    allocates it."""
    try:
        return float(state["step"]) > 1
    except (KeyError, TypeError, ValueError, RuntimeError):  # none, or one for each value
        pass
    return any(isinstance(one, torch.Tensor) and bool(local_part(one).any()) for one in state.values())


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if optimizer in _stepped:
        return
    carrying = [(link, carried) for link in list(_without_steps)
                if (carried := [p for group in optimizer.param_groups for p in group["params"] if link.carries(p)])]
    if carrying and _allocates(optimizer) and not any(link.has_exchanged() for link, _ in carrying):
        _allocated.add(optimizer)
        return
    _stepped.add(optimizer)
    marks = [group.pop(_MARK, None) for group in optimizer.param_groups] if carrying else []
    is_loaded = optimizer in _loaded or any(marks)
    for link, carried in carrying:
        _without_steps.discard(link)
        if link.lacks_state() and (is_loaded or any(_goes_on(optimizer.state.get(parameter, {})) for parameter in carried)):
            warn_user("the optimiser goes on from a state, and the link begins with empty memories: what codecs "
                      "left out of earlier gradients is lost; link.load_state_dict(...) goes on with it")


register_optimizer_step_pre_hook(_before_step)
