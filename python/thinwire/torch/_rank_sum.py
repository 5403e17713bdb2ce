"""Sums over ranks: each sends what it encoded to all others, and all add what arrives in the order of ranks."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Iterator
from typing import Any, Optional

import torch
import torch.distributed as dist

from ..errors import ContractError, DTypeError, Error
from ._memory import on_host
from ._native import BoundaryReceiver, BoundarySender, Wire
from ._same_call import HEAD_LIMIT, head_of, require_same

# Ranks draw random numbers of their own, or the errors of their roundings would add up.
_RANK_SEED = 0x9E3779B97F4A7C15
_MARK_SEED = 0xBF58476D1CE4E5B9

_LOOKED_AT = 1 << 14  # values that mark a call


def _require_summable(values: Any) -> None:
    if not isinstance(values, torch.Tensor):
        raise ContractError(f"the values are a {type(values).__name__}, must be a Tensor")
    if not values.is_floating_point():
        raise DTypeError(f"the values are {values.dtype}, must be of a floating-point type, such as torch.float32")
    if values.dim() == 0 or values.numel() == 0:
        raise ContractError(f"a tensor of shape {tuple(values.shape)} has no samples to sum")


def _mark_of(values: torch.Tensor) -> int:
    """A checksum of some of the values, evenly spaced. What codecs draw follows from it, and so not from calls before:
    activations that are computed again draw the same numbers."""
    spacing = values.numel() // _LOOKED_AT | 1  # odd, so that they lie in all columns
    return zlib.crc32(values.flatten()[::spacing].contiguous().numpy())


class RankSum:
    """The sums of one object. Its messages have a channel of their own in the process group.

    The ends of a sum are made for each call: that takes some microseconds, and nothing is kept of shapes that do not
    come again.
    """

    def __init__(self, group: dist.ProcessGroup, deadline_seconds: float) -> None:
        self._wire, self._deadline = Wire(group), deadline_seconds
        self._rank, self._size = group.rank(), group.size()
        self._failure = ""  # between the ranks: the channel is then of no more use

    def sum(self, spec: dict[str, Any], head: dict[str, Any], values: Any) -> tuple[torch.Tensor, int]:
        """The sum over ranks of what arrives of their values, the same bits on each, and the bytes of this rank's
        message. If a rank's values are not finite, all are NaN.

        Args:
            spec: of a boundary, without the sizes of the values.
            head: what all ranks must say alike; `head["step"]` is the step of the codec.

        Raises:
            thinwire.errors.Error: on all ranks alike, if ranks differ, or the values of one cannot be summed.
        """
        if self._failure:
            raise ContractError(f"TensorParallel {head['index']}: an earlier sum failed between the ranks ({self._failure}); "
                                "all ranks must make the object anew")
        message, limit, problem = torch.empty(0, dtype=torch.uint8, device="cpu"), 0, None
        visit = (head["step"], 0, [], 0)
        try:
            _require_summable(values)
            spec = {**spec, "samples": values.shape[0], "sample_shape": list(values.shape[1:]) or [1]}
            here = on_host(values.detach().float()).contiguous()
            own = self._of_rank(spec, self._rank)
            own["seed"] = (own["seed"] + _mark_of(here) * _MARK_SEED) % 2**64
            sender = BoundarySender(own, None, None)
            message, _, _ = sender.encode(here, visit)
            limit = sender.max_message_size
            head = {**head, "shape": list(values.shape), "dtype": str(values.dtype)}
        except Exception as error:  # noqa: BLE001 - goes to all ranks, and on from there
            problem = error
        with self._channel(head):
            heads = self._gathered(head_of(head, message.numel(), problem), HEAD_LIMIT)
        sizes = require_same(heads, limit, problem)
        with self._channel(head):
            messages = self._gathered(message, max(sizes))
        return self._total(spec, visit, messages, values.shape).to(values), message.numel()

    def _of_rank(self, spec: dict[str, Any], rank: int) -> dict[str, Any]:
        return {**spec, "sender": rank, "seed": (spec["seed"] + rank * _RANK_SEED) % 2**64}

    def _total(self, spec: dict[str, Any], visit: tuple[Any, ...], messages: list[torch.Tensor], shape: torch.Size) -> torch.Tensor:
        finite, total = True, torch.zeros((), dtype=torch.float32, device="cpu")
        for rank, message in enumerate(messages):
            arrived = torch.empty(shape, dtype=torch.float32, device="cpu")
            finite &= BoundaryReceiver(self._of_rank(spec, rank), None, None).decode(message, visit, arrived)
            total = arrived if rank == 0 else total.add_(arrived)
        return total if finite else total.fill_(math.nan)

    def _gathered(self, message: torch.Tensor, limit: int) -> list[torch.Tensor]:
        for step in range(1, self._size):
            self._wire.send(message, 0, (self._rank + step) % self._size, 0)
        return [message if rank == self._rank else self._wire.receive(limit, rank, 0, self._deadline)[0] for rank in range(self._size)]

    @contextlib.contextmanager
    def _channel(self, head: dict[str, Any]) -> Iterator[None]:
        where = f"TensorParallel {head['index']}: call {head['call']}, a sum of {head['of']}"
        try:
            yield
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            if isinstance(error, Error):
                raise type(error)(f"{where}: {error}; do all ranks make the same calls in the same order?") from error
            raise
