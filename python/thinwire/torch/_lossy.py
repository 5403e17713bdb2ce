"""Warns of codecs whose losses no memory keeps."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from ..codec import Codec
from ..errors import Error


def warn_of_loss(options: Mapping[str, str], rules: Sequence[Mapping[str, str]]) -> None:
    """For a method that users call, decorated by explains_keywords: the warning names the line of their call."""
    feedback = options["feedback"]
    without = [one["codec"] for one in (options, *rules) if one.get("feedback", feedback) == "none"]
    for codec in dict.fromkeys(without):
        try:
            info = Codec(codec).info
        except Error:  # a schedule, or a mistake that the engine explains
            continue
        if not info.unbiased and not info.lossless:
            warnings.warn(
                f"codec '{codec}' is biased and has no memory: what it leaves out of gradients is lost; "
                "leave feedback at \"auto\"",
                stacklevel=4,
            )
