"""Where an exchange keeps memories and encoder states between steps."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from . import _core
from ._state import read_state, write_state


class Store:
    """What one rank remembers, keyed by stream: "<stream>/feedback", "<stream>/encoder".

    Give `all_reduce` the same stores step after step. Not for two threads at once (ContractError).
    """

    def __init__(self) -> None:
        self._native = _core.Store()

    def state(self) -> bytes:
        """Everything in it, in safetensors format, as the trainer's checkpoints have it."""
        return write_state(self._native.save())

    def load_state(self, states: Sequence[Any], rank: int, size: Optional[int] = None) -> None:
        """Takes what `rank` of `size` ranks gets from the states that all old ranks saved.

        Args:
            states: of the old ranks, in rank order.
            size: the new number of ranks; None: as many as there are states. When it differs, what
                is owed to the mean becomes the mean over old ranks, so that nothing is lost.

        Raises:
            BadLengthError, CorruptError: the bytes are no state.
            MismatchError: the states contradict each other, or do not fit what is here already.
                Nothing has changed.
        """
        saved = [read_state(f"state of rank {r}", state) for r, state in enumerate(states)]
        self._native.load(saved, rank, len(states) if size is None else size)

    def drop(self, key: str) -> None:
        """Forgets what lies under a key, as when a stream changes its method for good."""
        self._native.drop(key)

    def unclaimed(self) -> list[str]:
        """Keys that were loaded and not used since: a sign of another model or method."""
        return list(self._native.unclaimed())
