"""One backward pass: its buckets, from torch to the exchanges and back."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import NamedTuple, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import TimeoutError
from ._parameters import shape_of

Start = Callable[[nn.Parameter, torch.Tensor], None]


class _Bucket(NamedTuple):
    future: torch.futures.Future  # what torch waits for
    values: torch.Tensor  # in one piece
    is_sparse: bool


class Step:
    """The buckets of one backward pass.

    Args:
        scale: of a gradient scaler, taken out while thinwire works.
        active: how many ranks had input, when the mean is to be that of those; None: of all.
    """

    def __init__(self, scale: Optional[float] = None, active: Optional[ActiveRanks] = None) -> None:
        self._scale = scale
        self._active = active
        self._buckets: list[_Bucket] = []
        self._places: dict[int, torch.Tensor] = {}  # by the parameter's id
        self.skipped = False

    def take(self, bucket: dist.GradBucket, start: Start) -> torch.futures.Future:
        """Starts the gradients of a bucket."""
        given = bucket.buffer()
        # Every row counts then, those without an entry as zeros.
        values = given.to_dense() if given.is_sparse else given
        if self._scale is not None:
            values.div_(self._scale)
        begin = 0
        flat = values.view(-1)
        for parameter in bucket.parameters():
            # Not bucket.gradients(): they take a complex parameter for as many floats as it has numbers.
            shape = shape_of(parameter)
            end = begin + math.prod(shape)
            self._places[id(parameter)] = place = flat[begin:end].view(shape)
            start(parameter, place)
            begin = end
        future: torch.futures.Future = torch.futures.Future()
        self._buckets.append(_Bucket(future, values, given.is_sparse))
        return future

    def mean_of(self, parameter: nn.Parameter) -> torch.Tensor:
        """Once the step has ended; of the floats that it consists of."""
        return self._places[id(parameter)]

    def end(self, skipped: bool) -> None:
        """The means are there. Where one engine skipped its part none counts."""
        self.skipped = skipped
        factor = (self._scale or 1.0) * (self._active.correction() if self._active else 1.0)
        for future, values, is_sparse in self._buckets:
            if skipped:
                values.fill_(math.nan)
            elif factor != 1:
                values.mul_(factor)
            future.set_result(values.to_sparse(1) if is_sparse else values)

    def fail(self, error: BaseException) -> None:
        for future, _, _ in self._buckets:
            if not future.done():
                future.set_exception(error)


class ActiveRanks:
    """Counts, for a step inside torch.distributed.algorithms.join.Join, the ranks that have input. All ranks make
    one at the same place among their collectives."""

    def __init__(self, group: dist.ProcessGroup, deadline_seconds: float) -> None:
        self._count = torch.tensor([float(in_backward_pass())])
        self._size = group.size()
        self._deadline = datetime.timedelta(seconds=deadline_seconds)
        self._work = dist.all_reduce(self._count, group=group, async_op=True)

    def correction(self) -> float:
        """From the mean of all ranks to that of those."""
        try:
            self._work.wait(self._deadline)
        except RuntimeError as error:
            raise TimeoutError(f"join: no count of the ranks that have input: {error}") from None
        return self._size / max(self._count.item(), 1.0)


def in_backward_pass() -> bool:
    """False where Join gives buckets of zeros, for a rank that has no more input."""
    return torch._C._current_graph_task_id() != -1


def counted(model: DistributedDataParallel, deadline_seconds: float) -> Optional[ActiveRanks]:
    """The count of active ranks, where Join(..., divide_by_initial_world_size=False) asks for it."""
    join = getattr(model, "_join_config", None)
    if join is None or not join.enable or getattr(model, "_divide_by_initial_world_size", True):
        return None
    return ActiveRanks(model.process_group, deadline_seconds)
