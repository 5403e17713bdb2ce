"""Who acts in an optimiser's steps: at most one link for each parameter."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Protocol

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
