"""Compressed gradients for DistributedDataParallel, as a communication hook."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ._averaged import Averaged
from ._link import Link
from ._loggers import Numbers
from ._outside import OutsideStep
from ._passes import look_at_passes
from ._step import Step, in_backward_pass, of_those_with_input
from ._unused import hand_over, looks_for_unused


_MOST_WAITING = 2  # steps whose numbers wait for a writer
_Task = Union[Step, Numbers, None]  # a step to end, or the numbers of one that has ended; None: there is no more


def _end_steps(tasks: queue.SimpleQueue[_Task], owner: weakref.ref[ReplicatedLink]) -> None:
    """Ends steps and writes logs for as long as there is a link: a thread that kept it would keep all of its
    memory."""
    while (task := tasks.get()) is not None:
        link = owner()
        if link is None:
            return
        if isinstance(task, Step):
            link._end_step(task)
        else:
            link._write_logs(task)
        del link, task


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
        self._processes, self._deadline = model.process_group, deadline_seconds
        self._model = weakref.ref(model)  # torch keeps the link as long as the model
        # As torch has it: from a forward pass outside no_sync until gradients were exchanged, in whichever backward pass.
        self.awaits_pass = False
        averaged = Averaged(model)
        super().__init__(model.process_group, averaged.parameters, options, deadline_seconds, scaler, optimizer,
                         momentum)
        model.register_forward_pre_hook(averaged)
        look_at_passes(model, self)
        self._ended: queue.SimpleQueue[_Task] = queue.SimpleQueue()
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
        future = self._step.take(bucket)
        if bucket.is_last():
            step, self._step = self._step, None
            self.awaits_pass = False
            if isinstance(step, OutsideStep):
                # In this thread, which has nothing else to do by then.
                self._at_end(lambda: self._end_outside(step))
                return future
            self._ended.put(step)
            # Before torch waits for it: DistributedDataParallel would put an error into words of
            # its own, and Join would take it for a result.
            self._at_end(lambda: self._await(step, future))
        return future

    def _at_end(self, call: Callable[[], None]) -> None:
        if in_backward_pass():
            _at_end_of_backward(call)
        else:
            call()

    def _end_outside(self, step: OutsideStep) -> None:
        try:
            numbers = self._end_with(step, step.finish)
        except BaseException as error:  # such as KeyboardInterrupt, which no future takes
            self._error = error
            raise
        if numbers is not None:
            while self._ended.qsize() > _MOST_WAITING:  # a slow writer slows training; nothing is lost
                time.sleep(0.001)
            self._ended.put(numbers)
        self._end_pass(step)

    def _await(self, step: Step, future: torch.futures.Future) -> None:
        future.wait()
        self._end_pass(step)

    def _end_pass(self, step: Step) -> None:
        model = self._model() if in_backward_pass() else None
        if model is None:
            return
        # Behind what DistributedDataParallel does at the end of a backward pass.
        if looks_for_unused(model):
            _at_end_of_backward(lambda: hand_over(model, self._parameters, step))
        _at_end_of_backward(self._optimizer.look_at_means)

    def _new_step(self) -> Step:
        model = self._model()
        joining = model is not None and of_those_with_input(model)
        scale = self._begin_exchange(joining, has_input=in_backward_pass())
        if self._exchange.may_bypass():
            return OutsideStep(self._exchange, self._processes, self._deadline)
        return Step(self._exchange.start, scale)

    def _end_step(self, step: Step) -> None:
        try:
            numbers = self._end_with(step, None)
            if numbers is not None:
                self._write_logs(numbers)
        except BaseException as error:  # noqa: BLE001 - the one who waits must hear of any
            self._error = error
            step.fail(error)

    def _end_with(self, step: Step, end: Optional[Callable[[], dict[str, Any]]]) -> Optional[Numbers]:
        """What is to be logged of it, taken before anybody begins the next step."""
        report = self._end_exchange(end)
        numbers = self._numbers() if self._loggers else None
        step.end(report["skipped"])
        return numbers


def _at_end_of_backward(call: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(call)
