"""Adam and AdamW without their first moment, where most values arrive late."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional

import torch
from torch import nn

from ..errors import BadOptionError
from ._attached import first_behind_step
from ._native import first_moment_acts, memory_owes

_ADAMS = (torch.optim.Adam, torch.optim.AdamW)
_Options = Mapping[str, Any]


class FirstMoment:
    """While it is attached, beta1 counts as 0 in the optimiser's steps, unless the first moment
    acts beside the exchange's codecs. The optimiser's groups say what they said, and may change
    from step to step.

    Args:
        options: those of the exchange.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], options: _Options
    ) -> None:
        self.known = {id(parameter) for parameter in parameters}
        self.follow(options)
        if not self._acts:
            self._groups(optimizer)
        self._betas: list[tuple[dict[str, Any], Any, Any]] = []  # of groups that are in a step, before it and in it
        self._handles: list[Any] = []

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        self._handles = [optimizer.register_step_pre_hook(self._enter),
                         first_behind_step(optimizer, self._leave),
                         # Of a step that failed.
                         optimizer.register_state_dict_pre_hook(lambda _: self._restore()),
                         optimizer.register_load_state_dict_pre_hook(lambda *_: self._restore())]

    @property
    def acts(self) -> bool:
        return self._acts

    def follow(self, options: _Options) -> None:
        """The exchange has these options from the next step on."""
        self._acts = first_moment_acts(dict(options), "auto", 0)

    def detach(self) -> None:
        self._restore()
        for handle in self._handles:
            handle.remove()

    def _groups(self, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
        """Those with parameters of the link. Raises where one has others, too."""
        found = []
        for group in optimizer.param_groups:
            carried = [id(parameter) in self.known for parameter in group["params"] if parameter.requires_grad]
            if not any(carried):
                continue
            if not all(carried):
                raise BadOptionError(
                    f"momentum: {len(carried) - sum(carried)} parameters of the optimizer are not of the model, and "
                    "a group's first moment acts on all of its parameters; give them a group of their own, or "
                    "momentum=\"optimizer\"")
            found.append(group)
        return found

    def _enter(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._restore()  # of a step that failed
        if self._acts:
            return
        for group in self._groups(optimizer):
            without = (0.0, group["betas"][1])
            self._betas.append((group, group["betas"], without))
            group["betas"] = without

    def _leave(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._restore()

    def _restore(self) -> None:
        for group, betas, without in self._betas:
            if group["betas"] is without:
                group["betas"] = betas
            elif group["betas"][0] == 0:  # what another hook has set meanwhile stays
                group["betas"] = (betas[0], group["betas"][1])
        self._betas = []


def first_moment_of(
    optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], options: _Options
) -> Optional[FirstMoment]:
    """Of torch's Adam or AdamW, nothing for other optimisers; to be attached."""
    return FirstMoment(optimizer, parameters, options) if isinstance(optimizer, _ADAMS) else None


def has_first_moment(optimizer: torch.optim.Optimizer) -> bool:
    return isinstance(optimizer, _ADAMS) and any(group["betas"][0] != 0 for group in optimizer.param_groups)


def refuse_first_moment_twice(beta1: float, options: _Options) -> None:
    """Raises where a first moment of `beta1` acts, and a memory of these options has momentum."""
    first_moment_acts(dict(options), "auto", beta1)


def leaving_most(options: _Options) -> list[str]:
    """The codecs of an exchange that leave most values for later steps: beside them Adam's first
    moment does not act, and SGD's momentum is in the memory."""
    return [settings["codec"] for settings in (options, *options["rules"])
            if not first_moment_acts({**options, **settings, "rules": []}, "auto", 0)]


def leaving_to_named(options: _Options) -> list[tuple[str, str]]:
    """The codecs of an exchange that would be `leaving_most` if no memory were named for them, each with its memory, as far
    as that sends what the codec left out, in bursts. Beside them the optimiser's momentum acts on the mean."""
    settings = [one for one in (options, *options["rules"]) if one["feedback"] != "auto" and memory_owes(one["feedback"])]
    return [(one["codec"], one["feedback"]) for one in settings
            if leaving_most({**options, **one, "feedback": "auto", "rules": []})]
