"""What a model has beside its trained parameters: buffers and frozen parameters, which all workers begin with as rank 0 has
them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from ..errors import MismatchError, UnsupportedError
from ._memory import broadcast
from ._names import plain_names

TellAll = Callable[[str], list[str]]


class _Rest(NamedTuple):
    what: str  # "buffer '0.mask'"
    tensor: torch.Tensor

    @property
    def form(self) -> str:
        """All that decides about how values are sent, and whether the tensor is refused, which ranks are to do alike."""
        tensor = self.tensor
        text = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
        if not _is_plain(tensor):
            return f"{text} ({tensor.layout} on {tensor.device.type})"
        expanded = _expanded(tensor)
        text += f" expanded in dimensions {expanded}" if expanded else ""
        return text + (" with values that share memory" if _may_overlap(_without(tensor, expanded)) else "")


def _rest_of(model: nn.Module, trained: Callable[[torch.Tensor], bool]) -> list[_Rest]:
    frozen = {name: tensor.detach() for name, tensor in model.named_parameters() if not trained(tensor)}
    buffers = dict(model.named_buffers())
    return [_Rest(f"{kind} '{name}'", tensor) for kind, found in (("frozen parameter", frozen), ("buffer", buffers))
            for name, tensor in zip(plain_names([*found]), found.values())]


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type != "meta"


def _expanded(tensor: torch.Tensor) -> list[int]:
    """The dimensions in which all values lie in one place, as `expand` makes them."""
    return [dim for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())) if stride == 0 and size > 1]


def _without(tensor: torch.Tensor, expanded: list[int]) -> torch.Tensor:
    for dim in expanded:
        tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _may_overlap(tensor: torch.Tensor) -> bool:
    """Whether steps of a dimension are shorter than what the dimensions of shorter steps take."""
    extent = 1
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1):
        if stride < extent:
            return True
        extent += stride * (size - 1)
    return False


def _each_value_once(one: _Rest) -> torch.Tensor:
    """The part of a tensor that has each of its values once: one made by expand has one value in many places.

    Raises:
        UnsupportedError: its places overlap in another way, or it has no memory of places.
    """
    tensor = one.tensor
    if not _is_plain(tensor):
        raise UnsupportedError(f"{one.what} is {tensor.layout}, {tensor.dtype} on {tensor.device}: all workers begin with rank "
                               "0's values of buffers and frozen parameters, which must be plain tensors with values")
    tensor = _without(tensor, _expanded(tensor))
    if _may_overlap(tensor):
        raise UnsupportedError(f"{one.what} has values that share memory with each other: all workers begin with rank 0's "
                               "values of buffers, which cannot be written there; give the model a .clone() of it")
    return tensor


def _require_same(rest: list[_Rest], tell_all: TellAll) -> None:
    """Raises where ranks differ, on all of them: each would take what the first one sends for values of its own."""
    text = json.dumps({one.what: one.form for one in rest})
    if len(set(tell_all(hashlib.sha256(text.encode()).hexdigest()))) == 1:
        return
    first, *others = [json.loads(said) for said in tell_all(text)]
    for rank, other in enumerate(others, 1):
        for what in [*first, *other]:
            forms = [found.get(what, "absent") for found in (first, other)]
            if forms[0] != forms[1]:
                raise MismatchError(f"{what} is {forms[0]} on rank 0, and {forms[1]} on rank {rank}: build the same model on "
                                    "all ranks")
    raise MismatchError("buffers and frozen parameters come in another order on another rank: build the same model on all "
                        "ranks")


@torch.no_grad()
def begin_as_first(model: nn.Module, trained: Callable[[torch.Tensor], bool], group: dist.ProcessGroup, tell_all: TellAll,
                   deadline_seconds: float) -> None:
    """Rank 0's values of all that is not trained become those of all ranks, which call it together.

    Raises:
        MismatchError: ranks differ in names, shapes, types, or in how a tensor lies in memory where that matters.
        UnsupportedError: a tensor is none that values can be written to.
    """
    rest = [one for one in _rest_of(model, trained) if one.tensor.numel() > 0]
    _require_same(rest, tell_all)
    for part in [_each_value_once(one) for one in rest]:
        broadcast(part, group, deadline_seconds)
