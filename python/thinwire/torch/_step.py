"""One backward pass: its buckets, from torch to the exchange and back."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ._memory import future_of
from ._parameters import in_form_of, shape_of
from ._scale import put_scaled, without_scale

Start = Callable[[nn.Parameter, torch.Tensor], None]


class _Bucket(NamedTuple):
    future: torch.futures.Future  # what torch waits for
    values: torch.Tensor  # in one piece
    exchanged: torch.Tensor  # what the exchange has of them, without their scale
    is_sparse: bool


class Step:
    """The buckets of one backward pass.

    Args:
        start: gives a parameter's gradient to the exchange.
        scale: of a gradient scaler, taken out while thinwire works.
    """

    def __init__(self, start: Start, scale: Optional[float] = None) -> None:
        self._start, self._scale = start, scale
        self._buckets: list[_Bucket] = []
        self._places: dict[int, torch.Tensor] = {}  # by the parameter's id
        self.skipped = False

    def take(self, bucket: dist.GradBucket) -> torch.futures.Future:
        """Starts the gradients of a bucket."""
        given = bucket.buffer()
        # Every row counts then, those without an entry as zeros.
        values = given.to_dense() if given.is_sparse else given
        exchanged = without_scale(values, self._scale)
        begin = 0
        flat, flat_exchanged = values.view(-1), exchanged.view(-1)
        for parameter in bucket.parameters():
            # Not bucket.gradients(): they take a complex parameter for as many floats as it has numbers.
            shape = shape_of(parameter)
            end = begin + math.prod(shape)
            self._places[id(parameter)] = flat[begin:end]
            self._start(parameter, flat_exchanged[begin:end].view(shape))
            begin = end
        future = future_of(values)
        self._buckets.append(_Bucket(future, values, exchanged, given.is_sparse))
        return future

    def mean_of(self, parameter: nn.Parameter) -> torch.Tensor:
        """Once the step has ended; in the parameter's form."""
        flat = self._places[id(parameter)]
        return in_form_of(parameter, torch.view_as_complex(flat.view(-1, 2)) if parameter.is_complex() else flat)

    def end(self, skipped: bool) -> None:
        """The means are there, or what is in their place where the step is skipped."""
        self.skipped = skipped
        for future, values, exchanged, is_sparse in self._buckets:
            put_scaled(exchanged, self._scale, values)
            future.set_result(values.to_sparse(1) if is_sparse else values)

    def fail(self, error: BaseException) -> None:
        for future, *_ in self._buckets:
            if not future.done():
                future.set_exception(error)


def in_backward_pass() -> bool:
    """False where Join gives buckets of zeros, for a rank that has no more input."""
    return torch._C._current_graph_task_id() != -1


def of_those_with_input(model: DistributedDataParallel) -> bool:
    """Whether Join(..., divide_by_initial_world_size=False) asks for the mean of the ranks that have input."""
    join = getattr(model, "_join_config", None)
    return join is not None and join.enable and not getattr(model, "_divide_by_initial_world_size", True)
