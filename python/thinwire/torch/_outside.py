"""A backward pass whose gradients torch's own all-reduce sums, because codec "auto" leaves them uncompressed."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
from typing import Any, Union

import torch
import torch.distributed as dist

from ..errors import PeerLostError, TimeoutError
from ._exchange import Exchange
from ._step import Step


class OutsideStep(Step):
    """Args:
        processes: the group whose all-reduce forms the sums, as DistributedDataParallel's own would.
    """

    def __init__(self, exchange: Exchange, processes: dist.ProcessGroup, deadline_seconds: float) -> None:
        super().__init__(exchange.start_outside)
        self._exchange, self._processes = exchange, processes
        self._deadline = datetime.timedelta(seconds=deadline_seconds)
        self._sums: list[Union[dist.Work, RuntimeError]] = []

    def take(self, bucket: dist.GradBucket) -> torch.futures.Future:
        future = super().take(bucket)
        try:
            self._sums.append(dist.all_reduce(self._buckets[-1].values, group=self._processes, async_op=True))
        except RuntimeError as error:  # whoever waits for the step hears of it
            self._sums.append(error)
        return future

    def finish(self) -> dict[str, Any]:
        """Waits for the sums, which become means; the report of the step."""
        try:
            self._await_sums()
            return self._exchange.finish_outside()
        except BaseException as error:
            self._exchange.abandon_outside(str(error) or type(error).__name__)
            raise

    def _await_sums(self) -> None:
        for work in self._sums:
            try:
                if isinstance(work, RuntimeError):
                    raise work
                work.wait(self._deadline)
            except RuntimeError as error:
                kind = TimeoutError if "timed out" in str(error).lower() else PeerLostError
                raise kind(f"torch's all-reduce of uncompressed gradients failed: {error}") from None
