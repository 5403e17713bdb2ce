"""Warnings that name the line of the user's program that led to them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
import warnings

_PACKAGES = ("torch", "thinwire", "contextlib", "functools")  # whose frames may stand between a user's line and a warning


def warn_user(text: str) -> None:
    """A UserWarning at the innermost frame outside torch and thinwire, such as the line that calls `optimizer.step()`.

    A thread of autograd's has no such frame: the warning then names the line that calls this function.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_globals.get("__name__", "").partition(".")[0] in _PACKAGES:
        if frame.f_back is None:
            level = 2
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
