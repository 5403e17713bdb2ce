"""Compressed gradients for DistributedDataParallel, as a communication hook."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import queue
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..codec import Codec
from ..errors import ContractError, Error, TimeoutError
from ._arguments import Arguments, exchange_options, explains_keywords
from ._averaged import Averaged
from ._exchanges import Exchanges
from ._fit import Unfit
from ._forgotten import watch
from ._link_state import fitting, link_states
from ._loggers import Loggers
from ._arrivals import count_arrivals
from ._momentum import UnnamedOptimizer, leaves_most, place
from ._parameters import share_out
from ._reports import rows_of_step, summed
from ._saved import Saved, of_rank, to_tensor, together
from ._step import Step, in_backward_pass, of_those_with_input
from ._unused import hand_over, looks_for_unused
from ._wrapped import register, require_free, unwrap


def _end_steps(ended: queue.SimpleQueue[Optional[Step]], owner: weakref.ref[Link]) -> None:
    """Ends steps for as long as there is a link: a thread that kept it would keep all of its memory."""
    while (step := ended.get()) is not None:
        link = owner()
        if link is None:
            return
        link._end_step(step)
        del link, step


class Link:
    """Connects a model to thinwire's exchanges; `compress` returns it. Has their counters and state."""

    def __init__(
        self,
        model: DistributedDataParallel,
        codec: str,
        rules: Mapping[str, str],
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
        specs = [{**options, "codec": spec} for spec in share_out(self._parameters, codec, rules)]
        self._momentum = place(optimizer, momentum, tensors, specs)
        self._arrivals = count_arrivals(optimizer, momentum, tensors)
        try:
            self._exchanges = Exchanges(model.process_group, self._parameters, codec, rules, options,
                                        deadline_seconds, memories={},
                                        memory=self._momentum and self._momentum.memory)
        except BaseException:
            for attached in (self._momentum, self._arrivals):
                if attached is not None:
                    attached.detach()
            raise
        if self._arrivals is not None:
            weakref.finalize(self, self._arrivals.detach)
        if self._momentum is not None:
            self._exchanges.set_momentum(self._momentum.of_each)  # what is saved depends on dampening
            weakref.finalize(self, self._momentum.detach)
        elif optimizer is None and momentum == "auto":
            suspects = [spec["codec"] for spec in specs if leaves_most(spec)]
            if suspects:
                weakref.finalize(self, UnnamedOptimizer(suspects[0], tensors).stop)
        model.register_forward_pre_hook(averaged)
        self._changed = self._resumed = False
        self._scaler = scaler
        self._weight, self._abstains = 1.0, False
        self._step: Optional[Step] = None  # the one under way
        self._reports: list[dict[str, Any]] = []
        self._steps = 0
        self._loggers = Loggers()
        self._ended: queue.SimpleQueue[Optional[Step]] = queue.SimpleQueue()
        self._error: Optional[BaseException] = None
        threading.Thread(target=_end_steps, args=(self._ended, weakref.ref(self)), daemon=True,
                         name="thinwire").start()
        weakref.finalize(self, self._ended.put, None)
        watch(self)

    # Called by torch, bucket after bucket, in the same order on every rank: in the backward pass, or by Join.
    def _hook(self, bucket: dist.GradBucket) -> torch.futures.Future:
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._step is None:
            self._step = self._new_step()
        future = self._step.take(bucket, self._exchanges.start)
        if bucket.is_last():
            step, self._step = self._step, None
            self._ended.put(step)
            # Before torch waits for it: DistributedDataParallel would put an error into words of its own, and Join
            # would take it for a result.
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
        if self._momentum is not None:
            self._exchanges.set_momentum(self._momentum.of_each)
        joining = model is not None and of_those_with_input(model)
        self._exchanges.set_weights(joining or self._exchanges.options["weighted"], self._weight,
                                    self._abstains or (joining and not in_backward_pass()))
        self._abstains = False
        return Step(scale)

    def _end_step(self, step: Step) -> None:
        try:
            self._reports = self._exchanges.wait()
            self._steps += 1
            # What one engine skipped is no step for the optimiser, whatever the others made of theirs.
            step.end(any(report["skipped"] for report in self._reports),
                     all(report["participants"] == 0 for report in self._reports))
            self._loggers.write(self._steps, self._rows)
        except BaseException as error:  # noqa: BLE001 - the one who waits must hear of any
            self._error = error
            step.fail(error)

    def metrics(self) -> dict[str, Any]:
        """Counters of the last step on this rank.

        Returns:
            step (steps done), skipped, fault, participants (ranks that took part), dense_bytes (what an
            uncompressed exchange would send), sent_bytes, received_bytes (all bytes included), wire_ratio,
            codec_ratio, compress_seconds,
            wire_seconds, decompress_seconds, gradient_norm and rest_norm (l2, of this rank's gradient and of what
            memories keep; 0 unless `compress` was given norms=True), and streams: one dict of counters per
            compressed vector. Empty before the first step.
        """
        return summed(self._reports, self._steps) if self._reports else {}

    def set_weight(self, weight: float) -> None:
        """Sets the weight of this rank's gradients in the mean from the next step on, for example the size of its
        batch. The mean is the sum over ranks of weight x gradient, divided by the sum of all weights. The weight
        is 1 until set. Each rank sets its own, whenever it likes.

        Raises:
            thinwire.errors.Error: the link was not made with `compress(..., weighted=True)`, or a backward pass is
                under way.
        """
        self._require_weights("set_weight")
        self._weight = Arguments("set_weight").weight(weight)

    def abstain(self) -> None:
        """Says that this rank has nothing to contribute in the next step. Its gradients do not count, whatever they
        hold, its memories stay as they are, and it sends no values. It still runs a backward pass, on any batch,
        and receives the mean of the other ranks. If all ranks abstain, the step is skipped and gradients are zero.

        Raises:
            thinwire.errors.Error: as `set_weight`.
        """
        self._require_weights("abstain")
        self._abstains = True

    def _require_weights(self, call: str) -> None:
        if self._error is not None:
            raise self._error
        if self._step is not None:
            raise ContractError(f"{call}: a backward pass is under way; call it between two steps")
        if not self._exchanges.options["weighted"]:
            raise ContractError(f"{call}: needs compress(..., weighted=True), on all ranks")

    def log_to(self, writer: Any, tag: str = "thinwire", *, layers: bool = False) -> None:
        """Writes the numbers of every step, from another thread. A writer that fails gives a warning.

        Args:
            writer: an object with add_scalar(name, value, step), like torch.utils.tensorboard.SummaryWriter,
                or with log(dict), like wandb or one of its runs; that dict has the step, too.
            tag: the prefix of names.
            layers: also the density, bytes and, where `compress` was given norms=True, norms of every
                compressed vector, "thinwire/fc.weight/density".
        """
        self._loggers.add(writer, tag, layers)

    def _rows(self, layers: bool) -> Iterator[tuple[str, float]]:
        return rows_of_step(self.metrics(), self._exchanges.options["norms"], layers)

    @explains_keywords
    def change(
        self,
        codec: Union[str, Codec],
        *,
        rules: Optional[Mapping[str, Union[str, Codec]]] = None,
        method: str = "auto",
        steps_per_epoch: Union[int, Sized, None] = None,
    ) -> None:
        """Changes the codec from the next step on. All ranks call it between the same two steps.

        Memories stay, as in a schedule of codecs: this codec sends what the old one left out, even if it
        needs no memory itself. Tensors that share a memory go on sharing it, whatever the default of this
        codec is. If only options differ, encoders keep their state, as far as it fits.

        Args:
            codec, rules, method: as for `compress`. All of them are replaced.
            steps_per_epoch: as for `compress`. If absent, it stays.

        Raises:
            thinwire.errors.Error: as `compress`. The link is then unchanged. BadOptionError: the codec
                needs another memory than the one that holds what is owed.
        """
        if self._error is not None:
            raise self._error
        if self._step is not None:
            raise ContractError("change: a backward pass is under way; change between two steps")
        check = Arguments("change")
        check.texts(method=method)
        spec, others = check.codec(codec), check.rules(rules or {})
        in_epoch = check.steps_per_epoch(steps_per_epoch)
        try:
            self._exchanges = self._exchanges.changed(spec, others, method, in_epoch, self._steps)
        except TimeoutError as error:
            raise TimeoutError(f"change: {error}; do all ranks call it between the same two steps?") from None
        self._changed = True
        if self._exchanges.options["feedback"] == "none":
            _warn_of_loss(self._exchanges.specs)

    def carries(self, parameter: torch.Tensor) -> bool:
        """Whether the gradients of a parameter go through this link."""
        return self._exchanges.carries(parameter)

    def lacks_state(self) -> bool:
        """Whether the link started with empty memories."""
        exchanges = self._exchanges
        return not self._resumed and any(exchanges.remembered_shapes(spec) for spec in exchanges.specs)

    def release_optimizer(self) -> None:
        """Returns the momentum to the optimiser: from the next step on it acts on the mean, and starts from what
        the memories held of it. Adam continues from its own state. All ranks call it between the same two steps.
        Call it before the link is deleted: otherwise the optimiser gets its momentum back, but not what the
        memories held of it."""
        if self._error is not None:
            raise self._error
        if self._step is not None:
            raise ContractError("release_optimizer: a backward pass is under way; call it between two steps")
        if self._arrivals is not None:
            self._arrivals.give_back()
            self._arrivals = None
        if self._momentum is None:
            return
        velocities = self._exchanges.velocities()
        momentum, self._momentum = self._momentum, None
        momentum.give_back(velocities)
        self._exchanges.set_momentum(lambda parameters: [(0.0, 0.0, False)] * len(parameters))

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's memories and encoder states, for its checkpoint. Call it between two steps."""
        exchanges = self._exchanges
        return of_rank({
            "rank": exchanges.rank,
            "world_size": exchanges.size,
            "steps": self._steps,
            "states": {spec: to_tensor(arrays) for spec, arrays in exchanges.save().items()},
            "tensors": exchanges.shapes,
            # Where it was changed a new link has to become the same first.
            "changed": self._changed and {"codec": exchanges.codec, "rules": exchanges.rules,
                                          "method": exchanges.options["method"],
                                          "steps_per_epoch": exchanges.options["steps_per_epoch"],
                                          "memories": exchanges.memories},
        })

    def load_state_dict(self, saved: Saved, strict: bool = True) -> Unfit:
        """Loads a state. If the saved link's codec had been changed, the link continues with the changed codec.
        All ranks call it, between two steps.

        Args:
            saved: the result of this rank's `state_dict`; or those of all old ranks, in any order, if their
                number differs. What they owe to the mean is then kept: every rank gets the mean over the
                old ranks' memories.
            strict: False loads what fits, and leaves out what belongs to other tensors, shapes or memories.

        Returns:
            the names of tensors that were left out: missing_keys, unexpected_keys and mismatched_keys.

        Raises:
            thinwire.errors.Error: on all ranks; the link is then unchanged. MismatchError: the state is of
                another rank, another model or another step; CorruptError: it is not what was saved.
        """
        exchanges = self._exchanges
        states = together(exchanges.tell_all, "load_state_dict",
                          lambda: link_states(exchanges.rank, exchanges.size, saved))
        steps, changed = int(states[0].head["steps"]), states[0].head.get("changed", False)
        exchanges.agree("load_state_dict", [f"step {steps}", f"changed to {changed}"])
        if changed:
            exchanges = exchanges.again(**changed)
            if self._momentum is not None:
                exchanges.set_momentum(self._momentum.of_each)
        arrays, unfit = together(exchanges.tell_all, "load_state_dict",
                                 lambda: fitting(states, exchanges, strict))
        exchanges.load(arrays, steps)
        self._exchanges, self._steps, self._changed = exchanges, steps, bool(changed)
        self._resumed = True
        return unfit


def _at_end_of_backward(call: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(call)


# Without annotations: torch compares them with its classes, and they are texts in this file.
def _hook(link, bucket):
    return link._hook(bucket)


def _warn_of_loss(specs: list[str]) -> None:
    for spec in specs:
        try:
            info = Codec(spec).info
        except Error:  # a schedule, or a mistake that the engine explains
            continue
        if not info.unbiased and not info.lossless:
            warnings.warn(
                f"codec '{spec}' is biased and has no memory: what it leaves out of gradients is lost; "
                "leave feedback at \"auto\"",
                stacklevel=4,
            )


@explains_keywords
def compress(
    model: nn.Module,
    codec: Union[str, Codec] = "sidco:density=0.01",
    *,
    rules: Optional[Mapping[str, Union[str, Codec]]] = None,
    feedback: str = "auto",
    method: str = "auto",
    grouping: str = "auto",
    bucket_kb: int = 2048,
    steps_per_epoch: Union[int, Sized, None] = None,
    seed: int = 0,
    max_skipped: int = 0,
    norms: bool = False,
    weighted: bool = False,
    scaler: Optional[torch.amp.GradScaler] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
    momentum: str = "auto",
    deadline_seconds: float = 60.0,
) -> Link:
    """Sends the gradients of a DistributedDataParallel model through thinwire. All ranks call it alike.

    Args:
        model: a DistributedDataParallel, or the result of torch.compile on one, before its first backward pass, on
            a process group of backend gloo.
        codec: "name:key=value,key=value", or a `thinwire.Codec`; `thinwire.codecs()` lists them.
        rules: other codecs for parameters by name: {"*.bias": "fp32", "head.*": "int8"}; the first pattern
            that matches counts.
        feedback: the memory that keeps what codecs leave out; "auto" is the codec's default.
        method: the collective, docs/collectives.md.
        grouping: "tensor" (a codec sees each tensor alone), "model" (all as one vector), or "auto", the codec's.
        bucket_kb: the uncompressed size of what is sent together.
        steps_per_epoch: the optimiser's steps in an epoch, for schedules that count in epochs; or the DataLoader
            that has as many batches. Where gradients are accumulated over k batches, len(loader) // k.
        max_skipped: this many steps in a row with a NaN or infinity end training; 0: never, as a gradient
            scaler needs it.
        norms: whether to measure the l2 norms of gradients and memories, for `Link.metrics`; each is one more pass
            over all values.
        weighted: whether ranks may have different weights (`Link.set_weight`) or sit out steps (`Link.abstain`). It
            costs each rank one small message to each other rank in every step.
        scaler: the GradScaler whose scale the gradients have. Memories are then kept without it, so that they stay
            right when it changes.
        optimizer: the model's optimiser. If it is torch's SGD with momentum, and `momentum` says so, its momentum acts
            on each rank's gradient before anything is left out, and no longer on the mean. Its groups' learning
            rates, betas and momenta may change. `Link.release_optimizer` gives the optimiser back.
        momentum: "auto": in the memory of codecs that leave most values for later steps; "memory"; "optimizer", which
            leaves the optimiser as it is; or "arrival": torch's Adam or AdamW counts a value that arrives late for
            the steps that it waited. docs/memories.md, Momentum and Adam.
        deadline_seconds: the longest wait for another rank.

    Warns:
        UserWarning: a biased codec has no memory, so what it leaves out is lost. Or, at the first step of an
            optimiser with momentum that was not named: its momentum acts on bursts.

    Raises:
        thinwire.errors.Error: a name or option is wrong, or ranks differ; the text says where.
    """
    model = unwrap(model)
    require_free(model)
    check = Arguments("compress")
    spec, others = check.codec(codec), check.rules(rules or {})
    options = exchange_options(
        "compress", scaler=scaler, deadline_seconds=deadline_seconds, feedback=feedback, method=method,
        grouping=grouping, bucket_kb=bucket_kb, steps_per_epoch=steps_per_epoch, seed=seed,
        max_skipped=max_skipped, norms=norms, weighted=weighted)
    if feedback == "none":
        _warn_of_loss([spec, *others.values()])
    try:
        link = Link(model, spec, others, options, deadline_seconds, scaler, optimizer, momentum)
    except TimeoutError as error:
        raise TimeoutError(f"compress: {error}; do all ranks call it, at the same place?") from None
    register(model, link, _hook)
    return link
