"""States of the engine as torch stores them: each rank's own, loadable at another number of ranks."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable, TypeVar, Union

import torch

from .. import errors
from .._state import SEAL, StateArray, read_state, write_state
from ..errors import CorruptError, MismatchError
from ._memory import on_host
from ._native import check_seal

# What state_dict gave on one rank; or on all old ranks, in any order.
Saved = Union[Mapping[str, Any], Sequence[Mapping[str, Any]]]

_T = TypeVar("_T")


def to_tensor(arrays: Sequence[StateArray]) -> torch.Tensor:
    return torch.frombuffer(bytearray(write_state(arrays)), dtype=torch.uint8)


def from_tensor(rank: int, state: torch.Tensor) -> list[StateArray]:
    arrays = read_state(f"state of rank {rank}", on_host(state).numpy().tobytes())
    try:
        check_seal(arrays)
    except CorruptError as error:
        raise CorruptError(f"state of rank {rank}: {error}") from None
    return [array for array in arrays if array[0] != SEAL]


def of_rank(state: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """The state of this rank of the world so that torch.distributed.checkpoint keeps it apart from the others': entries of one name
    are copies of each other there, and one is stored. In a tuple, an entry is stored as it is."""
    return {f"rank {rank}": (state,)}


def entries(saved: Saved) -> list[Mapping[str, Any]]:
    """The states in what of_rank gave, on one rank or on several; others are states already."""
    found: list[Mapping[str, Any]] = []
    for one in [saved] if isinstance(saved, Mapping) else list(saved):
        if not isinstance(one, Mapping):
            raise MismatchError(f"a state is a dict, not {type(one).__name__}")
        own = [one[key][0] for key in one if re.fullmatch(r"rank \d+", str(key))]
        found += own or [one]
    return found


def states_for(
    rank: int, size: int, saved: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """What a rank loads: its own, or, where their number was another, all old ranks' in order."""
    if not saved:
        raise MismatchError("there is no state to load")
    for one in saved:
        if not {"rank", "world_size"} <= one.keys():
            raise MismatchError(f"this is no state of thinwire: it has {sorted(map(str, one))[:6]}")
    sizes = {int(one["world_size"]) for one in saved}
    if len(sizes) > 1:
        raise MismatchError(f"states of runs of {sorted(sizes)} ranks do not belong together")
    old_size = sizes.pop()
    by_rank = {int(one["rank"]): one for one in saved}
    if old_size == size:
        if len(by_rank) == 1 and rank not in by_rank:
            raise MismatchError(
                f"state of rank {next(iter(by_rank))} was given to rank {rank}: every rank loads what its own "
                f"state_dict gave, or all load the states of all {size} ranks"
            )
        if rank in by_rank:
            return [by_rank[rank]]
    if sorted(by_rank) != list(range(old_size)) or len(saved) != old_size:
        raise MismatchError(
            f"state of {old_size} ranks for {size}: give the states of all {old_size} old ranks, not of "
            f"{sorted(int(one['rank']) for one in saved)}; from torch.distributed.checkpoint by "
            f"Checkpoint(..., world_size={old_size})"
        )
    return [by_rank[r] for r in range(old_size)]


def together(tell_all: Callable[[str], list[str]], what: str, work: Callable[[], _T]) -> _T:
    """What `work` gives; what it raises on one rank is raised on all, before any of them goes on. Called by all
    ranks."""
    error = None
    try:
        result = work()
    except Exception as raised:  # noqa: BLE001 - goes to all ranks, and on from here
        error = raised
    try:
        told = tell_all("" if error is None else f"{type(error).__name__}\n{error}")
    except errors.TimeoutError as late:
        raise errors.TimeoutError(f"{what}: {late}; do all ranks call it?") from error
    if error is not None:
        raise error
    for rank, text in enumerate(told):
        if text:
            kind, _, text = text.partition("\n")
            raise getattr(errors, kind, MismatchError)(f"{what}: rank {rank}: {text}")
    return result
