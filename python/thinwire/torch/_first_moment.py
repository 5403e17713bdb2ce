"""Adam and AdamW without their first moment, where most values arrive late."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional

import torch
from torch import nn

from ..errors import BadOptionError
from ._native import first_moment_acts

_ADAMS = (torch.optim.Adam, torch.optim.AdamW)


class FirstMoment:
    """While it is attached, beta1 counts as 0 in the optimiser's steps, as long as `acts` says that the first moment
    should not act. The optimiser's groups say what they said, and may change from step to step."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter],
                 acts: Callable[[], bool]) -> None:
        self._acts = acts
        self._known = {id(parameter) for parameter in parameters}
        self._betas: list[tuple[dict[str, Any], Any]] = []  # of groups that are in a step
        self._handles = [optimizer.register_step_pre_hook(self._enter),
                         optimizer.register_step_post_hook(self._leave)]

    def detach(self) -> None:
        self._restore()
        for handle in self._handles:
            handle.remove()

    def _enter(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._restore()  # of a step that failed
        if self._acts():
            return
        for group in optimizer.param_groups:
            if any(id(parameter) in self._known for parameter in group["params"]):
                self._betas.append((group, group["betas"]))
                group["betas"] = (0.0, group["betas"][1])

    def _leave(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._restore()

    def _restore(self) -> None:
        for group, betas in self._betas:
            group["betas"] = betas
        self._betas = []


def has_first_moment(optimizer: Optional[torch.optim.Optimizer]) -> bool:
    return isinstance(optimizer, _ADAMS) and any(group["betas"][0] != 0 for group in optimizer.param_groups)


def attach_first_moment(
    optimizer: Optional[torch.optim.Optimizer],
    where: str,
    parameters: Sequence[nn.Parameter],
    settings: Callable[[], Mapping[str, Any]],
) -> Optional[FirstMoment]:
    """Attached to torch's Adam or AdamW, if `where` leaves it to the codec; else nothing.

    Args:
        where: what `compress` has as `momentum`.
        settings: the codec, memory and rules of the exchange as they are now.
    """
    if where != "auto" or not isinstance(optimizer, _ADAMS):
        return None
    known = {id(parameter) for parameter in parameters}
    for group in optimizer.param_groups:
        carried = [id(parameter) in known for parameter in group["params"] if parameter.requires_grad]
        if any(carried) and not all(carried) and not first_moment_acts(dict(settings()), where):
            raise BadOptionError(
                f"momentum: {len(carried) - sum(carried)} parameters of the optimizer are not of the model, and a group's "
                "first moment acts on all of its parameters; give them a group of their own, or momentum=\"optimizer\"")
    return FirstMoment(optimizer, parameters, lambda: first_moment_acts(dict(settings()), where))
