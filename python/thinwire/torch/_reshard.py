"""Saved states of a model in another number of shards, as ranks with the shards of this one would have saved them.

What memories hold is values of parameters: shards of it are joined and divided as fully_shard divides the parameter. What encoders
keep (a threshold in use, warm factors) belongs to the old shards, and begins anew.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..errors import MismatchError
from ._parameters import is_sharded

_Array = tuple[Any, ...]  # name, type, on_resize, shape, bytes
_FLOAT32, _UINT8 = 0, 3  # types of arrays


class Whole(NamedTuple):
    """A parameter before it is sharded."""

    shape: list[int]
    dim: int  # along which

    def shards(self, count: int, padded: bool) -> list[list[int]]:
        """The shapes of its shards, as fully_shard makes them; padded, as it sends them."""
        extent = self.shape[self.dim]
        size = -(-extent // count)
        sizes = [size if padded else max(0, min(size, extent - shard * size)) for shard in range(count)]
        return [[*self.shape[:self.dim], size, *self.shape[self.dim + 1:]] for size in sizes]

    def again(self, old: Sequence[torch.Tensor], count: int, padded: bool) -> list[torch.Tensor]:
        """The same values in `count` shards."""
        whole = torch.cat(list(old), self.dim).narrow(self.dim, 0, self.shape[self.dim])
        found, at = [], 0
        for shape in self.shards(count, padded):
            size = max(0, min(shape[self.dim], self.shape[self.dim] - at))
            shard = torch.zeros(shape, dtype=torch.float32, device="cpu")
            shard.narrow(self.dim, 0, size).copy_(whole.narrow(self.dim, at, size))
            found.append(shard)
            at += size
        return found


def _numbers(data: bytes, kind: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=kind) if data else torch.empty(0, dtype=kind, device="cpu")


class Shard(NamedTuple):
    """What one rank saved of its shard."""

    arrays: Sequence[_Array]
    shapes: Mapping[str, Sequence[int]]  # of its tensors, by name
    streams: Mapping[str, Sequence[str]]  # the tensors of streams that have others than their own name

    def tensors(self, stream: str) -> Sequence[str]:
        return self.streams.get(stream, [stream])

    def counts(self, stream: str) -> list[int]:
        return [math.prod(self.shapes[name]) for name in self.tensors(stream)]

    def values(self) -> dict[tuple[str, str], torch.Tensor]:
        """What memories hold of each tensor, by its name and that of the array."""
        found = {}
        for name, kind, _, shape, data in self.arrays:
            stream, part, key = name.rsplit("/", 2)
            if part != "feedback" or kind != _FLOAT32 or math.prod(shape) != sum(self.counts(stream)):
                continue
            for tensor, own in zip(self.tensors(stream), _numbers(data, torch.float32).split(self.counts(stream))):
                found[tensor, key] = own.view(self.shapes[tensor])
        return found

    def owned(self) -> dict[str, torch.Tensor]:
        """What this rank owes as the owner of parts of streams, by tensor."""
        found: dict[str, torch.Tensor] = {}
        arrays = {name: data for name, *_, data in self.arrays}
        for name, data in arrays.items():
            stream, part, key = name.rsplit("/", 2)
            if part != "owner" or key != "pieces":
                continue
            pieces = _numbers(data, torch.int64).view(-1, 3).tolist()  # begin, count, and that of the stream
            rest = _numbers(arrays[f"{stream}/owner/residual"], torch.float32)
            whole = torch.zeros(sum(self.counts(stream)), dtype=torch.float32, device="cpu")
            for begin, count, _ in pieces:
                whole[begin:begin + count] += rest[:count]
                rest = rest[count:]
            for tensor, own in zip(self.tensors(stream), whole.split(self.counts(stream))):
                found[tensor] = own.view(self.shapes[tensor])
        return found


def joined_shape(shapes: Sequence[Sequence[int]], dim: int) -> list[int]:
    joined = list(shapes[0])
    joined[dim] = sum(shape[dim] for shape in shapes)
    return joined


def shard_of(arrays: Sequence[_Array], head: Mapping[str, Any]) -> Shard:
    """Of what a rank saved."""
    shapes = {name: shape for of_codec in head["tensors"].values() for name, shape in of_codec.items()}
    return Shard(arrays, shapes, head["shared"])


def owed_by_owners(ranks: Sequence[Shard]) -> dict[str, torch.Tensor]:
    """What the owners among the ranks that average with each other owe to the mean, by tensor."""
    found: dict[str, torch.Tensor] = {}
    for rank in ranks:
        for name, values in rank.owned().items():
            found[name] = found[name] + values if name in found else values
    return found


def with_owned(held: dict[tuple[str, str], torch.Tensor],
               owned: Mapping[str, torch.Tensor]) -> dict[tuple[str, str], torch.Tensor]:
    """What memories hold, if every rank takes over what owners owe: the mean over ranks is then what it was."""
    for name, values in owned.items():
        if (name, "residual") in held:
            held[name, "residual"] = held[name, "residual"] + values
        elif values.any():
            raise MismatchError(f"what owners owe of '{name}' has no memory to go to; it does not go on in another number "
                                "of shards")
    return held


def arrays_of(values: Mapping[tuple[str, str], torch.Tensor], like: Sequence[_Array], own: Shard,
              shapes: Mapping[str, Sequence[int]]) -> list[_Array]:
    """What a rank would have saved whose memories hold `values`.

    Args:
        like: the arrays of an old rank, for what is not values.
        own: the streams and shapes of this rank, without arrays.
        shapes: what its memories save, by name.
    """
    before = {name: (kind, on_resize, shape, data) for name, kind, on_resize, shape, data in like}
    found = []
    for name, shape in shapes.items():
        stream, _, key = name.rsplit("/", 2)
        parts = [values.get((tensor, key)) for tensor in own.tensors(stream)]
        kind, on_resize, old_shape, data = before.get(name, (None, 0, None, b""))
        if parts and all(part is not None for part in parts):
            on_resize = next((one[2] for one in like if one[0].endswith(f"/feedback/{key}")), 0)
            data = torch.cat([part.flatten() for part in parts]).numpy().tobytes()
            found.append((name, _FLOAT32, on_resize, list(shape), data))
        elif kind is not None and list(old_shape) == list(shape):
            found.append((name, kind, on_resize, list(shape), data))
        elif kind in (_UINT8, None) and key == "bytes":
            found.append((name, _UINT8, 1, list(shape), bytes(math.prod(shape))))  # of loco: made anew from the values
        else:
            raise MismatchError(f"memory '{name}' does not go on in another number of shards")
    return found


def whole_of(tensor: torch.Tensor) -> Whole:
    return Whole(shape_of_whole(tensor), tensor.placements[0].dim if is_sharded(tensor) else 0)


def shape_of_whole(tensor: torch.Tensor) -> list[int]:
    return [*tensor.shape, 2] if tensor.is_complex() else list(tensor.shape)
