"""Compressed gradients for DistributedDataParallel, as a communication hook."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ._averaged import Averaged
from ._link import Link
from ._step import Step, in_backward_pass, of_those_with_input
from ._unused import hand_over, looks_for_unused


def _end_steps(ended: queue.SimpleQueue[Optional[Step]], owner: weakref.ref[ReplicatedLink]) -> None:
    """Ends steps for as long as there is a link: a thread that kept it would keep all of its
    memory."""
    while (step := ended.get()) is not None:
        link = owner()
        if link is None:
            return
        link._end_step(step)
        del link, step


class ReplicatedLink(Link):
    """That of a DistributedDataParallel, whose buckets it takes."""

    def __init__(
        self,
        model: DistributedDataParallel,
        options: dict[str, Any],
        deadline_seconds: float,
        scaler: Optional[torch.amp.GradScaler],
        optimizer: Optional[torch.optim.Optimizer],
        momentum: str,
    ) -> None:
        self._model = weakref.ref(model)  # torch keeps the link as long as the model
        averaged = Averaged(model)
        super().__init__(model.process_group, averaged.parameters, options, deadline_seconds, scaler, optimizer,
                         momentum)
        model.register_forward_pre_hook(averaged)
        self._ended: queue.SimpleQueue[Optional[Step]] = queue.SimpleQueue()
        threading.Thread(target=_end_steps, args=(self._ended, weakref.ref(self)), daemon=True,
                         name="thinwire").start()
        weakref.finalize(self, self._ended.put, None)

    # Called by torch, bucket after bucket, in the same order on every rank: in the backward pass,
    # or by Join.
    def _hook(self, bucket: dist.GradBucket) -> torch.futures.Future:
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._step is None:
            self._step = self._new_step()
        future = self._step.take(bucket, self._exchange.start)
        if bucket.is_last():
            step, self._step = self._step, None
            self._ended.put(step)
            # Before torch waits for it: DistributedDataParallel would put an error into words of
            # its own, and Join would take it for a result.
            if in_backward_pass():
                _at_end_of_backward(lambda: self._await(step, future))
            else:
                future.wait()
        return future

    def _await(self, step: Step, future: torch.futures.Future) -> None:
        future.wait()
        model = self._model()
        if model is not None and looks_for_unused(model) and not step.skipped:
            # Behind what DistributedDataParallel does at the end of a backward pass.
            _at_end_of_backward(lambda: hand_over(model, self._parameters, step.mean_of))

    def _new_step(self) -> Step:
        model = self._model()
        joining = model is not None and of_those_with_input(model)
        return Step(self._begin_exchange(joining, sits_out=joining and not in_backward_pass()))

    def _end_step(self, step: Step) -> None:
        try:
            report = self._end_exchange()
            step.end(report["skipped"])
            self._write_logs()
        except BaseException as error:  # noqa: BLE001 - the one who waits must hear of any
            self._error = error
            step.fail(error)


def _at_end_of_backward(call: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(call)
