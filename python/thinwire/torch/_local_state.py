"""Saved states of local optimisers: read and checked on this rank alone."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from ..errors import MismatchError
from ._fit import Fit
from ._native import LocalWorker
from ._saved import Saved, entries, from_tensor, states_for

_OWN = "thinwire"


def local_states(
    rank: int, size: int, saved: Saved, method: str, codec: str, tensors: dict[str, list[int]]
) -> tuple[dict[str, Any], Optional[list[list[tuple[Any, ...]]]]]:
    """The inner optimiser's state for a rank, and what it loads of the method's: none where the state is a plain
    optimiser's."""
    given = entries(saved)
    plain = [one for one in given if _OWN not in one]
    for one in plain:
        if not {"state", "param_groups"} <= one.keys():
            raise MismatchError("the state is neither a local optimiser's nor another optimiser's: it has "
                                f"{sorted(map(str, one))[:6]}")
    if plain:
        if len(plain) < len(given):
            raise MismatchError("states of local optimisers and of others do not belong together")
        return dict(plain[rank % len(plain)]), None
    ours = states_for(rank, size, [one[_OWN] for one in given])
    for own in ours:
        _require_same(own, method, codec, tensors)
    mine = next(one for one in given if one[_OWN]["rank"] == rank % one[_OWN]["world_size"])
    inner = {key: value for key, value in mine.items() if key != _OWN}
    return inner, [from_tensor(own["rank"], own["state"]) for own in ours]


def _require_same(
    own: Mapping[str, Any], method: str, codec: str, tensors: dict[str, list[int]]
) -> None:
    # Other options are the method's and the store's to judge. Another codec would leave what is owed behind.
    if LocalWorker.kind_of(own["method"], own["codec"]) != LocalWorker.kind_of(method, codec):
        raise MismatchError(f"state of '{own['method']}' with codec '{own['codec']}' for '{method}' with "
                            f"'{codec}': the method and the codec must be of the same names; their options may differ")
    fit = Fit()
    fit.compare(own.get("tensors", tensors), tensors)
    fit.require()
