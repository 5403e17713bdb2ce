"""Who acts in an optimiser's steps: at most one link for each parameter."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Optional, Protocol

import torch


class Attached(Protocol):
    """What a link hooks into the steps of an optimiser."""

    @property
    def known(self) -> set[int]:
        """The ids of the link's parameters."""

    def attach(self, optimizer: torch.optim.Optimizer) -> None: ...
    def detach(self) -> None: ...


_of_optimizers: weakref.WeakKeyDictionary[torch.optim.Optimizer, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()


def take_over(optimizer: torch.optim.Optimizer, known: set[int], own: Sequence[Attached]) -> None:
    """A link of the parameters with the ids `known` has been made: what earlier links of any of them have in the optimiser's
    steps is detached, and `own` attached. Two links cannot act there: hooks end in the order in which they began, so that the
    second of two would put back, at the end of a step, what the first had changed for it."""
    attached = _of_optimizers.setdefault(optimizer, weakref.WeakSet())
    for other in list(attached):
        if not known.isdisjoint(other.known):
            other.detach()
            attached.discard(other)
    for one in own:
        one.attach(optimizer)
        attached.add(one)


def first_behind_step(optimizer: torch.optim.Optimizer, hook: Callable[..., Any]) -> Any:
    """Registers a hook that runs behind the optimiser's steps, before those that are there, which may read and set what it puts
    back; its handle."""
    handle = optimizer.register_step_post_hook(hook)
    optimizer._optimizer_step_post_hooks.move_to_end(handle.id, last=False)
    return handle


def is_of_a_link(optimizer: torch.optim.Optimizer, known: set[int]) -> bool:
    """Whether a link of any of these parameters acts in its steps."""
    return any(not known.isdisjoint(one.known) for one in _of_optimizers.get(optimizer, ()))


def innermost(optimizer: Optional[torch.optim.Optimizer]) -> Optional[torch.optim.Optimizer]:
    """The optimiser inside wrappers that have it as their `optimizer`, as those of Accelerate and Lightning do."""
    seen = set()
    while optimizer is not None and id(optimizer) not in seen:
        seen.add(id(optimizer))
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, torch.optim.Optimizer):
            break
        optimizer = inner
    return optimizer
