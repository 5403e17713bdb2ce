"""Tensors, and the streams that group them: the units that are compressed over time."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _core
from .errors import ContractError

Shape = Union[int, Sequence[int]]


def tensor_kinds() -> tuple[str, ...]:
    """The roles of tensors in a network: "convolution", "linear", ... "other".

    Methods depend on them: AdaComp's bin length, and which tensors an exchange sends uncompressed.
    """
    return tuple(_core.tensor_kinds())


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a stream; its values are row-major, without gaps."""

    name: str
    shape: tuple[int, ...]
    kind: str = "other"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", checked_shape(f"tensor '{self.name}'", self.shape))
        _core.check_tensors([self.native()])

    @property
    def count(self) -> int:
        """Number of values: the product of the shape, 1 for a scalar."""
        return math.prod(self.shape)

    def native(self) -> tuple[str, tuple[int, ...], str]:
        return (self.name, self.shape, self.kind)


@dataclass(frozen=True)
class Stream:
    """Tensors that share an encoder and a memory, and the shape of the arrays that hold them."""

    name: str
    tensors: tuple[TensorSpec, ...]
    shape: tuple[int, ...]

    def native(self) -> list[tuple[str, tuple[int, ...], str]]:
        return [tensor.native() for tensor in self.tensors]


def checked_call(
    seed: Any, step: Any, salt: Any = 0, ranks: Any = 1
) -> tuple[int, int, int, int]:
    """Checks the numbers of one use of a stream: four whole numbers of 64 bits."""
    numbers = []
    for name, number in (("seed", seed), ("step", step), ("salt", salt), ("ranks", ranks)):
        try:
            numbers.append(operator.index(number))
        except TypeError:
            raise ContractError(f"{name}: {number!r} is no whole number") from None
        if not 0 <= numbers[-1] < 1 << 64:
            raise ContractError(f"{name}: {number} does not fit 64 bits without a sign")
    return numbers[0], numbers[1], numbers[2], numbers[3]


def make_stream(
    shape: Optional[Shape],
    kind: str,
    name: str,
    tensors: Optional[Iterable[TensorSpec]],
) -> Stream:
    """Makes a stream of one tensor, or of several whose values are passed as one vector."""
    if (shape is None) == (tensors is None):
        raise ContractError("stream: give either its shape or its tensors")
    if tensors is None:
        tensor = TensorSpec(name, shape, kind)  # type: ignore[arg-type]  # ints become tuples there
        return Stream(name, (tensor,), tensor.shape)
    several = tuple(tensors)
    return Stream(name, several, (sum(tensor.count for tensor in several),))


def checked_shape(what: str, shape: Any) -> tuple[int, ...]:
    """A tuple of extents from an int or a sequence of them."""
    try:
        extents = shape if isinstance(shape, Iterable) else (shape,)
        checked = tuple(operator.index(extent) for extent in extents)
    except TypeError:
        raise ContractError(f"{what}: shape {shape!r} is not made of whole numbers") from None
    if any(extent < 0 or extent >= 1 << 63 for extent in checked):
        raise ContractError(f"{what}: shape {checked} has an extent out of range")
    return checked
