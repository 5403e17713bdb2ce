"""Memories: values that a message left out are kept between steps, so that they are not lost."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

import numpy as np
import numpy.typing as npt

from . import _core
from ._arrays import FloatArray, to_read, to_write
from ._state import read_state, write_state
from .codec import Encoded, Encoder
from .errors import ContractError
from .options import OptionInfo, option_table, spec_text
from .streams import Shape, TensorSpec, checked_call, make_stream


@dataclass(frozen=True)
class FeedbackInfo:
    """A memory and its options."""

    name: str
    summary: str
    paper: str
    options: dict[str, OptionInfo]


class Signal(NamedTuple):
    """The input of an encoder: `encoder.encode(*signal)`."""

    values: FloatArray
    """The values that should arrive: the gradient plus what the memory adds."""
    fresh: Optional[FloatArray]
    """This step's own part of them; None: the values."""


def feedbacks() -> tuple[FeedbackInfo, ...]:
    """Every memory of the library."""
    return tuple(
        FeedbackInfo(**dict(row, options=option_table(row["options"])))
        for row in _core.list_feedbacks()
    )


class Feedback:
    """The memory of one stream on one rank, empty at first. A step is

        payload, rest = encoder.encode_with_remainder(*memory.prepare(gradient))
        memory.commit(rest)          # or memory.rollback(), which restores the memory to the bit

    or, without copies in between,

        payload = memory.encode(encoder, gradient)
        memory.commit()              # or memory.rollback()

    Only one thread at a time may use it (ContractError).

    Args:
        name: "residual", or a spec "name:key=value"; `feedbacks()` lists them.
        shape, kind, tensors: the stream, as for `Codec.encoder`.
        options: the options of the memory.

    Raises:
        UnknownNameError, BadOptionError: as `Codec` does.
    """

    def __init__(
        self,
        name: str,
        shape: Optional[Shape] = None,
        kind: str = "other",
        *,
        tensors: Optional[Iterable[TensorSpec]] = None,
        **options: Any,
    ) -> None:
        self._spec = spec_text(f"feedback '{name}'", name, options)
        self._stream = make_stream(shape, kind, "values", tensors)
        self._native = _core.Feedback(self._spec, self._stream.name, self._stream.native())
        self._encoded: Optional[Encoded] = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._stream.shape

    @property
    def encoded(self) -> Optional[Encoded]:
        """The counts of the last `encode` of this memory; None before the first."""
        return self._encoded

    def prepare(
        self, gradient: npt.ArrayLike, *, seed: int = 0, step: int = 0, ranks: int = 1
    ) -> Signal:
        """Begins a step and returns the signal to send. A memory that adds nothing returns the gradient.

        The gradient must not change until `commit` or `rollback`.

        Args:
            ranks: the number of contributions that are averaged; clipping depends on it.

        Raises:
            NonFiniteError: gradient and memory add up to a NaN or infinity. Nothing changes.
            ContractError: the last step has not ended.
        """
        given = to_read("gradient", gradient, self.shape)
        call = checked_call(seed, step, 0, ranks)
        own_values, has_fresh, own_fresh = self._native.prepare(given, call)
        values = self._copy(self._native.copy_values) if own_values else given
        fresh = self._copy(self._native.copy_fresh) if own_fresh else given
        return Signal(values, fresh if has_fresh else None)

    def encode(
        self,
        encoder: Encoder,
        gradient: npt.ArrayLike,
        *,
        seed: int = 0,
        step: int = 0,
        salt: int = 0,
        ranks: int = 1,
    ) -> bytes:
        """Begins a step and encodes its signal. The memory keeps the remainder for `commit`.

        Make the encoder with auto_commit=False if steps may be rolled back. Arguments and errors
        are those of `Encoder.encode`; after an error the memory is as it was.
        """
        if encoder.shape != self.shape:
            raise ContractError(f"feedback: shape is {self.shape}, the encoder's {encoder.shape}")
        given = to_read("gradient", gradient, self.shape)
        call = checked_call(seed, step, salt, ranks)
        payload, counts = self._native.encode(encoder._native, given, call)
        self._encoded = Encoded(*counts)
        return payload

    def commit(
        self, rest: Optional[npt.ArrayLike] = None, *, mean: Optional[FloatArray] = None
    ) -> None:
        """The step counts.

        Args:
            rest: the remainder of `Encoder.encode_with_remainder` for the prepared values. It is not
                needed after `encode`, nor by a memory that keeps nothing.
            mean: the mean over ranks of what all of them sent; it becomes this step's mean gradient
                in place. Memories that send changes of an estimate (ef21) need it, and
                raise ContractError without it.
        """
        self._native.commit(
            None if rest is None else to_read("rest", rest, self.shape),
            None if mean is None else to_write("mean", mean, self.shape),
        )

    def rollback(self) -> None:
        """Undoes the step, to the bit. Without a step it does nothing."""
        self._native.rollback()

    def state(self) -> bytes:
        """Returns the state as of the last commit, in safetensors format."""
        return write_state(self._native.save())

    def load_state(self, state: Any) -> None:
        """Loads a saved state. A step under way is undone, as by `rollback`.

        Raises:
            BadLengthError, CorruptError: the bytes are no state.
            MismatchError: the state does not fit. The memory is as it was.
        """
        self._native.load(read_state("state", state))

    def __repr__(self) -> str:
        return f"<thinwire.Feedback {self._spec!r}, shape {self.shape}>"

    def _copy(self, copy: Any) -> FloatArray:
        out = np.empty(self.shape, np.float32)
        copy(out)
        return out
