"""Predicted training steps: whether to compress, and with which codec."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from . import _core
from .errors import ContractError, Error
from .streams import TensorSpec

USUAL_CODECS = ("fp16", "int8", "int4", "adacomp:scale_factor=3", "topk:density=0.01",
                "topk:density=0.01 @ sparse-reduce", "sidco:density=0.01", "powersgd:rank=1", "powersgd:rank=4")

DDP = "DistributedDataParallel"

BUCKET_KB = 2048  # of tw.compress, where its caller names none: what is planned and measured is sent in such buckets

_costs = _core.CostTable()  # of this process, which measures each codec once


@dataclass(frozen=True)
class KnownAccuracy:
    """What a codec cost on a network in docs/results/defaults.md or methods.md, with the memory that it has by default."""

    model: str
    epochs: int
    points: float
    """Of error, in percentage points above fp32: mean over seeds. One or two may be chance: the runs are short."""
    seeds: int


@dataclass(frozen=True)
class PlannedStep:
    """A step with one codec, on every rank. Phases overlap, so that they may add up to more than the step."""

    codec: str
    """As it was asked for; or "DistributedDataParallel", torch's own exchange."""
    method: str
    seconds: float
    longest_seconds: float
    """With `sync`, of a step that is followed by a round; `seconds` is the mean."""
    speed_up: float
    """Over the plan's baseline."""
    limit: str
    """What would shorten the step most if it cost nothing: "bandwidth", "latency", "coding", "inside" (the link inside
    machines), or "computation"."""
    compute_seconds: float
    encode_seconds: float
    decode_seconds: float
    wire_seconds: float
    """In which the rank's link carries something."""
    sent_bytes: float
    """By the rank that sends most."""
    between_bytes: Optional[float]
    """Part of these, to ranks of other machines, by the rank that sends most of these. None with several ranks per machine
    if `sync` is a method other than leader and gossip: then ranks of one machine exchange as with all others."""
    bytes_exact: bool
    """Whether that is what the exchange will count; otherwise an estimate."""
    memory_bytes: float
    """That memories, encoders and owners of shards keep from step to step."""
    known_errors: tuple[KnownAccuracy, ...] = ()
    """Empty if the codec was not measured with these options, and for rounds (`sync`)."""
    wants_short_trial: bool = False
    """Whether the codec leaves most values for later steps: docs/choosing.md, Learning rate. False for rounds."""


