"""States of the engine as torch stores them: each rank's own, loadable at another number of ranks."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

import torch

from .._state import StateArray, read_state, write_state
from ..errors import MismatchError

# What state_dict gave on one rank; or on all old ranks, in any order.
Saved = Union[Mapping[str, Any], Sequence[Mapping[str, Any]]]


def to_tensor(arrays: Sequence[StateArray]) -> torch.Tensor:
    return torch.frombuffer(bytearray(write_state(arrays)), dtype=torch.uint8)


def from_tensor(rank: int, state: torch.Tensor) -> list[StateArray]:
    return read_state(f"state of rank {rank}", state.numpy().tobytes())


def states_for(rank: int, size: int, saved: Saved) -> list[Mapping[str, Any]]:
    """What a rank loads: its own, or, where their number was another, all old ranks' in order."""
    given = [saved] if isinstance(saved, Mapping) else list(saved)
    old_size = int(given[0]["world_size"]) if given else 0
    if old_size == size and len(given) > 1:
        given = [one for one in given if int(one["rank"]) == rank]
    if len(given) not in (1, old_size) or (len(given) == 1 and old_size != size):
        raise MismatchError(
            f"state of {old_size} ranks for {size}: give the states of all {old_size} old ranks"
        )
    return sorted(given, key=lambda one: int(one["rank"]))
