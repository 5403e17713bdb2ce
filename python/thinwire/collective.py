"""Compressed averages over ranks that are threads of this process: for experiments.

Everything except the wire is as on several machines: codecs, memories, frames, buckets, the sums in
rank order, the agreement on a step.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _core
from ._arrays import FloatArray, to_read
from .codec import Codec
from .errors import ContractError
from .store import Store
from .streams import TensorSpec, checked_call

Tensors = Union[npt.ArrayLike, Mapping[str, npt.ArrayLike]]

_ONE = "values"  # the name of the tensor when ranks give one array each


@dataclass(frozen=True)
class StreamCounters:
    """One stream in one step, on one rank."""

    name: str
    values: int
    kept: int
    """Values that the payload carries."""
    target: int
    """Values that it should carry; 0 if the codec sets no target."""
    payload_bytes: int
    """The codec's bytes."""
    frame_bytes: int
    """Headers included."""
    reduced: int
    """For sparse-reduce: values of the mean that the owners of all ranks handed out."""
    dense_frames: int
    """For sparse-reduce: frames with all values, because positions would cost more."""
    rest_norm: float
    """l2 norm of what the memory kept; 0 without one."""
    gradient_norm: float
    """l2 norm of the gradient given."""
    codec: str
    """With every option spelt out."""


@dataclass(frozen=True)
class Fault:
    """Why a step did not count; the same on every rank."""

    code: str
    """"non-finite" or "corrupt"; "timeout" if more ranks were silent than the rule tolerates; "ok" if no rank was at fault."""
    rank: int
    """The rank at fault, or the one that asked to skip the step; -1: none alone, as where the sum over ranks overflowed."""
    stream: str
    """The stream at fault; a sentence where ranks were silent or too few took part."""


@dataclass(frozen=True)
class StepReport:
    """What one step cost one rank. `dataclasses.asdict` makes it a row of a table."""

    step: int
    skipped: bool
    fault: Optional[Fault]
    """Of a skipped step."""
    participants: int
    """Ranks that took part."""
    left_out: tuple[tuple[int, str], ...]
    """Ranks left out for a fault, and why; with rules that tolerate faulty ranks."""
    unchosen: tuple[int, ...]
    """Ranks to whose values a rule over whole vectors gave no weight."""
    dense_bytes: int
    """What a dense fp32 exchange of n ranks and d values sends per rank: 2 (n-1)/n x 4 d."""
    sent_bytes: int
    """By this rank, all bytes included."""
    inside_bytes: int
    """Part of sent_bytes, to ranks of this rank's group; 0 without groups."""
    between_bytes: int
    """The other part."""
    received_bytes: int
    compress_seconds: float
    wire_seconds: float
    """From the first send to the last receive: here a copy in memory, and waiting for a core."""
    decompress_seconds: float
    wait_seconds: float
    streams: tuple[StreamCounters, ...]


class AllReduced(NamedTuple):
    """What `all_reduce` returns."""

    mean: Any
    """An array, or a dict of arrays, like the input of each rank; the same bits on every rank."""
    reports: list[StepReport]
    """One for each rank."""


