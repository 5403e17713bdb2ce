"""How many threads a call of a codec or a memory may use."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import operator
from types import ModuleType

from . import _core

_engines: list[ModuleType] = [_core]  # thinwire.torch has one of its own


def set_codec_threads(count: int) -> None:
    """For arrays of half a million values and more: the caller's thread and up to count - 1 others.

    All calls of the process share them; a call that finds them busy works alone. 0 is one for each core. It is 1
    at first, which is right where each core has a process of its own. Results are the same bits for any count.
    Raises ContractError for a negative count.
    """
    for engine in _engines:
        engine.set_codec_threads(operator.index(count))


def codec_threads() -> int:
    """What set_codec_threads came to."""
    return _core.codec_threads()


def _reach(engine: ModuleType) -> None:
    """Has set_codec_threads count for another compiled engine too."""
    engine.set_codec_threads(codec_threads())
    _engines.append(engine)