class Plan(Sequence[PlannedStep]):
    """Predicted steps, the fastest first; printed, a table and a verdict."""

    def __init__(self, steps: Iterable[PlannedStep], *, ranks: int, link: str, baseline: str = "fp32", inside: int = 1,
                 at_least: bool = False, optimizer: str = "") -> None:
        self._steps = sorted(steps, key=lambda step: step.seconds)
        self.ranks = ranks
        self.link = link
        """As it was asked for, or as it was probed."""
        self.at_least = at_least
        """Whether the probe had too little time for a link of this latency, so that its rate may be higher than `link` says."""
        self.baseline = baseline
        """The uncompressed step that others are compared with: "DistributedDataParallel" in plans of thinwire.torch, else
        "fp32", thinwire's own exchange."""
        self.optimizer = optimizer
        """The class of the optimiser, if it was given and is not SGD: known errors are those of training with SGD. Empty for
        rounds, of which no errors are known."""
        self.inside = inside
        """Ranks of a machine that add their gradients uncompressed before machines exchange the sums, as `tw.compress(...,
        inside=N)` has it; 1: all ranks exchange directly."""

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._steps[index]

    def __len__(self) -> int:
        return len(self._steps)

    def of(self, codec: str) -> PlannedStep:
        """The step with this codec, as it was asked for."""
        for step in self._steps:
            if step.codec == codec:
                return step
        raise ContractError(f"plan: has no '{codec}' ({', '.join(step.codec for step in self._steps)})")

    @property
    def compress(self) -> bool:
        """Whether any codec is at least 2 % faster than training without one, which is less than what a prediction can tell."""
        return any(self._pays(step) for step in self._codecs())

    @property
    def uncompressed(self) -> PlannedStep:
        """The fastest step without a codec: the baseline or, if that is faster, thinwire's exchange with fp32."""
        return min(self.of(self.baseline), self.of("fp32"), key=lambda step: step.seconds)

    def _pays(self, step: PlannedStep) -> bool:
        return self.uncompressed.seconds >= _core.WORTHWHILE * step.seconds

    @property
    def best(self) -> Optional[PlannedStep]:
        """The codec to choose, other than fp32, if there is one. Of the codecs whose known errors are at most a point above
        fp32, and whose steps are within 5 % of the fastest of these, it is the one whose error is known on most networks and
        is smallest there. If none of these is 2 % faster than `uncompressed` and another codec is, it is the fastest of all.
        With an optimiser other than SGD, codecs that leave most values for later steps are passed over if another codec is
        2 % faster than `uncompressed`."""
        others = self._codecs()
        if self.optimizer:
            prompt = [step for step in others if not step.wants_short_trial]
            others = prompt if any(self._pays(step) for step in prompt) else others
        chosen = _core.choose_codec([(step.seconds, _known(step)) for step in others], self.uncompressed.seconds)
        return None if chosen is None else others[chosen]

    @property
    def verdict(self) -> str:
        """What to do, in words."""
        best, dense, codecs = self.best, self.uncompressed, self._codecs()
        name = self.baseline if dense.codec == self.baseline else "thinwire's fp32"
        takes = f"{1e3 * dense.seconds:,.1f} ms with {name}"
        if dense.codec != self.baseline:
            takes += f", {1e3 * self.of(self.baseline).seconds:,.1f} ms with {self.baseline}"
        if not self.compress or best is None:
            share = dense.compute_seconds / dense.seconds
            text = (f"Do not compress: no codec is 2 % faster than {name}. Computation takes {100 * share:.0f} % of a step "
                    f"with {name}. A slower link, more ranks or a shorter computation can change the answer.")
            if self.of(self.baseline).seconds >= _core.WORTHWHILE * dense.seconds:
                text += f" A step takes {takes}: the codec fp32 has thinwire's exchange without compression."
            return text
        grouped = "" if self.inside == 1 else f" with inside={self.inside}"
        text = f"Compress: {best.codec}{grouped} takes {1e3 * best.seconds:,.1f} ms a step, {takes}."
        if grouped:
            text += f" Give tw.compress inside={self.inside} as well: without it all ranks exchange directly, which is not planned here."
        gain = dense.seconds / best.seconds
        if gain < _core.CLEAR_GAIN:
            text += (f" A gain of {100 * (gain - 1):.0f} % is less than predictions are sure of: time steps with and without it on "
                     "your machines.")
        if not best.known_errors:
            text += f" What {best.codec} costs in accuracy is not known."
        elif not _keeps_accuracy(best):
            text += f" Its error was {_errors(best)} points above fp32."
        fastest = codecs[0]
        if not _keeps_accuracy(fastest) and best.seconds >= _core.WORTHWHILE * fastest.seconds:
            text += f" {fastest.codec} would be faster; " + (
                f"its error was {_errors(fastest)} points above fp32." if fastest.known_errors
                else "what it costs in accuracy is not known.")
        if best.wants_short_trial:
            text += " It leaves most gradient values for later steps, so compare the losses of a short run with it and without it first."
        if self.optimizer:
            text += f" Known errors are those of training with SGD, and yours is {self.optimizer}."
            if best.wants_short_trial:
                text += (f" With Adam and AdamW let {best.codec} send more values in the first epoch, as "
                         "topk:density=warmup(0.01;1) does.")
            elif any(self._pays(step) and step.wants_short_trial for step in codecs):
                text += " So codecs that leave most values for later steps are passed over."
        worth = [step.codec + _warning(step) for step in codecs if self._pays(step)]
        return f"{text} At least 2 % faster than {name} are: {', '.join(worth)}."

    def _codecs(self) -> list[PlannedStep]:
        return [step for step in self._steps if step.codec not in ("fp32", DDP)]

    def __str__(self) -> str:
        width = max(len(step.codec) for step in self._steps)
        compute, over = self.of("fp32").compute_seconds, "over " + ("DDP" if self.baseline == DDP else self.baseline)
        machines = "" if self.inside == 1 else f", {self.inside} per machine (inside={self.inside})"
        link = f"at least {self.link}" if self.at_least else self.link
        lines = [f"{self.ranks} ranks{machines}, link {link}; computation takes {1e3 * compute:,.1f} ms a step", "",
                 f"{'codec':<{width}}  ms per step  {over:>9}  limited by    bytes per step  error, points"]
        lines += [f"{step.codec:<{width}}  {1e3 * step.seconds:>11.1f}  {step.speed_up:>8.3f}x  {step.limit:<11}  "
                  f"{('' if step.bytes_exact else '~') + format(step.sent_bytes, ',.0f'):>14}  {_errors(step)}".rstrip()
                  for step in self._steps]
        if any(step.known_errors for step in self._steps):
            lines += ["", "Error is what thinwire's own short runs on two networks lost, in percentage points above fp32, one to three",
                      "seeds each (docs/results/defaults.md, methods.md): a point or two may be chance."]
        if self.at_least:
            lines += ["", "The probe had too little time for a link of this latency: its rate may be higher.",
                      "Name the link, as in link=\"1gbit,20ms\", if you know it."]
        return "\n".join([*lines, "", self.verdict])


