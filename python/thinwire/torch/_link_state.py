"""Saved states of links: read and checked on this rank alone.

Every rank saves one dictionary:

    rank, world_size, steps
    state       all memories and encoder states, as bytes in a tensor
    tensors     their shapes by name, in their order, by codec
    shared      which tensors have one memory or encoder, by the name that it has in `state`
    inside      ranks per group
    column, columns    the exchange whose rank this is, of how many; without them, of one
    changed     False, or the settings that `change` led to
    memories_asked    the memory that was asked for, by the codec and by each rule: "auto", or its name
    released    whether the optimiser had its momentum back (release_optimizer)
    permuted    strides of parameters that are not contiguous, such as those of torch.channels_last, by name

Earlier versions had an exchange for each codec. They saved `states` by codec, of which each called
what all of its tensors share "model", and in `changed` the `memories` by codec. The earliest saved
no tensors.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..errors import MismatchError
from ._exchange import Exchange, engine_options
from ._fit import Fit, Unfit, memories_in, remembered
from ._names import plain_names, stream_of
from ._parameters import permuted
from ._reshard import Shard, arrays_of, joined_shape, owed_by_owners, shard_of, whole_of, with_owned
from ._saved import Saved, entries, from_tensor, states_for, to_tensor

_Arrays = list[tuple[Any, ...]]
_Shapes = Mapping[str, Mapping[str, list[int]]]  # by codec and name


class LinkState(NamedTuple):
    """Of one old rank."""

    head: Mapping[str, Any]
    arrays: dict[str, _Arrays]  # by codec, as earlier versions saved it; or all


_ALL = ""
_WHOLE = "model"  # the name of what all tensors share


def saved_state(exchange: Exchange, steps: int, changed: bool, released: bool = False) -> dict[str, Any]:
    return {"rank": exchange.rank, "world_size": exchange.size, "steps": steps,
            "state": to_tensor(exchange.save()), "tensors": exchange.shapes, "shared": exchange.shared,
            "inside": exchange.options["inside"], "column": exchange.column, "columns": exchange.columns,
            "changed": changed and exchange.settings, "memories_asked": exchange.memories_asked,
            "released": released, "permuted": permuted(exchange.parameters)}


def link_states(exchange: Exchange, saved: Saved) -> list[LinkState]:
    """What a rank loads of what it was given."""
    found = []
    for one in states_for(exchange.rank, exchange.size, _of_column(exchange, entries(saved))):
        if "steps" not in one or not {"state", "states"} & one.keys():
            raise MismatchError("the state is of something else than a link")
        _require_order(exchange, one)
        states = one["states"] if "states" in one else {_ALL: one["state"]}
        found.append(LinkState(one, {codec: from_tensor(int(one["rank"]), state) for codec, state in states.items()}))
    for one in found[1:]:
        for key in ("steps", "changed", "released"):
            if one.head.get(key) != found[0].head.get(key):
                raise MismatchError(f"'{key}' of the state is {one.head.get(key)} on old rank {one.head['rank']}, "
                                    f"{found[0].head.get(key)} on old rank {found[0].head['rank']}")
    return found


def require_no_momentum(states: Sequence[LinkState]) -> None:
    """Of states for a link that has given the optimiser its momentum back: raises where they were saved before that, and their
    memories hold some of it."""
    for state in states:
        if not state.head.get("released", False) and any(map(_holds_momentum, state.arrays.values())):
            raise MismatchError(
                f"the state of old rank {state.head['rank']} holds the optimizer's momentum, which would be lost, because this "
                "link has given the optimizer back by release_optimizer(): load it into the link of a new "
                "DistributedDataParallel that compress was given with optimizer=, or load a state that was saved after "
                "release_optimizer()")


def _holds_momentum(arrays: _Arrays) -> bool:
    return any(name.endswith("/feedback/velocity") and len(data) > 0
               and bool(torch.frombuffer(bytearray(data), dtype=torch.float32).any()) for name, *_, data in arrays)


def _require_order(exchange: Exchange, head: Mapping[str, Any]) -> None:
    """Memories hold values in the order in which they lie in gradients."""
    own, saved = permuted(exchange.parameters), head.get("permuted")
    if saved is None:  # of an earlier version
        return
    streams = {stream_of(name) for name in exchange.remembered_shapes()}
    held = {name for stream in streams for name in exchange.shared.get(stream, [stream])}
    for name in {name for shapes in head.get("tensors", {}).values() for name in shapes} & held:
        if own.get(name) != saved.get(name):
            says = lambda strides: f"strides {strides}" if strides else "its rows in order"  # noqa: E731
            raise MismatchError(f"the state of '{name}' was saved with {says(saved.get(name))}, here it has "
                                f"{says(own.get(name))}: use the memory format with which it was saved (torch.channels_last)")


def _of_column(exchange: Exchange, saved: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    whole = all({"rank", "world_size"} <= one.keys() for one in saved)  # else it is no state, as states_for says
    if whole and any(int(one.get("columns", 1)) != exchange.columns for one in saved):
        return _in_other_shards(exchange, saved)
    own = [one for one in saved if int(one.get("column", 0)) == exchange.column]
    if saved and not own:
        raise MismatchError(f"the state is of shard {saved[0].get('column', 0)}, this rank has shard "
                            f"{exchange.column}: every rank loads what its own state_dict gave, or all load the states "
                            "of all ranks")
    return own


def _in_other_shards(exchange: Exchange, saved: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The states of old replicas as their ranks would have saved them that had this rank's shard."""
    replicas, columns = int(saved[0]["world_size"]), int(saved[0].get("columns", 1))
    heads = {(int(one["rank"]), int(one.get("column", 0))): one for one in saved}
    if [*sorted(heads)] != [(rank, column) for rank in range(replicas) for column in range(columns)] or any(
            int(one.get("columns", 1)) != columns or "state" not in one for one in saved):
        raise MismatchError(
            f"the state is of a model in {columns} shards, this one has {exchange.columns}: give the states of all "
            f"{replicas * columns} old ranks; from torch.distributed.checkpoint by Checkpoint(..., "
            f"world_size={replicas * columns}, shards={columns})")
    shards = {at: shard_of(from_tensor(int(one["rank"]), one["state"]), one) for at, one in heads.items()}
    wholes = {one.name: whole_of(one.tensor) for one in exchange.parameters}
    own = Shard([], {one.name: one.shape for one in exchange.parameters}, exchange.shared)
    owned = [owed_by_owners([shards[rank, column] for rank in range(replicas)]) for column in range(columns)]
    found = []
    for rank in range(replicas):
        held = [with_owned(shards[rank, column].values(), owned[column]) for column in range(columns)]
        values = {}
        for name, key in held[0]:
            shapes = [shards[rank, column].shapes[name] for column in range(columns)]
            if name not in wholes or wholes[name].shape != joined_shape(shapes, wholes[name].dim):
                continue  # of another model, as the comparison of shapes will say
            parts = wholes[name].again([one[name, key] for one in held], exchange.columns, padded=False)
            values[name, key] = parts[exchange.column]
        head = heads[rank, 0]
        tensors = {codec: {name: own.shapes.get(name, shape) for name, shape in shapes.items()}
                   for codec, shapes in head["tensors"].items()}
        arrays = arrays_of(values, shards[rank, 0].arrays, own, exchange.remembered_shapes())
        found.append({**head, "state": to_tensor(arrays), "tensors": tensors, "column": exchange.column,
                      "columns": exchange.columns})
    return found


