"""What exchanges take on this machine where no link limits them: between two ranks, threads of this process that talk over loopback."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Optional, TypeVar

import torch
import torch.distributed as dist

from ..errors import Error
from ..planning import BUCKET_KB
from ..streams import TensorSpec
from ._memory import new_gloo
from ._native import Engine, close_group

_Answer = TypeVar("_Answer")

_UNCOUNTED = 2  # steps that allocate
_FEWEST, _MOST, _SECONDS = 3, 20, 0.3  # steps that count
_VALUES = 1 << 24  # so many stand for a model that has more
_BYTES = 8 << 20  # of a bucket that DistributedDataParallel's all-reduce is measured with
_MESSAGES = 4  # in which two ranks add up a bucket: two parts, each passed on and handed out


class _Rank:
    """One of two, with a group of gloo."""

    def __init__(self, rank: int, store: dist.Store, barrier: threading.Barrier, shared: dict[str, bool]) -> None:
        self.processes = new_gloo(store, rank, 2, hostname="127.0.0.1")
        self._rank, self._barrier, self._shared = rank, barrier, shared

    def median_seconds(self, step: Callable[[], Any]) -> float:
        """Of a step that both ranks begin together, as often as the first rank says."""
        times: list[float] = []
        while True:
            counted = times[_UNCOUNTED:]
            if self._rank == 0:
                self._shared["more"] = len(counted) < _FEWEST or (len(counted) < _MOST and sum(counted) < _SECONDS)
            self._barrier.wait()
            more = self._shared["more"]
            self._barrier.wait()
            if not more:
                return statistics.median(counted)
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)


def _on_two_ranks(run: Callable[[_Rank], _Answer]) -> _Answer:
    """What it returns on rank 0. Raises what it raises on any rank."""
    store, barrier, shared = dist.HashStore(), threading.Barrier(2), {}
    answers: list[Optional[_Answer]] = [None, None]
    failures: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            own = _Rank(rank, store, barrier, shared)
            answers[rank] = run(own)
            close_group(own.processes)
        except BaseException as failure:  # the other rank waits for this one
            failures.append(failure)
            barrier.abort()

    other = threading.Thread(target=one, args=(1,))
    other.start()
    one(0)
    other.join()
    if failures:
        raise next((one for one in failures if not isinstance(one, threading.BrokenBarrierError)), failures[0])
    return answers[0]  # type: ignore[return-value]


@functools.lru_cache(maxsize=1)
def all_reduce_cost() -> tuple[float, float]:
    """Seconds per byte and per message of what DistributedDataParallel does to a bucket: gradients times 1/n into it, the sum of
    all ranks by gloo, and back. Measured once in a process."""
    def measure(rank: _Rank) -> tuple[float, float]:
        def seconds(values: int) -> float:
            gradient = torch.full((values,), 1e-3, dtype=torch.float32, device="cpu")
            bucket = torch.empty_like(gradient)

            def step() -> None:
                torch.mul(gradient, 0.5, out=bucket)
                rank.processes.allreduce([bucket]).wait()
                gradient.copy_(bucket)
            return rank.median_seconds(step)
        small, large = seconds(16), seconds(_BYTES // 4)
        return max(0.0, large - small) / _BYTES, small / _MESSAGES

    return _on_two_ranks(measure)


def some_of(tensors: list[TensorSpec]) -> list[TensorSpec]:
    """Those that exchange_seconds is measured with: all if they have 16 million values together, else of the last ones those that
    fit, or a part of the smallest."""
    some, left = [], _VALUES
    for one in reversed(tensors):
        values = math.prod(one.shape)
        if values <= left:
            some.insert(0, one)
            left -= values
    if some:
        return some
    smallest = min(tensors, key=lambda one: math.prod(one.shape))
    rows, *others = smallest.shape
    return [TensorSpec(smallest.name, (max(1, _VALUES // math.prod(others)), *others), smallest.kind)]


def exchange_seconds(tensors: list[TensorSpec], codecs: Iterable[str]) -> dict[str, float]:
    """Of thinwire's exchange of gradients of these shapes, from buckets and back into them, with each codec that takes them."""
    def measure(rank: _Rank) -> dict[str, float]:
        shapes = [(one.name, list(one.shape), one.kind) for one in tensors]
        generator = torch.Generator().manual_seed(1)
        gradients = [torch.randn(one.shape, generator=generator, dtype=torch.float32, device="cpu").pow_(3)  # heavy tails
                     for one in tensors]
        buckets, means = ([torch.empty_like(gradient) for gradient in gradients] for _ in range(2))
        found = {}
        for codec in codecs:
            name, _, method = codec.partition(" @ ")
            options = {"codec": name, "method": method or "auto", "feedback": "auto", "grouping": "auto", "rules": [],
                       "combine": "mean", "bucket_kb": BUCKET_KB, "seed": 1, "steps_per_epoch": 0, "max_skipped": 1,
                       "norms": False, "weighted": False, "inside": 1}
            try:
                engine = Engine(rank.processes, shapes, options, 60.0)
            except Error:
                continue  # on both ranks

            def step() -> None:
                for index in reversed(range(len(buckets))):
                    buckets[index].copy_(gradients[index])
                    engine.start(index, buckets[index])
                engine.wait()
                for mean, bucket in zip(means, buckets):
                    mean.copy_(bucket)
            found[codec] = rank.median_seconds(step)
        return found

    return _on_two_ranks(measure)
