"""The tensors of what a forward pass returns."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch.utils._pytree import tree_leaves


def _parts_of(leaf: Any) -> list[Any]:
    """What DistributedDataParallel looks into and torch's pytree does not: a dataclass, a subclass of a list or a dict."""
    if isinstance(leaf, (list, tuple)):
        return list(leaf)
    if isinstance(leaf, dict):
        return list(leaf.values())
    if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
        return [getattr(leaf, field.name, None) for field in dataclasses.fields(leaf)]
    return []


def tensors_of_pass(output: Any, known: Optional[set[int]] = None) -> Iterator[torch.Tensor]:
    """Those in it that come from operations with a gradient. Leaves are left out: a hook of theirs would stay for later
    passes.

    Args:
        known: the ids of objects that were looked into, which may hold one another.
    """
    known = set() if known is None else known
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            if leaf.grad_fn is not None:
                yield leaf
        elif id(leaf) not in known:
            known.add(id(leaf))
            yield from tensors_of_pass(_parts_of(leaf), known)