def settings_of(changed: Mapping[str, Any], exchange: Exchange) -> dict[str, Any]:
    """What a saved link was changed to, for this exchange of the same parameters."""
    if "memories" not in changed:
        return dict(changed)
    memories = changed["memories"]
    settings = {key: changed[key] for key in ("codec", "method", "steps_per_epoch")}
    rules = {pattern: {"codec": codec, **memories[codec]} for pattern, codec in changed["rules"].items()}
    options = engine_options(exchange.parameters, {**exchange.options, **settings, "rules": rules})
    return {**settings, **memories.get(changed["codec"], {}), "rules": options["rules"]}


def fitting(states: Sequence[LinkState], exchange: Exchange, strict: bool) -> tuple[list[_Arrays], Unfit]:
    """What every old rank's state has for this exchange; all of it, if `strict`."""
    first, shapes, own = states[0], exchange.shapes, exchange.remembered_shapes()
    if exchange.chooses and _ALL in first.arrays:  # it goes on with the codecs that the memories were of
        own = memories_in(first.arrays[_ALL])
    _require_groups(first.head, exchange)
    known = "tensors" in first.head
    saved: _Shapes = first.head["tensors"] if known else shapes
    codecs = saved if known else first.arrays
    if strict and {*codecs} != {*shapes}:
        raise MismatchError(f"state of codecs {sorted(codecs)} for {sorted(shapes)}")
    if "state" in first.head:
        ranks, shared = [state.arrays[_ALL] for state in states], first.head["shared"]
    else:
        stores = [_in_one_store(state.arrays, saved, renamed=not known) for state in states]
        ranks, shared = [arrays for arrays, _ in stores], stores[0][1]
    fit = Fit()
    if known:
        for codec in dict.fromkeys((*shapes, *saved)):
            fit.compare(saved.get(codec, {}), shapes.get(codec, {}))
    else:
        fit.compare(remembered(memories_in(ranks[0])), remembered(own))
    fit.compare_shared(shared, exchange.shared)
    kept = [fit.kept(arrays, own) for arrays in ranks]
    if strict:
        fit.require("\nload_state_dict(..., strict=False) loads what fits")
    return kept, fit.unfit


def _require_groups(head: Mapping[str, Any], exchange: Exchange) -> None:
    """With groups each rank has the memories of some tensors, and they do not move."""
    saved, own = int(head.get("inside", 1)), exchange.options["inside"]
    if saved == own and (own == 1 or int(head["world_size"]) == exchange.size):
        return
    raise MismatchError(f"a state of {head['world_size']} ranks with inside={saved} does not go on with inside={own} "
                        f"on {exchange.size} ranks; groups go on as they were")


def _in_one_store(
    by_codec: Mapping[str, _Arrays], tensors: _Shapes, renamed: bool
) -> tuple[_Arrays, dict[str, list[str]]]:
    """What earlier versions saved, under the names that it has in the store of one exchange; and
    what is shared there.

    Args:
        renamed: names have what wrappers add to them.
    """
    found: _Arrays = []
    shared: dict[str, list[str]] = {}
    for codec, arrays in by_codec.items():
        own = [*tensors.get(codec, ())]
        streams = [*dict.fromkeys(stream_of(array[0]) for array in arrays)]
        names = dict(zip(streams, plain_names(streams) if renamed and not {*streams} <= {*own, _WHOLE} else streams))
        if _WHOLE in names and own and _WHOLE not in own:
            names[_WHOLE] = _WHOLE if len(tensors) == 1 else f"{_WHOLE}:{own[0]}"
            shared[names[_WHOLE]] = own
        for name, *rest in arrays:
            stream, part, key = name.rsplit("/", 2)
            found.append(("/".join((names[stream], part, key)), *rest))
    return found, shared
