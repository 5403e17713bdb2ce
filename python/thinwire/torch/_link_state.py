"""Saved states of links: read and checked on this rank alone."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import MismatchError
from ._exchanges import Exchanges
from ._fit import Fit, Unfit, memories_in, remembered, rename
from ._saved import Saved, entries, from_tensor, states_for

_Arrays = list[tuple[Any, ...]]


class LinkState(NamedTuple):
    """Of one old rank."""

    head: Mapping[str, Any]
    arrays: dict[str, _Arrays]  # by codec


def link_states(rank: int, size: int, saved: Saved) -> list[LinkState]:
    """What a rank loads of what it was given."""
    found = []
    for one in states_for(rank, size, entries(saved)):
        if not {"steps", "states"} <= one.keys():
            raise MismatchError("the state is of something else than a link")
        found.append(LinkState(one, {spec: from_tensor(int(one["rank"]), state)
                                     for spec, state in one["states"].items()}))
    for one in found[1:]:
        for key in ("steps", "changed"):
            if one.head.get(key) != found[0].head.get(key):
                raise MismatchError(f"'{key}' of the state is {one.head.get(key)} on old rank {one.head['rank']}, "
                                    f"{found[0].head.get(key)} on old rank {found[0].head['rank']}")
    return found


def fitting(
    states: Sequence[LinkState], exchanges: Exchanges, strict: bool
) -> tuple[dict[str, list[_Arrays]], Unfit]:
    """By codec what every old rank's state has for these exchanges; all of it, if `strict`."""
    first = states[0]
    if strict and set(first.arrays) != set(exchanges.specs):
        raise MismatchError(f"state of codecs {sorted(first.arrays)} for {sorted(exchanges.specs)}")
    fit = Fit()
    shapes = exchanges.shapes
    found: dict[str, list[_Arrays]] = {}
    for spec in exchanges.specs:
        own = exchanges.remembered_shapes(spec)
        ranks = [state.arrays.get(spec, []) for state in states]
        if "tensors" in first.head:
            fit.compare(spec, first.head["tensors"].get(spec, {}), shapes[spec])
        else:  # as thinwire saved it before it named tensors
            ranks = [rename(arrays, shapes[spec]) for arrays in ranks]
            fit.compare(spec, remembered(memories_in(ranks[0])), remembered(own))
        found[spec] = [fit.kept(spec, arrays, own) for arrays in ranks]
    for spec in set(first.head.get("tensors", {})) - set(exchanges.specs):
        fit.compare(spec, first.head["tensors"][spec], {})
    if strict:
        fit.require("\nload_state_dict(..., strict=False) loads what fits")
    return found, fit.unfit
