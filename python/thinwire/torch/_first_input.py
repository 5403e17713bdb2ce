"""The first input of a module's call, which may be given by its name."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
from typing import Any, Callable

from torch import nn

from ..errors import ContractError


def with_first(
    module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], change: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs of a call with the first one changed.

    Raises:
        ContractError: the call does not give it.
    """
    if given:
        return (change(given[0]), *given[1:]), named
    parameters = [one for one in inspect.signature(module.forward).parameters.values()
                  if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    if parameters:
        first = parameters[0].name
    elif len(named) == 1:  # forward takes any names
        (first,) = named
    else:
        raise ContractError(f"column: {type(module).__name__} was called with {_listed(named)}, none of which is known as its "
                            "first input; give that one by its place")
    if first not in named:
        raise ContractError(f"column: {type(module).__name__} was called without its first input '{first}'; it was given "
                            f"{_listed(named)}")
    return given, {**named, first: change(named[first])}


def _listed(named: dict[str, Any]) -> str:
    return ", ".join(repr(name) for name in named) or "nothing"
