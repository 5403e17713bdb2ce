"""Compressed gradients for DistributedDataParallel, as a communication hook."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Sized
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..codec import Codec
from ..errors import ContractError, TimeoutError
from ._arguments import Arguments, Rules, explains_keywords
from ._averaged import Averaged
from ._exchange import Exchange, engine_options
from ._fit import Unfit
from ._forgotten import watch
from ._link_state import fitting, link_states, saved_state, settings_of
from ._loggers import Loggers
from ._lossy import warn_of_loss
from ._optimizer import LinkedOptimizer
from ._reports import counters, rows_of_step
from ._saved import Saved, of_rank, together
from ._step import Step, in_backward_pass, of_those_with_input
from ._unused import hand_over, looks_for_unused


def _end_steps(ended: queue.SimpleQueue[Optional[Step]], owner: weakref.ref[Link]) -> None:
    """Ends steps for as long as there is a link: a thread that kept it would keep all of its
    memory."""
    while (step := ended.get()) is not None:
        link = owner()
        if link is None:
            return
        link._end_step(step)
        del link, step


class Link:
    """Connects a model to thinwire's exchange; `compress` returns it. Has its counters and
    state."""

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
        self._parameters = averaged.parameters
        tensors = [parameter.tensor for parameter in self._parameters]
        self._optimizer = LinkedOptimizer(optimizer, momentum, tensors, engine_options(self._parameters, options))
        try:
            self._exchange = Exchange(model.process_group, self._parameters, options, deadline_seconds,
                                      self._optimizer.with_memories)
            self._optimizer.begin(self._exchange, optimizer, momentum)
        except BaseException:
            self._optimizer.detach()
            raise
        weakref.finalize(self, self._optimizer.detach)
        model.register_forward_pre_hook(averaged)
        self._changed = self._resumed = False
        self._scaler = scaler
        self._weight, self._abstains, self._skips = 1.0, False, False
        self._step: Optional[Step] = None  # the one under way
        self._report: Optional[dict[str, Any]] = None  # of the last step
        self._steps = 0
        self._loggers = Loggers()
        self._ended: queue.SimpleQueue[Optional[Step]] = queue.SimpleQueue()
        self._error: Optional[BaseException] = None
        threading.Thread(target=_end_steps, args=(self._ended, weakref.ref(self)), daemon=True,
                         name="thinwire").start()
        weakref.finalize(self, self._ended.put, None)
        watch(self)

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
        scale = None if self._scaler is None else self._scaler.get_scale()
        model = self._model()
        self._optimizer.set_momentum(self._exchange)
        joining = model is not None and of_those_with_input(model)
        self._exchange.set_part(joining or self._exchange.options["weighted"], self._weight,
                                self._abstains or (joining and not in_backward_pass()), self._skips)
        self._abstains = self._skips = False
        return Step(scale)

    def _end_step(self, step: Step) -> None:
        try:
            self._report = self._exchange.wait()
            self._steps += 1
            step.end(self._report["skipped"])
            self._loggers.write(self._steps, self._rows)
        except BaseException as error:  # noqa: BLE001 - the one who waits must hear of any
            self._error = error
            step.fail(error)

    def metrics(self) -> dict[str, Any]:
        """Counters of the last step on this rank.

        Returns:
            step (steps done), skipped, fault, participants (ranks that took part), dense_bytes
            (what an uncompressed exchange would send), sent_bytes, received_bytes (all bytes
            included), inside_bytes and between_bytes (the parts of sent_bytes within and between
            groups of ranks), wire_ratio, codec_ratio, compress_seconds, wire_seconds,
            decompress_seconds, gradient_norm and rest_norm (l2, of this rank's gradient and of what
            memories keep; 0 unless `compress` was given norms=True), and streams: one dict of
            counters per compressed vector. Empty before the first step.
        """
        return counters(self._report, self._steps) if self._report else {}

    def set_weight(self, weight: float) -> None:
        """Sets the weight of this rank's gradients in the mean from the next step on, for example
        the size of its batch. The mean is the sum over ranks of weight x gradient, divided by the
        sum of all weights. The weight is 1 until set. Each rank sets its own, whenever it likes.

        Raises:
            thinwire.errors.Error: the link was not made with `compress(..., weighted=True)`, or a
                backward pass is under way.
        """
        self._require_weights("set_weight")
        self._weight = Arguments("set_weight").weight(weight)

    def abstain(self) -> None:
        """Says that this rank has nothing to contribute in the next step. Its gradients do not
        count, whatever they hold, its memories stay as they are, and it sends no values. It still
        runs a backward pass, on any batch, and receives the mean of the other ranks. If all ranks
        abstain, the step is skipped and gradients are zero.

        Raises:
            thinwire.errors.Error: as `set_weight`.
        """
        self._require_weights("abstain")
        self._abstains = True

    def skip_step(self) -> None:
        """Skips the next step on all ranks, for example because this rank cannot use its batch. It
        still runs a backward pass, and gradients become zero on all ranks. Memories stay as they
        are. `metrics` has `skipped`, and its `fault` names this rank. The step does not count for
        `max_skipped`. One rank suffices.

        Raises:
            thinwire.errors.Error: a backward pass is under way.
        """
        self._between_steps("skip_step")
        self._skips = True

    def _require_weights(self, call: str) -> None:
        self._between_steps(call)
        if not self._exchange.options["weighted"]:
            raise ContractError(f"{call}: needs compress(..., weighted=True), on all ranks")

    def _between_steps(self, call: str) -> None:
        if self._error is not None:
            raise self._error
        if self._step is not None:
            raise ContractError(f"{call}: a backward pass is under way; call it between two steps")

    def log_to(self, writer: Any, tag: str = "thinwire", *, layers: bool = False) -> None:
        """Writes the numbers of every step, from another thread. A writer that fails gives a
        warning.

        Args:
            writer: an object with add_scalar(name, value, step), like
                torch.utils.tensorboard.SummaryWriter, or with log(dict), like wandb or one of its
                runs; that dict has the step, too.
            tag: the prefix of names.
            layers: also the density, bytes and, where `compress` was given norms=True, norms of
                every compressed vector, "thinwire/fc.weight/density".
        """
        self._loggers.add(writer, tag, layers)

    def _rows(self, layers: bool) -> Iterator[tuple[str, float]]:
        return rows_of_step(self.metrics(), self._exchange.options["norms"], layers)

    @explains_keywords
    def change(
        self,
        codec: Union[str, Codec],
        *,
        rules: Optional[Rules] = None,
        method: str = "auto",
        steps_per_epoch: Union[int, Sized, None] = None,
    ) -> None:
        """Changes the codec from the next step on. All ranks call it between the same two steps.

        Memories stay, as in a schedule of codecs: this codec sends what the old one left out, even
        if it needs no memory itself. Tensors that share a memory go on sharing it, whatever the
        default of this codec is. If only options differ, encoders keep their state, as far as it
        fits.

        Args:
            codec, rules, method: as for `compress`. All of them are replaced.
            steps_per_epoch: as for `compress`. If absent, it stays.

        Raises:
            thinwire.errors.Error: as `compress`. The link is then unchanged. BadOptionError: the
                codec needs another memory than the one that holds what is owed.
        """
        self._between_steps("change")
        check = Arguments("change")
        check.texts(method=method)
        spec, others = check.codec(codec), check.rules(rules or {})
        in_epoch = check.steps_per_epoch(steps_per_epoch)
        try:
            self._exchange.change(spec, others, method, in_epoch)
        except TimeoutError as error:
            raise TimeoutError(f"change: {error}; do all ranks call it between the same two steps?") from None
        self._changed = True
        self._optimizer.follow(self._exchange)
        settings = self._exchange.settings
        warn_of_loss(settings, settings["rules"])

    def carries(self, parameter: torch.Tensor) -> bool:
        """Whether the gradients of a parameter go through this link."""
        return self._exchange.carries(parameter)

    def lacks_state(self) -> bool:
        """Whether the link started with empty memories."""
        return not self._resumed and bool(self._exchange.remembered_shapes())

    def release_optimizer(self) -> None:
        """Returns the momentum to the optimiser: from the next step on it acts on the mean, and
        starts from what the memories held of it. Adam continues from its own state. All ranks call
        it between the same two steps. Call it before the link is deleted: otherwise the optimiser
        gets its momentum back, but not what the memories held of it."""
        self._between_steps("release_optimizer")
        self._optimizer.release(self._exchange)

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's memories and encoder states, for its checkpoint. Call it between two
        steps."""
        return of_rank(saved_state(self._exchange, self._steps, self._changed))

    def load_state_dict(self, saved: Saved, strict: bool = True) -> Unfit:
        """Loads a state. If the saved link's codec had been changed, the link continues with the
        changed codec. All ranks call it, between two steps.

        Args:
            saved: the result of this rank's `state_dict`; or those of all old ranks, in any order,
                if their number differs. What they owe to the mean is then kept: every rank gets the
                mean over the old ranks' memories.
            strict: False loads what fits, and leaves out what belongs to other tensors, shapes or
                memories.

        Returns:
            the names of tensors that were left out: missing_keys, unexpected_keys and
            mismatched_keys.

        Raises:
            thinwire.errors.Error: on all ranks; the link is then unchanged. MismatchError: the
                state is of another rank, another model or another step; CorruptError: it is not
                what was saved.
        """
        exchange = self._exchange
        states = together(exchange.tell_all, "load_state_dict",
                          lambda: link_states(exchange.rank, exchange.size, saved))
        steps, changed = int(states[0].head["steps"]), states[0].head.get("changed", False)
        exchange.agree("load_state_dict", [f"step {steps}", f"changed to {changed}"])
        if changed:
            exchange = exchange.again(settings_of(changed, exchange))
            self._optimizer.set_momentum(exchange)
        arrays, unfit = together(exchange.tell_all, "load_state_dict",
                                 lambda: fitting(states, exchange, strict))
        exchange.load(arrays, steps)
        self._exchange, self._steps, self._changed = exchange, steps, bool(changed)
        self._resumed = True
        self._optimizer.follow(exchange)
        return unfit


def _at_end_of_backward(call: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(call)
