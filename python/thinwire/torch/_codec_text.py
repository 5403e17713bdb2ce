"""Explains codecs' texts where they are written as something else than `name:option=value`."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Optional

from .._core import known_names
from ..codec import codecs
from ..errors import UnknownNameError

_CALL = re.compile(r"([\w-]+)\((.*)\)", re.S)
_UNKNOWN = re.compile(r"unknown codec '(?P<word>[^']*)'; known: (?P<names>[^;]*)(; did you mean '[^']*'\?)?")


@contextlib.contextmanager
def explained(codec: str) -> Iterator[None]:
    """Has the engine's error about an unknown codec name "auto" too, which is none of its own, and say how options are
    written. The engine raises it on all ranks, if one rank alone made the mistake, too.

    Args:
        codec: the one for all tensors without a rule; rules take no "auto".
    """
    try:
        yield
    except UnknownNameError as error:
        text = _UNKNOWN.sub(lambda found: _better(found, codec), str(error))
        raise UnknownNameError(text) from None


def _better(found: re.Match[str], codec: str) -> str:
    word, names = found["word"], found["names"].split(", ")
    if codec.startswith(word):
        names.append("auto")
    call = _CALL.fullmatch(word)
    if call and call[1] in names:
        return f"unknown codec '{word}'; options follow a colon: '{call[1]}:{call[2].replace(' ', '')}'"
    return f"unknown codec '{word}'; {known_names(word, names)}"


def with_option(codec: Any, name: str, value: Any) -> Optional[str]:
    """The codec's text with an option that was given as an argument; None where the codec has none of that name, or the text
    has it already."""
    if not isinstance(codec, str):
        return None
    known = {one.name: one.options for one in codecs()}
    if name not in known.get(codec.partition(":")[0], {}) or re.search(rf"[:,]{name}=", codec):
        return None
    return f"{codec}{',' if ':' in codec else ':'}{name}={value}"
