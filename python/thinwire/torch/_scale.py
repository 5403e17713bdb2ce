"""The scale of a gradient scaler, which is out of gradients while thinwire works."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Optional

import torch


def without_scale(gradient: torch.Tensor, scale: Optional[float]) -> torch.Tensor:
    """The gradient itself, changed, or a float32 copy where it is float16: small values, for which there is a scale, would
    be zero in float16 without it."""
    if scale is None:
        return gradient
    return (gradient.float() if gradient.dtype == torch.float16 else gradient).div_(scale)


def put_scaled(mean: torch.Tensor, scale: Optional[float], gradient: torch.Tensor) -> None:
    """The mean with its scale becomes the gradient of which `without_scale` gave the memory that now has the mean. Beyond the
    largest float16 it is that value, as without a scale: an infinity would have the scaler skip a step that memories count."""
    if scale is None:
        return
    mean.mul_(scale)
    if mean is not gradient:
        largest = torch.finfo(gradient.dtype).max
        gradient.copy_(mean.clamp_(-largest, largest))
