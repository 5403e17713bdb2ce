"""Options: the tables that describe them, and settings written as text."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union

from .errors import BadOptionError

OptionValue = Union[int, float, bool, str, tuple[float, ...]]


@dataclass(frozen=True)
class OptionInfo:
    """One option of a codec or memory."""

    name: str
    type: str
    """"integer", "number", "choice", "flag" (bool), "text" or "numbers" (a list of them)"""
    default: OptionValue
    min: Optional[float]
    """Smallest allowed value; None if there is no bound."""
    max: Optional[float]
    choices: tuple[str, ...]
    """The allowed values of a "choice"."""
    unit: str
    """"values", "steps", "fraction" ...; empty if it has none"""
    help: str


def option_table(rows: Iterable[Mapping[str, Any]]) -> dict[str, OptionInfo]:
    """The library's rows by name, with defaults of Python types."""
    table = {}
    for row in rows:
        fields = dict(row, choices=tuple(row["choices"]))
        fields["default"] = _from_text(row["type"], row["default"])
        table[row["name"]] = OptionInfo(**fields)
    return table


def spec_text(what: str, spec: str, options: Mapping[str, Any]) -> str:
    """Returns `name` or `name:key=value` with `options` added."""
    settings = ",".join(f"{key}={_to_text(what, key, value)}" for key, value in options.items())
    if not settings:
        return spec
    return spec + ("," if ":" in spec else ":") + settings


def _to_text(what: str, key: str, value: Any) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        text = "true" if value else "false"
    elif isinstance(value, numbers.Integral):
        text = str(int(value))
    elif isinstance(value, numbers.Real):
        text = repr(float(value))
    elif isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        text = ";".join(_to_text(what, key, item) for item in value)
    else:
        raise BadOptionError(f"{what}: option '{key}' cannot be a {type(value).__name__}")
    if "," in text:
        raise BadOptionError(f"{what}: option '{key}' is '{text}'; a comma begins the next option")
    return text


def _from_text(kind: str, text: str) -> OptionValue:
    if kind == "integer":
        return int(text)
    if kind == "number":
        return float(text)
    if kind == "flag":
        return text == "true"
    if kind == "numbers":
        return tuple(float(item) for item in text.split(";") if item)
    return text
