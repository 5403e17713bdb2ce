"""Checks the caller's arrays: which are read in place, which are copied, and which are refused, with what error."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import ContractError, DTypeError

FloatArray = npt.NDArray[np.float32]


def _checked(what: str, array: Any, shape: tuple[int, ...]) -> FloatArray:
    values = np.asarray(array)
    if values.dtype != np.float32:
        raise DTypeError(
            f"{what}: dtype is {values.dtype}, thinwire reads float32 of this machine's byte order;"
            f" {what}.astype(numpy.float32) converts"
        )
    if values.shape != shape and values.shape != (math.prod(shape),):
        raise ContractError(f"{what}: shape is {values.shape}, the stream's is {shape}")
    return values


def to_read(what: str, array: Any, shape: tuple[int, ...]) -> FloatArray:
    """`array` itself if it lies in one piece, else a copy that does."""
    values = _checked(what, array, shape)
    return np.require(values, requirements=("C", "A"))


def to_write(what: str, array: Any, shape: tuple[int, ...]) -> FloatArray:
    """`array` itself. A copy would be lost, so one that does not fit is refused."""
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"{what}: is a {type(array).__name__}, must be a numpy.ndarray")
    values = _checked(what, array, shape)
    if not values.flags.c_contiguous or not values.flags.aligned:
        raise ContractError(f"{what}: does not lie in one piece (C order), so it cannot be written")
    if not values.flags.writeable:
        raise ContractError(f"{what}: is read-only")
    return values


def to_bytes(what: str, data: Any) -> memoryview:
    """The bytes of a bytes-like object, where they lie."""
    try:
        view = memoryview(data)
    except TypeError:
        raise DTypeError(f"{what}: is a {type(data).__name__}, must be bytes-like") from None
    if not view.c_contiguous:
        raise ContractError(f"{what}: does not lie in one piece")
    return view.cast("B")
