"""Who acts in an optimiser's steps: at most one link for each parameter."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch


class Attached(Protocol):
    """What a link hooks into the steps of an optimiser."""

    @property
    def known(self) -> set[int]:
        """The ids of the link's parameters."""

    def detach(self) -> None: ...


_of_optimizers: weakref.WeakKeyDictionary[torch.optim.Optimizer, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()


def attach(optimizer: torch.optim.Optimizer, one: Attached) -> None:
    """Detaches what an earlier link of the same parameters has there. Hooks end in the order in which they began, so that
    the second of two would put back, at the end of a step, what the first had changed for it."""
    attached = _of_optimizers.setdefault(optimizer, weakref.WeakSet())
    for other in list(attached):
        if not one.known.isdisjoint(other.known):
            other.detach()
            attached.discard(other)
    attached.add(one)
