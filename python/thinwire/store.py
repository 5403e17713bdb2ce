"""Store: keeps memories and encoder states of an exchange between steps."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from . import _core
from ._state import read_state, write_state


class Store:
    """The state of one rank, by stream: "<stream>/feedback", "<stream>/encoder".

    Give `all_reduce` the same stores step after step. Only one thread at a time may use a store
    (ContractError).
    """

    def __init__(self) -> None:
        self._native = _core.Store()

    def state(self) -> bytes:
        """Returns all of its state, in safetensors format, as in the trainer's checkpoints."""
        return write_state(self._native.save())

    def load_state(self, states: Sequence[Any], rank: int, size: Optional[int] = None) -> None:
        """Loads the share of `rank`, one of `size` ranks, from the states that all old ranks saved.

        Args:
            states: the states of the old ranks, in rank order.
            size: the new number of ranks; None: the number of states. If it differs, each new rank
                gets the mean of what the old ranks owed, so that nothing is lost.

        Raises:
            BadLengthError, CorruptError: the bytes are no state.
            MismatchError: the states contradict each other, or do not fit what is here already.
                Nothing has changed.
        """
        saved = [read_state(f"state of rank {r}", state) for r, state in enumerate(states)]
        self._native.load(saved, rank, len(states) if size is None else size)

    def drop(self, key: str) -> None:
        """Forgets the state under a key, for example if a stream changes its method for good."""
        self._native.drop(key)

    def unclaimed(self) -> list[str]:
        """Returns keys that were loaded and not used since, a sign of another model or method."""
        return list(self._native.unclaimed())
