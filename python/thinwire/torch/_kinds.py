"""The types that parameters may have whose values go through thinwire."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import UnsupportedError
from ._memory import device_of
from ._parameters import Parameter

REAL = (torch.float32, torch.bfloat16, torch.float16)
GRADIENTS = (*REAL, torch.complex64)


def check_type(one: Parameter, caller: str = "compress", types: Sequence[torch.dtype] = GRADIENTS) -> None:
    """Raises where a parameter has another type, or is on no device that thinwire knows."""
    if one.tensor.dtype not in types:
        names = ", ".join(str(kind).removeprefix("torch.") for kind in types)
        raise UnsupportedError(
            f"{caller}: parameter '{one.name}' is of type {one.tensor.dtype}; it may be one of {names}"
        )
    device_of([(one.name, one.tensor)], caller)
