"""What every link has: its exchange, its counters, its state, and what a script can ask of it."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence, Sized
from typing import Any, Optional, Union

import torch
import torch.distributed as dist

from ..codec import Codec
from ..errors import ContractError, TimeoutError
from ._arguments import Arguments, Rules, explains_keywords
from ._brought import Brought
from ._codec_text import explained
from ._exchange import Exchange, engine_options
from ._fit import Unfit
from ._forgotten import watch
from ._link_state import LinkState, fitting, link_states, require_no_momentum, saved_state, settings_of
from ._loggers import Loggers, Numbers
from ._lossy import warn_of_loss
from ._optimizer import LinkedOptimizer
from ._parameters import Parameter
from ._reports import counters, rows_of_step
from ._saved import Saved, of_rank, together

_log = logging.getLogger("thinwire")


class Link:
    """Connects a model to thinwire's exchange; `compress` returns it. Has its counters and
    state. How gradients come to the exchange is up to the classes derived from it.

    Args:
        processes: all ranks of the exchange, those of all columns.
        averaging: those that average with each other, if they are not all.
    """

    def __init__(
        self,
        processes: dist.ProcessGroup,
        parameters: Sequence[Parameter],
        options: dict[str, Any],
        deadline_seconds: float,
        scaler: Optional[torch.amp.GradScaler],
        optimizer: Optional[torch.optim.Optimizer],
        momentum: str,
        averaging: Optional[dist.ProcessGroup] = None,
    ) -> None:
        self._parameters = list(parameters)
        self._rank_of_world = dist.get_rank()  # known behind destroy_process_group, too
        tensors = [parameter.tensor for parameter in self._parameters]
        self._optimizer = LinkedOptimizer(optimizer, momentum, tensors, engine_options(self._parameters, options))
        try:
            self._exchange = Exchange(processes, self._parameters, options, deadline_seconds,
                                      self._optimizer.with_memories, averaging=averaging)
            self._optimizer.begin(self._exchange)
        except BaseException:
            self._optimizer.detach()
            raise
        weakref.finalize(self, self._optimizer.detach)
        self._brought = Brought(tensors)
        self._keeps: Optional[bool] = None  # whether there is a memory, once somebody asked
        self._changed = self._resumed = False
        self._scaler = scaler
        self._weight, self._abstains, self._skips = 1.0, False, False
        self._has_input = True  # in the step under way
        self._step: Optional[Any] = None  # the one under way
        self._report: Optional[dict[str, Any]] = None  # of the last step
        self._steps = self._told = 0
        self._staging_told = False
        self._loggers = Loggers()
        self._error: Optional[BaseException] = None
        watch(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._exchange.settings['codec']!r}, {len(self._parameters)} parameters)"

    def _begin_exchange(self, joining: bool = False, has_input: bool = True) -> Optional[float]:
        """Before the first gradient of a step is given to the exchange. Returns the scale that
        gradients have; None if there is none.

        Args:
            joining: means are those of the ranks that have input.
            has_input: False if Join takes part in the place of this rank, whose optimiser takes no step then.
        """
        scale = 1.0 if self._scaler is None else self._scaler.get_scale()
        self._has_input = has_input
        self._optimizer.set_momentum(self._exchange)
        self._exchange.set_part(joining or self._exchange.options["weighted"], self._weight,
                                self._abstains or (joining and not has_input), self._skips)
        self._abstains = self._skips = False
        return None if scale == 1 else scale

    def _end_exchange(self, end: Optional[Callable[[], dict[str, Any]]] = None) -> dict[str, Any]:
        """Waits for the means of the step; its report.

        Args:
            end: of a step that bypasses the exchange.
        """
        self._report = self._exchange.wait() if end is None else end()
        self._steps += 1
        if self._has_input:
            self._brought.note_exchange(bool(self._report["skipped"]))
            self._optimizer.note_exchange(bool(self._report["skipped"]))
        self._tell_decisions()
        self._tell_of_staging(self._report)
        return self._report

    def _tell_of_staging(self, report: dict[str, Any]) -> None:
        """Once: which gradients on a GPU are compressed by the CPU."""
        if self._staging_told:
            return
        self._staging_told = True
        why = [stream["why_staged"] for stream in report["streams"] if stream["why_staged"]]
        if why:
            _log.info("gradients of %d of %d streams are copied to the CPU to be compressed: %s", len(why),
                      len(report["streams"]), why[0])

    def _numbers(self) -> Numbers:
        return Numbers(self._steps, self.metrics())

    def _write_logs(self, numbers: Optional[Numbers] = None) -> None:
        """Of the last step, or of an earlier one."""
        if self._loggers:
            step, metrics = numbers or self._numbers()
            norms = self._exchange.options["norms"]
            self._loggers.write(step, lambda layers: rows_of_step(metrics, norms, layers))

    def metrics(self) -> dict[str, Any]:
        """Counters of the last step on this rank.

        Returns:
            step (steps done), skipped, fault, outside (whether codec "auto" left the sums to torch's own
            all-reduce), participants (ranks that took part), left_out (with a
            robust rule: a list of (rank, reason) of ranks left out for a fault), unchosen (a list of
            ranks to which the rule gave no weight), dense_bytes (what an uncompressed exchange
            would send), sent_bytes, received_bytes (all bytes
            included), inside_bytes and between_bytes (the parts of sent_bytes within and between
            groups of ranks), device_to_host_bytes and host_to_device_bytes (copied from and to a GPU), wire_ratio, codec_ratio, compress_seconds, wire_seconds,
            decompress_seconds, gradient_norm and rest_norm (l2, of this rank's gradient and of what
            memories keep; 0 unless `compress` was given norms=True), and streams: one dict of
            counters per vector, with its codec, on_device (compressed on the GPU) and why_staged (why not). Empty before the first step.
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
        `max_skipped`. One rank suffices, unless the backward pass would be an error without it,
        because `.grad` still has a mean that the optimiser has used: then all ranks call it.

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

    def _require_going_on(self) -> None:
        """Before a forward pass whose gradients are to be exchanged: torch's own error says nothing of the cause."""
        if self._error is not None:
            raise ContractError(
                f"the link ended in step {self._steps}, by {type(self._error).__name__}: {self._error}; an error in an "
                "exchange ends the link, so start again from the last checkpoint, with the link's state") from self._error

    def _looks_at_passes(self) -> bool:
        """Whether the next backward pass might do harm by what is in .grad."""
        if not self._brought.is_there:
            return False
        if self._keeps is None:
            self._keeps = self._exchange.chooses or bool(self._exchange.remembered_shapes())
        return self._keeps

    def _begin_pass(self, exchanges: bool) -> None:
        """When a backward pass begins: raises where it does harm."""
        if self._skips or self._abstains:
            return
        is_unused = self._brought.begin_pass(exchanges)
        if self._optimizer.awaits_step:  # momentum has acted in an exchange; at the step it is said if there were several
            if exchanges and self._brought.is_there:
                self._optimizer.refuse_second_exchange()
        elif is_unused:
            self._brought.tell_of_unused()

    def log_to(self, writer: Any, tag: str = "thinwire", *, layers: bool = False) -> None:
        """Writes the numbers of every step, from another thread. A writer that fails gives a
        warning.

        Args:
            writer: an object with add_scalar(name, value, step), like
                torch.utils.tensorboard.SummaryWriter, or with log(dict), like wandb or one of its
                runs; that dict has the step, too. If `log` takes commit=, as W&B's does, it gets commit=False: the row joins
                the row that the script itself logs next.
            tag: the prefix of names.
            layers: also the density, bytes and, where `compress` was given norms=True, norms of
                every compressed vector, "thinwire/fc.weight/density".
        """
        self._loggers.add(writer, tag, layers)

    def decisions(self) -> list[dict[str, Any]]:
        """What codec "auto" decided, the first decision first: `step`, the `codec` from there on, `others` (codecs
        by parameter, for exceptions), and `why`. Empty with a codec of your own."""
        return self._exchange.decisions()

    def _tell_decisions(self) -> None:
        """On rank 0, to the logger "thinwire"."""
        if self._exchange.rank == 0 and self._exchange.chooses:
            for one in self._exchange.decisions()[self._told:]:
                _log.info("codec auto, step %d: %s", one["step"], one["why"])
                self._told += 1

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
            with explained(spec):
                self._exchange.change(spec, others, method, in_epoch)
        except TimeoutError as error:
            raise TimeoutError(f"change: {error}; do all ranks call it between the same two steps?") from None
        self._changed, self._keeps = True, None
        self._optimizer.follow(self._exchange)
        settings = self._exchange.settings
        warn_of_loss(settings, settings["rules"])

    def carries(self, parameter: torch.Tensor) -> bool:
        """Whether the gradients of a parameter go through this link."""
        return self._exchange.carries(parameter)

    def has_exchanged(self) -> bool:
        """Whether a step has been taken, in this process or before."""
        return self._steps > 0

    def lacks_state(self) -> bool:
        """Whether the link started with empty memories."""
        return not self._resumed and bool(self._exchange.remembered_shapes())

    def release_optimizer(self) -> None:
        """Returns the momentum to the optimiser: from the next step on it acts on the mean, and
        starts from what the memories held of it. Adam continues from its own state. All ranks call
        it between the same two steps. Call it before the link is deleted: otherwise the optimiser
        gets its momentum back, but not what the memories held of it. Warns if memories hold values
        that were not sent.

        Raises:
            thinwire.errors.Error: the optimiser is then unchanged. TimeoutError: another rank did not call it; ContractError:
                the mean of an exchange waits for the optimiser's step.
        """
        self._between_steps("release_optimizer")
        try:
            self._optimizer.release(self._exchange)
        except TimeoutError as error:
            raise TimeoutError(f"release_optimizer: {error}; do all ranks call it between the same two steps?") from None

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's memories and encoder states, for its checkpoint. Call it between two
        steps."""
        return of_rank(saved_state(self._exchange, self._steps, self._changed, self._optimizer.released), self._rank_of_world)

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
                state is of another rank, another model or another step, or was saved before release_optimizer and has the
                momentum that this link gave back; CorruptError: it is not what was saved.
        """
        exchange = self._exchange
        states = together(exchange.tell_all, "load_state_dict", lambda: self._states_in(saved))
        steps, changed = int(states[0].head["steps"]), states[0].head.get("changed", False)
        released = bool(states[0].head.get("released", False))
        exchange.agree("load_state_dict", [f"step {steps}", f"changed to {changed}", f"released {released}"])
        if changed:
            exchange = exchange.again(settings_of(changed, exchange), states[0].head.get("memories_asked"))
            self._optimizer.refuse_twice(exchange.settings_asked)
        self._optimizer.set_momentum(exchange, of_released=released)  # what is saved depends on dampening
        try:
            arrays, unfit = together(exchange.tell_all, "load_state_dict",
                                     lambda: fitting(states, exchange, strict))
            exchange.load(arrays, steps)
        except BaseException:
            self._optimizer.set_momentum(self._exchange)
            raise
        self._exchange, self._steps, self._changed, self._keeps = exchange, steps, bool(changed), None
        if released:
            self._optimizer.release_as_saved(exchange)
        self._resumed = True
        self._told = len(exchange.decisions())
        self._optimizer.follow(exchange)
        return unfit

    def _states_in(self, saved: Saved) -> list[LinkState]:
        states = link_states(self._exchange, saved)
        if self._optimizer.gave_back:
            require_no_momentum(states)
        return states