def all_reduce(
    arrays: Sequence[Tensors],
    codec: Union[str, Codec] = "fp32",
    exchange: str = "auto",
    feedback: str = "auto",
    *,
    combine: str = "mean",
    kinds: Union[str, Mapping[str, str]] = "other",
    stores: Optional[Sequence[Store]] = None,
    grouping: str = "auto",
    seed: int = 0,
    step: int = 0,
    steps_per_epoch: Optional[int] = None,
    bucket_bytes: int = 1 << 20,
    skip_faults: bool = False,
    deadline: float = 60.0,
) -> AllReduced:
    """Averages the ranks' arrays through a compressed exchange, and reports the cost for each rank.

    Args:
        arrays: for each rank one float32 array, or a dict of named ones (the tensors of a model):
            the same shapes on all ranks. They are not changed.
        codec: a name, spec or `Codec`, or a schedule of codecs, docs/memories.md.
        exchange: the method: "auto", "scatter-reduce", "sparse-reduce" ...; docs/collectives.md.
        feedback: the memory, as a spec; "auto": the codec's default (docs/codecs.md).
        combine: the rule by which contributions become one result, such as "trimmed_mean:f=1";
            docs/robust.md. With exchange "gather" a NaN of one rank is a fault that the rule tolerates.
        kinds: the roles of tensors, `tensor_kinds()`: one for all, or by name (others: "other").
            Kinds bias and norm are sent uncompressed, unless the grouping is "model".
        stores: one for each rank, the same in every step. Without them nothing is remembered.
        grouping: "tensor" (each tensor is a stream), "model" (all are one), "global" (each tensor, and one
            threshold for all, which is learnt from earlier steps); "auto": the codec's.
        seed, step: the seed of the run and the number of this call; all random draws follow from them.
        steps_per_epoch: the number of calls in an epoch, for schedules that count in epochs.
        bucket_bytes: dense bytes that are sent together.
        skip_faults: a step with a NaN or infinity on any rank gives zeros, changes no memory and is
            reported as skipped, as in training. Otherwise it raises NonFiniteError.
        deadline: the longest time in seconds that a rank waits for another.

    Raises:
        UnknownNameError, BadOptionError: as `Codec` does, also for exchange, feedback, combine,
            grouping.
        UnsupportedError: the exchange cannot carry the codec's payloads.
        DTypeError, ContractError: arrays of another type, or that differ between ranks.
        NonFiniteError: see skip_faults; the text names rank and stream.
    """
    if isinstance(arrays, (np.ndarray, Mapping)) or not isinstance(arrays, Sequence):
        raise ContractError("all_reduce: arrays must be a list with an entry for each rank")
    ranks = [_named(entry) for entry in arrays]
    if not ranks:
        raise ContractError("all_reduce: no ranks")
    tensors = _tensors(ranks, kinds)
    gradients = [_gradients(tensors, rank, entry) for rank, entry in enumerate(ranks)]
    means = {tensor.name: np.empty(tensor.shape, np.float32) for tensor in tensors}
    seed, step, *_ = checked_call(seed, step)
    if not 0 < deadline < 1e9:
        raise ContractError(f"all_reduce: deadline is {deadline}, must be seconds above 0")
    if steps_per_epoch is not None and not 0 < steps_per_epoch < 1 << 62:
        raise ContractError(f"all_reduce: steps_per_epoch is {steps_per_epoch}, must be above 0")
    if not 0 < bucket_bytes < 1 << 62:
        raise ContractError(f"all_reduce: bucket_bytes is {bucket_bytes}, must be above 0")
    rows = _core.all_reduce(
        tensors=[tensor.native() for tensor in tensors],
        gradients=gradients,
        means=list(means.values()),
        codec=codec.spec if isinstance(codec, Codec) else codec,
        exchange=exchange,
        feedback=feedback,
        combine=combine,
        grouping=grouping,
        stores=[store._native for store in stores or ()],
        bucket_bytes=bucket_bytes,
        seed=seed,
        step=step,
        steps_per_epoch=steps_per_epoch or 0,
        max_skipped=0 if skip_faults else 1,
        deadline_seconds=deadline,
    )
    named = isinstance(arrays[0], Mapping)
    return AllReduced(means if named else means[_ONE], [_report(row) for row in rows])


def _named(entry: Tensors) -> Mapping[str, npt.ArrayLike]:
    return entry if isinstance(entry, Mapping) else {_ONE: entry}


def _tensors(
    ranks: list[Mapping[str, npt.ArrayLike]], kinds: Union[str, Mapping[str, str]]
) -> list[TensorSpec]:
    def kind_of(name: str) -> str:
        return kinds if isinstance(kinds, str) else kinds.get(name, "other")

    if not isinstance(kinds, str) and not kinds.keys() <= ranks[0].keys():
        unknown = sorted(set(kinds) - set(ranks[0]))
        raise ContractError(f"all_reduce: kinds names {unknown}, which are no arrays")
    return [TensorSpec(name, np.shape(array), kind_of(name)) for name, array in ranks[0].items()]


def _gradients(
    tensors: list[TensorSpec], rank: int, entry: Mapping[str, npt.ArrayLike]
) -> list[FloatArray]:
    names = {tensor.name for tensor in tensors}
    if entry.keys() != names:
        raise ContractError(
            f"all_reduce: rank {rank} has arrays {sorted(entry)}, rank 0 {sorted(names)}"
        )
    return [
        to_read(f"rank {rank}, {tensor.name}", entry[tensor.name], tensor.shape)
        for tensor in tensors
    ]


def _report(row: dict[str, Any]) -> StepReport:
    return StepReport(
        **dict(
            row,
            fault=None if row["fault"] is None else Fault(**row["fault"]),
            left_out=tuple(row["left_out"]),
            unchosen=tuple(row["unchosen"]),
            streams=tuple(StreamCounters(**counters) for counters in row["streams"]),
        )
    )
