"""The saved state of tw.TensorParallel, which may be anything when it is read."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import CorruptError, MismatchError

_MOST = {"index": 2**31 - 1, "step": 2**48 - 1}


def read_state(state: Any) -> tuple[int, int]:
    """The index and the step.

    Raises:
        MismatchError: it is a state of something else.
        CorruptError: a number is not one that can have been saved.
    """
    if not isinstance(state, Mapping):
        raise MismatchError(f"TensorParallel: a state is a dict, not {type(state).__name__}")
    if set(state) != set(_MOST):
        raise MismatchError(f"TensorParallel: its state has the entries {sorted(_MOST)}, this one has "
                            f"{sorted(map(str, state))[:6]}")
    for name, most in _MOST.items():
        if type(state[name]) is not int or not 0 <= state[name] <= most:
            raise CorruptError(f"TensorParallel: {name} of the state is {str(state[name])[:40]}, must be a whole number "
                               f"from 0 to {most}")
    return state["index"], state["step"]
