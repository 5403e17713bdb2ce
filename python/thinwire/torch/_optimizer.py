"""What a link does with the optimiser of its parameters: where momentum and Adam's first moment
act."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import torch
from torch import nn

from ..errors import ContractError
from ._attached import take_over
from ._exchange import Exchange
from ._first_moment import (FirstMoment, first_moment_of, has_first_moment, leaving_most, leaving_to_named,
                            refuse_first_moment_twice)
from ._forgotten import Mark
from ._momentum import UnnamedOptimizer, acts_twice, coefficient_of, has_momentum, momentum_in, place, steps_as_sgd, would_move
from ._native import check_momentum_acts_once
from ._passed_by import PassedBy
from ._replaced import Replaced
from ._warn import warn_user

_Options = Mapping[str, Any]


def _none_of_each(parameters: Sequence[nn.Parameter]) -> list[tuple[float, float, bool]]:
    return [(0.0, 0.0, False)] * len(parameters)


def _warn_of_stranger(optimizer: torch.optim.Optimizer, options: _Options) -> bool:
    """Says that momentum stays where it costs accuracy, if it does: of an optimiser that thinwire does not know."""
    groups = optimizer.param_groups
    if steps_as_sgd(optimizer) or has_first_moment(optimizer) or not any(map(momentum_in, groups)):
        return False
    codecs = leaving_most(options)
    if codecs:
        warn_user(
            f"codec '{codecs[0]}' leaves most values for later steps, and the momentum of {type(optimizer).__name__} acts on "
            "the bursts in which they arrive, which costs accuracy; thinwire moves that of torch's SGD, and leaves out the "
            "first moment of Adam and AdamW; momentum=\"optimizer\" says that it is meant so; a codec that sends all values, "
            "such as int8, has no bursts")
    return bool(codecs)


def unnamed_of(exchanges: Sequence[Exchange], where: str, parameters: Sequence[nn.Parameter]) -> Optional[UnnamedOptimizer]:
    """Waits for the optimiser of these parameters, whose gradients go through these exchanges, where its momentum may do harm.

    Args:
        where: `momentum`, as `compress` takes it.
    """
    suspects, used = [], []
    for exchange in exchanges:
        in_use, settings = exchange.shapes, {**exchange.options, **exchange.settings}
        suspects += [codec for codec in leaving_most(exchange.settings_asked) if codec in in_use and where == "auto"]
        used += [{**settings, **one, "rules": []} for one in (settings, *settings["rules"]) if one["codec"] in in_use]
    if not suspects and not any(has_momentum(one) for one in used):
        return None
    return UnnamedOptimizer(suspects[0] if suspects else None, used, parameters)


class LinkedOptimizer:
    """SGD's momentum in the memories, Adam's first moment left out, or a warning where no optimiser
    was named. Keeps neither the link nor its exchange.

    Args:
        optimizer, where: as `compress` takes them; `where` is its `momentum`.
        parameters: those of the link.
        options: of the exchange that it will have, as the engine takes them.
    """

    def __init__(
        self,
        optimizer: Optional[torch.optim.Optimizer],
        where: str,
        parameters: Sequence[nn.Parameter],
        options: _Options,
    ) -> None:
        self._momentum = place(optimizer, where, parameters, options)
        self._known = {id(parameter) for parameter in parameters}
        self._first_moment: Optional[FirstMoment] = None
        self._passed_by: Optional[PassedBy] = None
        self._mark: Optional[Mark] = None
        self._replaced: Optional[Replaced] = None
        self._unnamed: Optional[UnnamedOptimizer] = None
        self._where = where
        # Not kept alive: by its parameters' hooks an optimiser keeps links between replicas.
        self._named = None if optimizer is None else weakref.ref(optimizer)
        self._is_told = False
        self._had_none = (self._momentum is None and optimizer is not None and not has_first_moment(optimizer)
                          and coefficient_of(optimizer, self._known) == 0)
        self._released = False  # memories hold no momentum any more, whatever their options say
        self._gave_back = False  # momentum that memories had held
        self.refuse_twice(options)

    @property
    def released(self) -> bool:
        return self._released

    @property
    def gave_back(self) -> bool:
        """Whether the momentum was in the memories, and is the optimiser's own again."""
        return self._gave_back

    @property
    def with_memories(self) -> Optional[Callable[[_Options], _Options]]:
        """Gives an exchange's options the memories that hold the momentum, where there is one. Raises where momentum would
        act twice. None if no optimiser was named."""
        if self._momentum is not None:
            return self._momentum.with_memories
        return None if self._named is None else self.refuse_twice

    def refuse_twice(self, options: _Options) -> _Options:
        """Returns these options of an exchange. Raises if a memory of theirs has momentum and the optimiser that was named
        has one, too, which acts on the mean."""
        optimizer = self._named() if self._named is not None else None
        if optimizer is None or self._momentum is not None or self._released:
            return options
        own = coefficient_of(optimizer, self._known)
        if has_first_moment(optimizer) and self._where == "auto":
            refuse_first_moment_twice(own, options)
        else:
            check_momentum_acts_once(dict(options), own)
        return options

    def begin(self, exchange: Exchange) -> None:
        """The link has this exchange, its first."""
        self.set_momentum(exchange)  # what is saved depends on dampening
        optimizer = self._named() if self._named is not None else None
        if optimizer is not None:
            tensors = [parameter.tensor for parameter in exchange.parameters]
            if self._where == "auto":
                self._first_moment = first_moment_of(optimizer, tensors, exchange.settings_asked)
                self._is_told = _warn_of_stranger(optimizer, exchange.settings_asked)
            self._warn_of_named_memory(optimizer, exchange)
            known = {id(tensor) for tensor in tensors}
            if self._momentum is not None:
                self._passed_by = PassedBy(known)
                self._replaced = Replaced(known, "whose momentum is in the memories", lambda: True)
            elif self._first_moment is not None:
                first_moment = self._first_moment
                self._replaced = Replaced(known, "whose first moment is left out beside this codec",
                                          lambda: not first_moment.acts)
            if isinstance(optimizer, torch.optim.Optimizer):  # others have no such hooks
                self._mark = Mark(known)
            # The momentum's hook runs a step's closure, with its exchange.
            own = [one for one in (self._momentum, self._first_moment, self._passed_by, self._replaced, self._mark)
                   if one is not None]
            take_over(optimizer, known, own)
        elif self._named is None:
            self._look_for_unnamed(exchange)

    def _look_for_unnamed(self, exchange: Exchange) -> None:
        if self._unnamed is None:
            self._unnamed = unnamed_of([exchange], self._where, [parameter.tensor for parameter in exchange.parameters])

    def set_momentum(self, exchange: Exchange, of_released: bool = False) -> None:
        """What the groups say now, for the exchange's next step. Between two steps.

        Args:
            of_released: as if the optimiser had been given back.
        """
        self._look_for_momentum_since(exchange)
        if self._momentum is not None and not of_released:
            exchange.set_momentum(self._momentum.of_each)
        elif self._released or of_released:
            exchange.set_momentum(_none_of_each)

    def _look_for_momentum_since(self, exchange: Exchange) -> None:
        """An optimiser had no momentum when it was named, and has one by now, as a scheduler gives it."""
        if not self._had_none or self._first_moment is not None:
            return
        optimizer = self._named() if self._named is not None else None
        own = 0.0 if optimizer is None else coefficient_of(optimizer, self._known)
        if optimizer is None or own == 0:
            return
        self._had_none = False
        text = acts_twice(own, exchange.settings_asked)
        codecs = leaving_most(exchange.settings_asked)
        if not text and codecs and self._where == "auto":
            text = (f"codec '{codecs[0]}' leaves most values for later steps, and the momentum acts on the bursts in which they "
                    "arrive, which costs accuracy")
        if text:
            warn_user(f"the optimizer had no momentum when compress was called, and has {own} now, which acts on the mean: {text}. "
                      "Give it a momentum before compress, which takes it over; it may change later")

    def note_exchange(self, skipped: bool) -> None:
        """An exchange has ended. The optimiser is to take a step with its means, unless it was skipped."""
        if self._momentum is not None and not skipped:
            self._momentum.note_exchange()
        if self._passed_by is not None:
            self._passed_by.note_exchange()
        if self._replaced is not None and not skipped:
            self._replaced.note_exchange()
        if self._mark is not None:
            self._mark.note_exchange()

    def look_at_means(self) -> None:
        """Behind a backward pass with an exchange, when gradients have its means."""
        if self._momentum is not None:
            self._momentum.look_at_means()

    @property
    def awaits_step(self) -> bool:
        """Whether momentum has acted in an exchange since the optimiser's last step."""
        return self._momentum is not None and self._momentum.awaits_step

    def refuse_second_exchange(self) -> None:
        if self._momentum is not None:
            self._momentum.refuse_second_exchange()

    def follow(self, exchange: Exchange) -> None:
        """The exchange has other codecs, or the link another exchange."""
        if self._first_moment is not None:
            self._first_moment.follow(exchange.settings_asked)
        elif self._named is None:
            self._look_for_unnamed(exchange)
        elif self._momentum is None and self._where == "auto" and not self._released:
            self._warn_of_momentum_left(exchange)

    def _warn_of_named_memory(self, optimizer: torch.optim.Optimizer, exchange: Exchange) -> None:
        """Says that momentum stays on the mean, where it costs accuracy, because a memory was named that has none."""
        if (self._is_told or self._where != "auto" or self._momentum is not None or coefficient_of(optimizer, self._known) == 0
                or (self._first_moment is not None and not self._first_moment.acts)):
            return
        for codec, memory in leaving_to_named(exchange.settings_asked):
            self._is_told = True
            if has_first_moment(optimizer):
                what, remedy = "first moment", "set the first of its betas to 0"
            elif steps_as_sgd(optimizer):
                what, remedy = "momentum", "name ahead or dgc without the option momentum, which then take it over"
            else:
                what, remedy = "momentum", "set it to 0"
            warn_user(
                f"codec '{codec}' leaves most values for later steps, and beside memory '{memory}' the optimizer's {what} acts "
                f"on the bursts in which they arrive, which costs accuracy: {remedy}; momentum=\"optimizer\" says that it is "
                "meant so")
            return

    def _warn_of_momentum_left(self, exchange: Exchange) -> None:
        """The place of momentum was chosen beside other codecs."""
        optimizer = self._named() if self._named is not None else None
        if optimizer is None:
            return
        elif would_move(optimizer, exchange.settings_asked):
            codecs = leaving_most(exchange.settings_asked)
            if codecs and not self._is_told:
                self._is_told = True
                warn_user(
                    f"codec '{codecs[0]}' leaves most values for later steps, and the optimizer's momentum stays on the mean "
                    "of what is sent, which costs accuracy: a change of codec does not move it. "
                    "compress(..., momentum=\"memory\") has it in front of compression with every codec, and "
                    "momentum=\"optimizer\" says that it is meant so")
        elif not self._is_told:
            self._is_told = _warn_of_stranger(optimizer, exchange.settings_asked)

    def release(self, exchange: Exchange) -> None:
        """Gives the optimiser back, with what memories hold of its momentum. Called by all ranks
        between two steps: a rank that does not is an error of all others, which change nothing."""
        if self._first_moment is None and self._momentum is None:
            return
        awaits_step = self._momentum is not None and self._momentum.has_mean()
        exchange.agree("release_optimizer", [f"gradients await the optimizer's step: {awaits_step}"])
        if awaits_step:
            raise ContractError(
                "release_optimizer: gradients were exchanged since the last step of the optimizer. Their mean has the momentum, "
                "which would act on it again in the optimizer's next step: call release_optimizer() after optimizer.step(), or "
                "after optimizer.zero_grad() if these gradients are not to be used")
        if self._momentum is not None and exchange.leaves_values():
            warn_user(
                "release_optimizer: memories hold values that were not sent. These have the momentum already, and the optimizer's "
                "own acts on them once more when they are sent: call link.change(\"fp32\") and take a step before")
        self._give_back(exchange, exchange.velocities() if self._momentum is not None else {})

    def release_as_saved(self, exchange: Exchange) -> None:
        """The link that was saved had given its optimiser back, whose own state has the momentum since then."""
        self._give_back(exchange, {})

    def _give_back(self, exchange: Exchange, velocities: Mapping[int, torch.Tensor]) -> None:
        if self._first_moment is None and self._momentum is None:
            return
        if self._first_moment is not None:
            self._first_moment.detach()
        if self._momentum is not None:
            self._momentum.give_back(velocities)
            self._gave_back = True
        if self._passed_by is not None:
            self._passed_by.detach()
        if self._replaced is not None:
            self._replaced.detach()
        self._momentum = self._first_moment = self._passed_by = self._replaced = None
        self._released = True
        self.set_momentum(exchange)

    def detach(self) -> None:
        """The optimiser acts by itself from now on; what memories hold of its momentum stays
        there."""
        for attached in (self._momentum, self._first_moment, self._passed_by, self._replaced, self._mark, self._unnamed):
            if attached is not None:
                attached.detach()
