"""What a model has beside its trained parameters: buffers and frozen parameters, which all workers begin with as rank 0 has
them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
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
        return f"{str(self.tensor.dtype).removeprefix('torch.')} {list(self.tensor.shape)}"


def _rest_of(model: nn.Module, trained: Callable[[torch.Tensor], bool]) -> list[_Rest]:
    frozen = {name: tensor.detach() for name, tensor in model.named_parameters() if not trained(tensor)}
    buffers = dict(model.named_buffers())
    return [_Rest(f"{kind} '{name}'", tensor) for kind, found in (("frozen parameter", frozen), ("buffer", buffers))
            for name, tensor in zip(plain_names([*found]), found.values())]


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
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise UnsupportedError(f"{one.what} is {tensor.layout}, {tensor.dtype} on {tensor.device}: all workers begin with rank "
                               "0's values of buffers and frozen parameters, which must be plain tensors with values")
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    if _may_overlap(tensor):
        raise UnsupportedError(f"{one.what} has values that share memory with each other: all workers begin with rank 0's "
                               "values of buffers, which cannot be written there; give the model a .clone() of it")
    return tensor


def _require_same(rest: list[_Rest], tell_all: TellAll) -> None:
    """Raises where ranks differ, on all of them: each would take what the first one sends for values of its own."""
    own = {one.what: one.form for one in rest}
    text = "\n".join(f"{form} {what}" for what, form in own.items())
    if len(set(tell_all(hashlib.sha256(text.encode()).hexdigest()))) == 1:
        return
    first, *others = [dict(reversed(line.rsplit("] ", 1)) for line in said.splitlines()) for said in tell_all(text)]
    for rank, other in enumerate(others, 1):
        for what in [*first, *other]:
            forms = [f"{found[what]}]" if what in found else "absent" for found in (first, other)]
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
        MismatchError: ranks differ in names, shapes or types.
        UnsupportedError: a tensor is none that values can be written to.
    """
    rest = [one for one in _rest_of(model, trained) if one.tensor.numel() > 0]
    _require_same(rest, tell_all)
    for part in [_each_value_once(one) for one in rest]:
        broadcast(part, group, deadline_seconds)