def _known(step: PlannedStep) -> "list[tuple[str, int, float, int]]":
    return [(one.model, one.epochs, one.points, one.seeds) for one in step.known_errors]


def _keeps_accuracy(step: PlannedStep) -> bool:
    return _core.keeps_accuracy(_known(step))


def _warning(step: PlannedStep) -> str:
    if not step.known_errors or _keeps_accuracy(step):
        return ""
    return f" (error up to {max(one.points for one in step.known_errors):+.1f} points)"


def _errors(step: PlannedStep) -> str:
    if step.codec in ("fp32", DDP):
        return ""
    return ", ".join(f"{one.model} {one.points:+.1f}" for one in step.known_errors) or "not known"


def listed(codecs: Optional[Union[str, Iterable[str]]]) -> Optional[list[str]]:
    """A text may name several, with semicolons between them, as on the command line."""
    if codecs is None:
        return None
    if isinstance(codecs, str):
        return [name.strip() for name in re.split(r";(?![^(]*\))", codecs) if name.strip()]  # not within brackets
    return list(codecs)


def names_of(codecs: Optional[Union[str, Iterable[str]]]) -> list[str]:
    """Those of a plan's rows, fp32 first."""
    asked = listed(codecs)
    return ["fp32", *(name for name in (USUAL_CODECS if asked is None else asked) if name != "fp32")]


def plan(tensors: Iterable[TensorSpec], step_seconds: float, *, link: str = "none", ranks: int = 2,
         codecs: Optional[Union[str, Iterable[str]]] = None, ready_seconds: Optional[Sequence[float]] = None,
         optimizer_seconds: float = 0, own_core: bool = True, per_machine: int = 1, inside_link: str = "none",
         sync: str = "") -> Plan:
    """Simulates a step of the exchange's own schedule with fp32 and with each codec; docs/choosing.md.

    `tensors` are the gradients, first layer first, and `step_seconds` is a rank's own step without any exchange, of
    which the last `optimizer_seconds` need the mean gradients.
    `link` is as in "1gbit,20ms": the rate of a machine's link, which its ranks share (one rank unless `per_machine` says more),
    and the latency of one way. `ready_seconds` says when
    in the step each gradient is complete; absent, the backward pass is taken to be the later two thirds, in
    proportion to the values. A codec may name its method: "topk @ gather"; absent, `codecs` are USUAL_CODECS without those
    that `sync` refuses. `own_core` is False if the
    computation uses all cores, so that the exchange delays it. Each codec is measured once in a process, in about
    a quarter of a second.

    With `per_machine` consecutive ranks on each machine, gradients are added inside machines before these exchange
    them (a hierarchy), and `inside_link` is that of each rank to others of its machine. `sync` names a local method, as in "diloco:tau=500": workers step by themselves, and the
    codec is that of rounds. There is no hierarchy then.
    """
    return planned(tensors, step_seconds, link=link, ranks=ranks, codecs=codecs, ready_seconds=ready_seconds,
                   optimizer_seconds=optimizer_seconds, own_core=own_core, per_machine=per_machine,
                   inside_link=inside_link, sync=sync)


