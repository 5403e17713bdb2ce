"""The exchanges of a model's parameters, one for each codec, and what one hands over to another."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import nn

from ..errors import BadOptionError, ContractError, PeerLostError, TimeoutError
from ._fit import memories
from ._native import Engine, settle
from ._parameters import Parameter, listed, share_out

_Arrays = list[tuple[Any, ...]]
# "feedback" and "grouping" of each codec.
Memories = Mapping[str, Mapping[str, str]]


def _names(share: list[Parameter]) -> set[str]:
    return {parameter.name for parameter in share}


class Exchanges:
    """Built by all ranks alike.

    Args:
        options: of all exchanges, as `compress` takes them.
        memories: what replaces these options where a codec has to go on with what others remember.
        memory: the feedback of an exchange with given options, where an optimiser's momentum is part of it.
    """

    def __init__(
        self,
        processes: dist.ProcessGroup,
        parameters: list[Parameter],
        codec: str,
        rules: Mapping[str, str],
        options: Mapping[str, Any],
        deadline_seconds: float,
        memories: Memories,
        memory: Optional[Callable[[Mapping[str, Any]], str]] = None,
    ) -> None:
        self._memory = memory
        self.codec, self.rules, self.options = codec, dict(rules), dict(options)
        self._processes, self._parameters, self._deadline = processes, parameters, deadline_seconds
        self._places: dict[int, tuple[str, int]] = {}
        self._shares = share_out(parameters, codec, rules)
        self._engines: dict[str, Engine] = {}
        for spec, share in self._shares.items():
            tensors = [(p.name, p.shape, p.kind) for p in share]
            own = {**self._with_memory({**options, "codec": spec}), **memories.get(spec, {})}
            self._engines[spec] = Engine(processes, tensors, own, deadline_seconds)
            for index, parameter in enumerate(share):
                self._places[id(parameter.tensor)] = (spec, index)

    @property
    def rank(self) -> int:
        return next(iter(self._engines.values())).rank

    @property
    def size(self) -> int:
        return next(iter(self._engines.values())).size

    @property
    def specs(self) -> list[str]:
        return list(self._shares)

    @property
    def memories(self) -> dict[str, dict[str, str]]:
        """Which memory each codec has, and what shares one: "auto" decided."""
        settled = {spec: engine.settled() for spec, engine in self._engines.items()}
        return {spec: {key: one[key] for key in ("feedback", "grouping")} for spec, one in settled.items()}

    @property
    def shapes(self) -> dict[str, dict[str, list[int]]]:
        """The tensors of each codec by name, in their order."""
        return {spec: {p.name: p.shape for p in share} for spec, share in self._shares.items()}

    def remembered_shapes(self, spec: str) -> dict[str, list[int]]:
        """What the memories of a codec save, by name."""
        return memories(self._engines[spec].saved_shapes())

    def tell_all(self, text: str) -> list[str]:
        """What every rank says, in rank order. Called by all ranks between two steps."""
        return next(iter(self._engines.values())).tell_all(text)

    def agree(self, what: str, lines: Sequence[str]) -> None:
        """Raises MismatchError on all ranks when lines differ between them. Called by all ranks between two
        steps."""
        next(iter(self._engines.values())).agree(what, "\n".join(lines))

    def carries(self, parameter: torch.Tensor) -> bool:
        return id(parameter) in self._places

    def set_momentum(
        self, of_each: Callable[[Sequence[nn.Parameter]], list[tuple[float, float, bool]]]
    ) -> None:
        """Of every parameter, from the next step on. Between two steps."""
        for spec, engine in self._engines.items():
            engine.set_momentum(of_each([parameter.tensor for parameter in self._shares[spec]]))

    def set_weights(self, weighted: bool, weight: float, abstains: bool) -> None:
        """Whether ranks may weigh differently, the same on all ranks; and this rank's part in the next step. Between
        two steps."""
        for engine in self._engines.values():
            engine.set_weighted(weighted)
            if weighted:
                engine.set_weight(weight)
            if weighted and abstains:
                engine.abstain()

    def velocities(self) -> dict[int, torch.Tensor]:
        """The mean over ranks of what memories hold of each parameter's momentum, by its id. Called by all ranks
        between two steps."""
        found: dict[int, torch.Tensor] = {}
        for spec, arrays in self.save().items():
            by_name = {parameter.name: parameter.tensor for parameter in self._shares[spec]}
            count = {id(p.tensor): math.prod(p.shape) for p in self._shares[spec]}
            for name, *_, data in arrays:
                stream, _, part = name.rpartition("/feedback/")
                if part != "velocity":
                    continue
                values = torch.frombuffer(bytearray(data), dtype=torch.float32)
                dist.all_reduce(values, group=self._processes)
                tensors = [by_name[stream]] if stream in by_name else list(by_name.values())
                parts = values.div_(self.size).split([count[id(tensor)] for tensor in tensors])
                found.update((id(tensor), part) for tensor, part in zip(tensors, parts))
        return found

    def start(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        place = self._places.get(id(parameter))
        if place is None:
            raise ContractError(
                f"DistributedDataParallel averages a parameter of shape {list(parameter.shape)} that was frozen when "
                "compress was called, beside sparse ones; freeze it after compress"
            )
        self._engines[place[0]].start(place[1], gradient)

    def wait(self) -> list[dict[str, Any]]:
        """Ends the step; its reports."""
        reports, errors, names = [], [], []
        for spec, engine in self._engines.items():
            try:
                reports.append(engine.wait())
            except (PeerLostError, TimeoutError) as error:  # which ends the others too, if they have not ended
                errors.append(error)
                names += [one.name for one in self._shares[spec]]
        late = next((error for error in errors if isinstance(error, TimeoutError)), None)
        if late is not None:
            raise TimeoutError(f"{late}; there is no mean of {listed(names)}")
        if errors:
            raise errors[0]
        return reports

    def save(self) -> dict[str, _Arrays]:
        """What this rank remembers, by codec."""
        return {spec: engine.save() for spec, engine in self._engines.items()}

    def load(self, saved: Mapping[str, Sequence[_Arrays]], step: int) -> None:
        """Goes on at `step` with what old ranks saved, by codec. Called by all ranks."""
        for spec, engine in self._engines.items():
            engine.load(saved[spec], step)

    def again(self, codec: str, rules: Mapping[str, str], method: str, memories: Memories,
              steps_per_epoch: int = 0) -> Exchanges:
        """Others of the same parameters, which remember nothing."""
        return Exchanges(self._processes, self._parameters, codec, rules, self._options(method, steps_per_epoch),
                         self._deadline, memories, self._memory)

    def changed(self, codec: str, rules: Mapping[str, str], method: str, steps_per_epoch: int,
                step: int) -> Exchanges:
        """Others that go on at `step` with all that these remember. Called by all ranks; where it fails these
        are as they were."""
        # First of all, so that what follows is the same on all ranks, mistakes included.
        self.agree("change", [f"step {step}", f"codec {codec}", f"method {method}",
                              f"steps per epoch {steps_per_epoch}",
                              *(f"rule {pattern}: {spec}" for pattern, spec in rules.items())])
        had = self.memories
        options = self._options(method, steps_per_epoch)
        memories = {spec: self._memory_for(spec, share, options, had)
                    for spec, share in share_out(self._parameters, codec, rules).items()}
        others = self.again(codec, rules, method, memories, steps_per_epoch)
        saved = {spec: self._by_stream(arrays) for spec, arrays in self.save().items()}
        for spec, engine in others._engines.items():
            arrays = []
            for old, streams in saved.items():
                grouping = had[old]["grouping"]
                if grouping != others.memories[spec]["grouping"] or (
                        grouping == "model" and _names(self._shares[old]) != _names(others._shares[spec])):
                    continue  # of other streams; if they remember anything, _memory_for refused
                same_codec = old.partition(":")[0] == spec.partition(":")[0]
                # Those that travel uncompressed side by side may have memories of their own.
                for name in dict.fromkeys([*engine.streams(), *sorted(_names(others._shares[spec]))]):
                    arrays += [array for part, array in streams.get(name, ())
                               if part != "encoder" or same_codec]
            engine.take_over(arrays, step)
        return others

    def _with_memory(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {**options, "feedback": self._memory(options)} if self._memory else dict(options)

    def _options(self, method: str, steps_per_epoch: int) -> dict[str, Any]:
        """0 steps leave those of the options that there are."""
        return {**self.options, "method": method,
                "steps_per_epoch": steps_per_epoch or self.options["steps_per_epoch"]}

    def _memory_for(
        self, spec: str, share: list[Parameter], options: Mapping[str, Any], had: Memories
    ) -> dict[str, str]:
        """The memory that a codec goes on with: the old one where there is one, since it owes something."""
        settled = settle(self._with_memory({**options, "codec": spec}))
        names = _names(share)
        memory = {key: settled[key] for key in ("feedback", "grouping")}
        for old, its in had.items():
            owners = _names(self._shares[old])
            if its["feedback"] == "none" or not owners & names:
                continue
            if memory["feedback"] not in ("none", its["feedback"]):
                raise BadOptionError(
                    f"change: codec '{spec}' goes with memory {memory['feedback']}, and what '{old}' left out "
                    f"is in memory {its['feedback']}; compress(..., feedback=) chooses one for both"
                )
            if its["grouping"] == "model" and owners != names:
                raise BadOptionError(
                    f"change: all parameters of '{old}' share a memory, and rules would part them; "
                    "compress(..., grouping=\"tensor\") gives each its own"
                )
            memory = dict(its)
        return memory

    @staticmethod
    def _by_stream(arrays: _Arrays) -> dict[str, list[tuple[str, tuple[Any, ...]]]]:
        """(feedback, owner or encoder; array) of each stream."""
        streams: dict[str, list[tuple[str, tuple[Any, ...]]]] = {}
        for array in arrays:
            stream, part, _ = array[0].rsplit("/", 2)
            streams.setdefault(stream, []).append((part, array))
        return streams
