"""The exchange of a model's parameters, and the codec of each of them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import nn

from ..errors import ContractError, TimeoutError
from ._fit import memories
from ._memory import Streams, all_reduce, carrier_of, device_of, engine_device
from ._names import stream_of
from ._native import Engine
from ._parameters import Parameter, by_plain_names, codecs_of, listed

_Arrays = list[tuple[Any, ...]]
_Options = Mapping[str, Any]


class Exchange:
    """Built by all ranks alike.

    Args:
        options: as `compress` takes them, codec and rules included.
        with_momentum: gives options the memories that an optimiser's momentum is part of.
        changed: what replaces these options where a link had been changed before it was saved.
        averaging: the ranks that average with each other, if `processes` has those of several columns.
        device: where gradients are, if not beside their parameters.
    """

    def __init__(
        self,
        processes: dist.ProcessGroup,
        parameters: Sequence[Parameter],
        options: _Options,
        deadline_seconds: float,
        with_momentum: Optional[Callable[[_Options], _Options]] = None,
        changed: Optional[_Options] = None,
        memories_asked: Optional[list[str]] = None,
        averaging: Optional[dist.ProcessGroup] = None,
        device: Optional[torch.device] = None,
    ) -> None:
        self.parameters, self.options = parameters, options
        self._processes, self.deadline_seconds, self._with_momentum = processes, deadline_seconds, with_momentum
        carrier = carrier_of(processes)
        others = carrier if averaging is None else carrier_of(averaging)
        self._given_averaging, self._averaging = averaging, others.group
        self._streams = Streams()
        if device is None:
            device = device_of((one.name, one.tensor) for one in parameters)
        self._device = device
        own = engine_options(parameters, options)
        # Of the codec and of each rule: memories as they were asked for, which may be "auto".
        self.memories_asked = memories_asked or _memories_of({**own, "rules": (changed or own)["rules"]}, changed)
        own = {**(with_momentum(own) if with_momentum else own), **(changed or {})}
        self._engine = Engine(carrier.group, [(p.name, p.shape, p.kind) for p in parameters], own, deadline_seconds,
                              engine_device(device))
        self._carriers = carrier, others  # behind the engine, which is to end before them
        self._places = {id(parameter.tensor): index for index, parameter in enumerate(parameters)}
        self.rank, self.size, self.column = self._engine.rank, self._engine.size, self._engine.column
        # If one rank cannot bypass the exchange, none does.
        possible = all(one.tensor.dtype == torch.float32 and one.tensor.device.type == "cpu" for one in parameters)
        self._bypass_is_possible = self.chooses and set(self.tell_all(str(possible))) == {"True"}

    def again(self, changed: _Options, memories_asked: Optional[list[str]]) -> Exchange:
        """Another of the same parameters, which remembers nothing."""
        return Exchange(self._processes, self.parameters, self.options, self.deadline_seconds, self._with_momentum, changed,
                        memories_asked, self._given_averaging, self._device)

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the options that `change` replaces, as they are now."""
        return self._engine.options()

    @property
    def columns(self) -> int:
        """How many exchanges there are side by side, of which this is one."""
        return self.options.get("columns", 1)

    @property
    def settings_asked(self) -> dict[str, Any]:
        """All options as they are now, with the memories that were asked for: after a change the engine names those
        that it kept."""
        settings = self.settings
        first, *of_rules = self.memories_asked
        rules = [{**rule, "feedback": own} for rule, own in zip(settings["rules"], of_rules)]
        return {**self.options, **settings, "feedback": first, "rules": rules}

    @property
    def shapes(self) -> dict[str, dict[str, list[int]]]:
        """The tensors of each codec by name, in their order."""
        shapes: dict[str, dict[str, list[int]]] = {}
        settings = self.settings
        codecs = codecs_of(self.parameters, settings["codec"], settings["rules"])
        for parameter in self.parameters:
            shapes.setdefault(codecs[parameter.name], {})[parameter.name] = parameter.shape
        return shapes

    @property
    def shared(self) -> dict[str, list[str]]:
        """The tensors that share a memory or an encoder, by the name under which it is saved."""
        saved = {stream_of(name) for name, _ in self._engine.saved_shapes()}
        return {stream: names for stream, names in self._engine.streams() if stream in saved and names != [stream]}

    @property
    def chooses(self) -> bool:
        """Whether codec "auto" chooses, so that memories depend on what it chose."""
        return self.settings["codec"].partition(":")[0] == "auto"

    def decisions(self) -> list[dict[str, Any]]:
        """What codec "auto" decided, the first decision first."""
        return [{"step": step, "codec": codec, "others": dict(others), "why": why}
                for step, codec, others, why in self._engine.decisions()]

    def remembered_shapes(self) -> dict[str, list[int]]:
        """What the memories save, by name."""
        return memories(self._engine.saved_shapes())

    def tell_all(self, text: str) -> list[str]:
        """What every rank says, in rank order. Called by all ranks between two steps."""
        return self._engine.tell_all(text)

    def agree(self, what: str, lines: Sequence[str]) -> None:
        """Raises MismatchError on all ranks when lines differ between them. Called by all ranks
        between two steps."""
        self._engine.agree(what, "\n".join(lines))

    def carries(self, parameter: torch.Tensor) -> bool:
        return id(parameter) in self._places

    def set_momentum(
        self, of_each: Callable[[Sequence[nn.Parameter]], list[tuple[float, float, bool]]]
    ) -> None:
        """Of every parameter, from the next step on. Between two steps."""
        self._engine.set_momentum(of_each([parameter.tensor for parameter in self.parameters]))

    def set_part(self, weighted: bool, weight: float, abstains: bool, skips: bool) -> None:
        """Whether ranks may weigh differently, the same on all ranks; and this rank's part in the
        next step. Between two steps."""
        self._engine.set_weighted(weighted)
        if weighted:
            self._engine.set_weight(weight)
        if skips:
            self._engine.skip_step()
        elif abstains:
            self._engine.abstain()

    def velocities(self) -> dict[int, torch.Tensor]:
        """The mean over ranks of what memories hold of each parameter's momentum, by its id. Called
        by all ranks between two steps, which are known to do so."""
        held: dict[str, torch.Tensor] = {}  # of this rank; with groups another rank may have the others
        by_name, shared = {parameter.name: parameter for parameter in self.parameters}, self.shared
        for name, *_, data in self.save():
            stream, _, part = name.rpartition("/feedback/")
            if part != "velocity":
                continue
            values = torch.frombuffer(bytearray(data), dtype=torch.float32)
            own = [by_name[one] for one in shared.get(stream, [stream])]
            parts = values.split([math.prod(one.shape) for one in own])
            held.update((one.name, part) for one, part in zip(own, parts))
        on_host: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
        holders = torch.tensor([one.name in held for one in self.parameters], **on_host)
        all_reduce(holders, self._averaging, self.deadline_seconds)
        found: dict[int, torch.Tensor] = {}
        for one, count in zip(self.parameters, holders.tolist()):
            if count == 0:
                continue
            values = held[one.name].clone() if one.name in held else torch.zeros(math.prod(one.shape), **on_host)
            all_reduce(values, self._averaging, self.deadline_seconds)
            found[id(one.tensor)] = values.div_(count)
        return found

    def leaves_values(self) -> bool:
        """Whether memories of this rank hold something that is still to be sent; between two steps."""
        return any(name.endswith("/residual") and bool(torch.frombuffer(bytearray(data), dtype=torch.float32).any())
                   for name, *_, data in self.save() if len(data) > 0)

    def start(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        self._engine.start(self._place_of(parameter), gradient, self._streams.note(gradient))

    def _place_of(self, parameter: nn.Parameter) -> int:
        place = self._places.get(id(parameter))
        if place is None:
            raise ContractError(
                f"DistributedDataParallel averages a parameter of shape {list(parameter.shape)} that was frozen when "
                "compress was called, beside sparse ones; freeze it after compress"
            )
        return place

    def may_bypass(self) -> bool:
        """Begins a step, and says whether another all-reduce may form its means (thinwire/auto_codec.h); the same on all
        ranks."""
        return self._bypass_is_possible and self._engine.may_bypass()

    def start_outside(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        """Of a step that bypasses the exchange."""
        self._engine.start_outside(self._place_of(parameter), gradient)

    def finish_outside(self) -> dict[str, Any]:
        """Ends it, once gradients are sums over all ranks; its report."""
        return self._engine.finish_outside()

    def abandon_outside(self, why: str) -> None:
        """Its sums failed here: tells the other ranks."""
        self._engine.abandon_outside(why)

    def wait(self) -> dict[str, Any]:
        """Ends the step; its report."""
        try:
            with self._streams.wait():
                return self._engine.wait()
        except TimeoutError as error:
            names = [parameter.name for parameter in self.parameters]
            raise TimeoutError(f"{error}; there is no mean of {listed(names)}") from None

    def change(self, codec: str, rules: Mapping[str, Mapping[str, str]], method: str, steps_per_epoch: int) -> None:
        """From the next step on, with all that is remembered. Called by all ranks; where it fails
        nothing changes.

        Args:
            steps_per_epoch: 0 leaves it as it is.
        """
        asked: _Options = engine_options(self.parameters, {
            **self.options, "codec": codec, "rules": rules, "method": method,
            "steps_per_epoch": steps_per_epoch or self.settings["steps_per_epoch"]})
        memories_asked = _memories_of(asked, None)
        if self._with_momentum is not None:
            # Before a mistake is found in it, which one rank alone may have made. What a rank measures is its own affair.
            self.agree("change", [f"{key} {value}" for key, value in asked.items() if key != "norms"])
            asked = _as_asked(asked, self._with_momentum(asked))
        self._engine.change(dict(asked))
        self.memories_asked = memories_asked

    def save(self) -> _Arrays:
        """What this rank remembers."""
        return self._engine.save()

    def load(self, saved: Sequence[_Arrays], step: int) -> None:
        """Goes on at `step` with what old ranks saved. Called by all ranks."""
        self._engine.load(saved, step)


def _memories_of(options: _Options, changed: Optional[_Options]) -> list[str]:
    """Those asked for by the codec and by each rule; of rules that a change brought, what the codec's option says."""
    first = str(options["feedback"])
    return [first, *(first if changed else str(rule["feedback"]) for rule in options["rules"])]


def _as_asked(asked: _Options, placed: _Options) -> dict[str, Any]:
    """Options of a change in which a memory that is named has its momentum, and "auto" stays: it is the one that holds the
    momentum already."""
    def one(before: _Options, after: _Options) -> str:
        return str((before if before["feedback"] == "auto" else after)["feedback"])

    rules = [{**after, "feedback": one(before, after)} for before, after in zip(asked["rules"], placed["rules"])]
    return {**placed, "feedback": one(asked, placed), "rules": rules}


def engine_options(parameters: Sequence[Parameter], options: _Options) -> dict[str, Any]:
    """Those of `compress` as the engine takes them. What a rule does not say it has from the
    others."""
    usual = {key: options[key] for key in ("feedback", "method", "grouping")}
    rules = {pattern: {**usual, **settings} for pattern, settings in options["rules"].items()}
    return {**options, "rules": by_plain_names(parameters, rules)}