@dataclass(frozen=True)
class Measured:
    """What exchanges between two ranks of this machine take where no link limits them."""

    all_reduce: tuple[float, float]
    """DistributedDataParallel's: seconds per byte and per message."""
    tensors: list[TensorSpec]
    exchange_seconds: Mapping[str, float]
    """thinwire's of these tensors, by codec."""

    def thread_factor(self, codec: str) -> float:
        """How many times longer it is than what the codec alone costs."""
        name, _, method = codec.partition(" @ ")
        moment = 1e-9  # all gradients are complete at once
        alone = _core.predict_step([one.native() for one in self.tensors], [moment] * len(self.tensors), moment, moment, name,
                                   method or "auto", 2, (0.0, 0.0), True, _costs, BUCKET_KB)["seconds"]
        return self.exchange_seconds[codec] / alone if codec in self.exchange_seconds else 1.0


def planned(tensors: Iterable[TensorSpec], step_seconds: float, *, link: str, ranks: int,
            codecs: Optional[Union[str, Iterable[str]]], ready_seconds: Optional[Sequence[float]],
            optimizer_seconds: float, own_core: bool, per_machine: int, inside_link: str, sync: str,
            measured: Optional[Measured] = None, at_least: bool = False, optimizer: str = "") -> Plan:
    """`plan`. With what was measured DistributedDataParallel is the baseline; `at_least` and `optimizer` are the plan's."""
    specs, codecs = [tensor.native() for tensor in tensors], listed(codecs)
    ready = [float(seconds) for seconds in ready_seconds] if ready_seconds is not None else []
    if ready_seconds is not None and len(ready) != len(specs):
        raise ContractError(f"plan: {len(ready)} times for {len(specs)} tensors")
    backward = step_seconds - optimizer_seconds
    if not backward > 0 or backward < (1 - 1e-9) * max(ready, default=0):  # the sums of times are rounded
        raise ContractError("plan: step_seconds without optimizer_seconds is above 0, and not before the last "
                            "gradient is complete")
    names = names_of(codecs)
    parsed_link, parsed_inside = _core.parse_link(link), _core.parse_link(inside_link)
    rows, known = {}, {}
    for name in names:
        codec, _, method = name.partition(" @ ")
        try:
            rows[name] = _core.predict_step(specs, ready, backward, step_seconds, codec, method or "auto", ranks,
                                            parsed_link, own_core, _costs, BUCKET_KB, per_machine, parsed_inside, sync,
                                            measured.thread_factor(name) if measured else 1.0)
            known[name] = {} if sync else {
                "known_errors": tuple(KnownAccuracy(*one) for one in _core.known_errors(codec)),
                "wants_short_trial": _core.wants_short_trial(codec)}
        except Error:
            if codecs is not None or name == "fp32":
                raise
    baseline = "fp32"
    if measured:
        baseline, known[DDP] = DDP, {}
        rows[DDP] = _core.predict_all_reduce(specs, ready, backward, step_seconds, ranks, parsed_link, own_core,
                                             measured.all_reduce, per_machine, parsed_inside)
    dense = rows[baseline]["seconds"]
    return Plan((PlannedStep(codec=name, speed_up=dense / row["seconds"], **known[name], **row)
                 for name, row in rows.items()),
                ranks=ranks, link=link, baseline=baseline, inside=1 if sync else per_machine, at_least=at_least,
                optimizer="" if sync else optimizer)
