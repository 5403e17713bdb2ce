"""Gradients that a script scales down between the exchange and the optimiser's step, as clip_grad_norm_ does."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Optional

import torch
from torch import nn

from ._warn import warn_user

_LOOKS = 100  # steps; later ones cost nothing
_SCALED_DOWN = 3  # of them, until it is told
_SAMPLED = 1 << 16  # values of a gradient


class ClippedMeans:
    """Warns, once, if several steps scale gradients down that hold the mean of velocities: whoever chose the bound meant
    gradients, and what is cut off is lost. It compares one value of one gradient."""

    def __init__(self) -> None:
        self._looks = 0
        self._ratios: set[float] = set()  # of gradients scaled down; one that comes again is a division, as by a number of batches
        self._seen: Optional[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = None  # a gradient, the place in it, its value

    def look(self, parameters: Iterable[nn.Parameter]) -> None:
        """Behind the backward pass, before a script sees the gradients."""
        self._seen = None
        if self._looks == _LOOKS:
            return
        self._looks += 1
        gradients = [one.grad for one in parameters
                     if one.grad is not None and one.grad.layout == torch.strided and not one.grad.is_complex()]
        largest = max(gradients, key=torch.Tensor.numel, default=torch.empty(0))
        if largest.numel() > 0:
            values = _values_of(largest)
            place = values.abs().argmax()
            self._seen = largest, place, values[place].clone()

    def look_again(self, momentum: float) -> None:
        """In front of the optimiser's step."""
        if self._seen is None:
            return
        (gradient, place, before), self._seen = self._seen, None
        was, now = before.item(), _values_of(gradient)[place].item()
        # A gradient scaler divides by a power of two, which may be another one in each step.
        if was == 0 or not 0 < now / was < 1 or abs(math.frexp(now / was)[0] - 0.5) < 1e-3:
            return
        self._ratios.add(float(f"{now / was:.3g}"))
        if len(self._ratios) == _SCALED_DOWN:
            self._looks = _LOOKS
            warn_user(
                f"in {_SCALED_DOWN} steps gradients were scaled down between the backward pass and the optimizer's step, as "
                "torch.nn.utils.clip_grad_norm_ does. Momentum acts in the memory, so that they hold the mean of velocities, whose "
                f"norm is about {1 / (1 - momentum):.0f} times that of a gradient, and what is cut off is lost. To clip each rank's "
                "gradients by C instead, remove the call and give compress feedback=\"ahead:clip=C\"; or give "
                "momentum=\"optimizer\", which costs accuracy with this codec")


@torch.no_grad()
def _values_of(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.detach().reshape(-1)[:_SAMPLED]
