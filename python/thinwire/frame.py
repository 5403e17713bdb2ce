"""Frames: self-describing bytes, a header of 48 bytes in front of a payload.

The layout is in docs/wire-format.md.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

from . import _core
from ._arrays import to_bytes
from .codec import Codec
from .errors import ContractError, DTypeError

FRAME_HEADER_SIZE: int = _core.FRAME_HEADER_SIZE
"""Bytes in front of every payload."""


@dataclass(frozen=True)
class Frame:
    """The parts of a frame whose checksum was right."""

    codec_id: int
    """Wire id of the codec, `CodecInfo.id`."""
    count: int
    """Number of values in the payload."""
    payload: memoryview
    """A view of the bytes that were read, which must not change."""
    sender: int
    """Rank."""
    stream: int
    """Index in the agreed list of streams."""
    step: int
    place: int
    """First value of the payload in the stream, or in the floats of a round; a region in sparse-reduce."""
    generation: int
    """Generation of the group: grows when its members change."""
    result: bool
    """The payload is an owner's result from all ranks' contributions, not a contribution."""
    non_finite: bool
    """The sender had a NaN or infinity: there is no payload, and every rank skips the step."""

    @property
    def size(self) -> int:
        """Number of bytes of the whole frame; the next frame of a message begins there."""
        return FRAME_HEADER_SIZE + len(self.payload)


def pack(
    codec: Union[Codec, int],
    payload: Any,
    *,
    count: int,
    sender: int = 0,
    stream: int = 0,
    step: int = 0,
    place: int = 0,
    generation: int = 0,
    result: bool = False,
    non_finite: bool = False,
) -> bytes:
    """Returns the frame of a payload.

    Args:
        codec: the codec that made the payload, or its wire id.
        payload: a bytes-like object; empty with non_finite.
        count: the number of values in the payload.

    The other arguments are the fields of `Frame`. A number that does not fit its field in the
    header is a ContractError.
    """
    numbers = {
        "codec": (codec.info.id if isinstance(codec, Codec) else codec, 8),
        "sender": (sender, 16),
        "generation": (generation, 32),
        "stream": (stream, 32),
        "step": (step, 48),
        "place": (place, 48),
        "count": (count, 48),
    }
    for name, (number, bits) in numbers.items():
        if not isinstance(number, int):
            raise DTypeError(f"frame: {name} is a {type(number).__name__}, must be an int")
        if not 0 <= number < 1 << bits:
            raise ContractError(f"frame: {name} {number} does not fit {bits} bits")
    data = to_bytes("payload", payload)
    if non_finite and len(data) > 0:
        raise ContractError("frame: one that is non-finite has no payload")
    fields = {name: number for name, (number, _) in numbers.items()}
    flags = (_core.FRAME_NON_FINITE if non_finite else 0) | (_core.FRAME_RESULT if result else 0)
    return _core.pack(data, flags=flags, **fields)


def unpack(message: Any) -> Frame:
    """Reads the frame at the start of received bytes, and ignores what follows it.

    Raises:
        BadLengthError: a header or payload that is cut.
        MismatchError: another version of the format.
        CorruptError: a foreign magic, a wrong checksum, unknown flags.
    """
    view = to_bytes("message", message).toreadonly()
    fields = _core.read_header(view)
    size = fields.pop("payload_size")
    return Frame(payload=view[FRAME_HEADER_SIZE : FRAME_HEADER_SIZE + size], **fields)


def unpack_all(message: Any) -> list[Frame]:
    """Reads all frames of a message, which has no gaps. Errors are those of `unpack`."""
    view = to_bytes("message", message)
    frames = []
    while len(view) > 0:
        frames.append(unpack(view))
        view = view[frames[-1].size :]
    return frames
