"""Warns of codecs whose losses no memory keeps, and of those that are sparse and send all values."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..codec import Codec
from ..errors import Error
from ._warn import warn_user


_ALL = re.compile(r"\bdensity=1(\.0*)?(?![\w.])")


def warn_of_loss(options: Mapping[str, str], rules: Sequence[Mapping[str, str]]) -> None:
    for codec in dict.fromkeys(one["codec"] for one in (options, *rules)):
        if _ALL.search(codec):
            warn_user(f"codec '{codec}': density is a fraction, and 1 sends every value with its position, which is more "
                      "bytes than fp32; 1 % is density=0.01")
    feedback = options["feedback"]
    without = [one["codec"] for one in (options, *rules) if one.get("feedback", feedback) == "none"]
    for codec in dict.fromkeys(without):
        try:
            info = Codec(codec).info
        except Error:  # a schedule, or a mistake that the engine explains
            continue
        if not info.unbiased and not info.lossless:
            warn_user(
                f"codec '{codec}' is biased and has no memory: what it leaves out of gradients is lost; "
                "leave feedback at \"auto\"")
