"""Saved states as safetensors, the format of the trainer's checkpoints.

    u64  size of the header, little endian
    JSON {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets": [begin, end]}}
    data

Offsets count from the start of the data; the arrays cover it without gaps or overlaps. Metadata
names, one per line, the arrays that are not simply copied when the number of ranks changes.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from ._arrays import to_bytes
from .errors import BadLengthError, CorruptError

# Name, number of the library's StateType, number of its OnResize, shape, bytes.
StateArray = tuple[str, int, int, Sequence[int], bytes]

SEAL = "thinwire/seal/xxh3"  # the array that holds the others' checksums

_MAX_HEADER = 100_000_000  # the format's own limit
_MAX_DIMENSIONS = 64  # NumPy's own limit
_DTYPES = ("F32", "F64", "I64", "U8")  # in the order of StateType
_SIZES = (4, 8, 8, 1)
_COPY = 1
# Of the other numbers of OnResize.
_MARKS = {0: "thinwire.owed_to_mean", 2: "thinwire.joined", 3: "thinwire.shared"}


def write_state(arrays: Sequence[StateArray]) -> bytes:
    """The bytes of a file that holds `arrays`, wider types first so that all are aligned."""
    ordered = sorted(arrays, key=lambda array: -_SIZES[array[1]])
    metadata = {"format": "pt"}
    for number, mark in _MARKS.items():
        names = [name for name, _, on_resize, _, _ in arrays if on_resize == number]
        if names:
            metadata[mark] = "\n".join(names)
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, dtype, _, shape, data in ordered:
        header[name] = {
            "dtype": _DTYPES[dtype],
            "shape": list(shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(array[4] for array in ordered)])


def read_state(what: str, state: Any) -> list[StateArray]:
    """The arrays in bytes that may be anything."""
    view = to_bytes(what, state)
    size = int.from_bytes(view[:8], "little")
    if len(view) < 8 or size > min(_MAX_HEADER, len(view) - 8):
        raise BadLengthError(f"{what}: truncated, or not a saved state")
    header = _parse(what, bytes(view[8 : 8 + size]))
    data = view[8 + size :]
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CorruptError(f"{what}: metadata must be texts")
    marks = {
        name: number
        for number, mark in _MARKS.items()
        for name in metadata.get(mark, "").split("\n")
    }
    entries = [(name, *_read_entry(what, name, entry)) for name, entry in header.items()]
    _check_cover(what, [(begin, end) for *_, begin, end in entries], len(data))
    return [
        (name, dtype, marks.get(name, _COPY), shape, bytes(data[begin:end]))
        for name, dtype, shape, begin, end in entries
    ]


def _parse(what: str, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise CorruptError(f"{what}: the header is not JSON") from None
    if not isinstance(header, dict):
        raise CorruptError(f"{what}: the header is not a JSON object")
    try:
        "".join(header).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        raise CorruptError(f"{what}: a name in the header is no text") from None
    return header


def _read_entry(what: str, name: str, entry: Any) -> tuple[int, tuple[int, ...], int, int]:
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise CorruptError(f"{what}: array '{name}' has no dtype, shape or data_offsets")
    if entry["dtype"] not in _DTYPES:
        raise CorruptError(f"{what}: array '{name}' has a type other than {', '.join(_DTYPES)}")
    dtype = _DTYPES.index(entry["dtype"])
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _whole(shape) or not _whole(offsets) or len(offsets) != 2:
        raise CorruptError(f"{what}: array '{name}' has no shape or offsets")
    begin, end = offsets
    if begin > end or end - begin != math.prod(shape) * _SIZES[dtype]:
        raise CorruptError(f"{what}: array '{name}' is not as long as its shape says")
    return dtype, tuple(shape), begin, end


def _whole(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= _MAX_DIMENSIONS
        and all(type(value) is int and 0 <= value < 1 << 63 for value in values)
    )


def _check_cover(what: str, ranges: list[tuple[int, int]], size: int) -> None:
    """Before anything is copied, so that many names for the same bytes cannot fill the memory."""
    covered = 0
    for begin, end in sorted(ranges):
        if begin != covered:
            raise CorruptError(f"{what}: arrays overlap or leave gaps")
        covered = end
    if covered != size:
        raise CorruptError(f"{what}: bytes follow the last array")
