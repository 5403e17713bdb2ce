"""Reads files of small checkpoints, written from the section Small checkpoints of docs/wire-format.md alone."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import math
import operator
import struct
from typing import NamedTuple, Optional

from decoder import Corrupt, Reader, require

HEAD, SUM = 20, 8
SIZES = (4, 8, 8, 1)  # of a value, by type
EXACT, HALF, CLUSTERS, CHANGES = range(4)


class Array(NamedTuple):
    kind: int
    shape: tuple[int, ...]
    data: bytes
    centres: int  # 0: exact
    numbers: list[int]


class Bits:
    """The range coder's bits."""

    def __init__(self, data: bytes):
        self.data, self.at, self.range, self.code = data, 0, 0xFFFFFFFF, 0
        for _ in range(5):
            self.widen()

    def widen(self) -> None:
        byte = self.data[self.at] if self.at < len(self.data) else 0
        self.at += 1
        self.code = (self.code << 8 | byte) & 0xFFFFFFFF

    def get(self, model: list[int]) -> int:
        zero = min(max((model[0] + model[1]) // 2, 256), 65280)
        bound = (self.range >> 16) * zero
        bit = int(self.code >= bound)
        if bit:
            self.code -= bound
            self.range -= bound
        else:
            self.range = bound
        for i, shift in enumerate((5, 7)):
            model[i] += -(model[i] >> shift) if bit else (65536 - model[i]) >> shift
        while self.range < 1 << 24:
            self.range <<= 8
            self.widen()
        return bit


def models(count: int) -> list[list[int]]:
    return [[1 << 15, 1 << 15] for _ in range(count)]


def read_alone(bits: Bits, values: int, count: int) -> list[int]:
    width = (count - 1).bit_length()
    trees, after_pruned, numbers = [models(1 << width), models(1 << width)], 0, []
    for _ in range(values):
        node = 1
        for _ in range(width):
            node = node << 1 | bits.get(trees[after_pruned][node])
        number = node - (1 << width)
        require(number < count, "no such cluster")
        after_pruned = int(number == count // 2)
        numbers.append(number)
    return numbers


def read_changes(bits: Bits, before: list[int], count: int) -> list[int]:
    changed = [models(2) for _ in range(count)]
    rises = models(count)
    further = [[models(16), models(16)] for _ in range(count)]
    last, numbers = 0, []
    for earlier in before:
        last = bits.get(changed[earlier][last])
        if not last:
            numbers.append(earlier)
            continue
        up = bits.get(rises[earlier])
        steps, most = 1, count - 1 - earlier if up else earlier
        while steps <= most and bits.get(further[earlier][up][min(steps, 16) - 1]):
            steps += 1
        require(steps <= most, "no such cluster")
        numbers.append(earlier + steps if up else earlier - steps)
    return numbers


def floats(reader: Reader, count: int) -> list[float]:
    values = list(struct.unpack(f"<{count}f", reader.take(4 * count)))
    require(all(map(math.isfinite, values)), "not finite")
    return values


def values_of(numbers: list[int], centres: list[float], kept: list[float]) -> bytes:
    half, out, left = len(centres) // 2, [], iter(kept)
    table = [None, *centres[:half], 0.0, *centres[half:], None]
    for number in numbers:
        value = table[number]
        out.append(next(left, None) if value is None else value)
    require(None not in out and next(left, None) is None, "another number of values is kept")
    return struct.pack(f"<{len(out)}f", *out)


def read_array(reader: Reader, before: dict[str, Array], name: str) -> Array:
    kind, on_resize, form, dimensions = reader.take(4)
    require(kind <= 3 and on_resize <= 3 and form <= CHANGES and dimensions <= 64, "unknown form")
    shape = tuple(reader.get("Q") for _ in range(dimensions))
    count = math.prod(shape)
    products = [*itertools.accumulate(shape, operator.mul), count * SIZES[kind]]
    require(max(shape, default=0) < 1 << 63 and max(products) < 1 << 64, "impossible shape")
    if form == EXACT:
        return Array(kind, shape, reader.take(count * SIZES[kind]), 0, [])
    require(kind == 0, "no floats")
    if form == HALF:
        upper = reader.take(2 * count)
        return Array(kind, shape, b"".join(b"\0\0" + upper[i : i + 2] for i in range(0, 2 * count, 2)), 0, [])
    size = reader.get("H")
    require(2 <= size <= 256 and size & size - 1 == 0, "impossible number of centres")
    centres = floats(reader, size)
    kept = floats(reader, reader.get("Q"))
    coded = reader.take(reader.get("Q"))
    least = 1 if form == CHANGES else (size + 2).bit_length()
    require(count * least <= len(coded) * 1423, "more values than bytes can stand for")
    bits = Bits(coded)
    if form == CHANGES:
        earlier = before.get(name)
        require(earlier is not None and earlier.centres == size and earlier.shape == shape, "no such clusters")
        numbers = read_changes(bits, earlier.numbers, size + 3)
    else:
        numbers = read_alone(bits, count, size + 3)
    require(bits.at == len(coded), "coded numbers are cut, or bytes follow")
    return Array(kind, shape, values_of(numbers, centres, kept), size, numbers)


def read_small(data: bytes, before: Optional[tuple[dict[str, Array], bytes]] = None) -> dict[str, Array]:
    """The arrays of a file by name. `before`: those of the file that it follows, and its bytes. Raises Corrupt. Does
    not check the XXH3-64."""
    require(len(data) >= HEAD + SUM, "too short")
    reader = Reader(data[:-SUM])
    require(reader.take(4) == b"TWSM", "foreign magic")
    require(reader.get("H") == 1 and reader.get("H") == 0, "another version")
    follows = reader.take(8)
    alone = follows == bytes(8)
    require(alone or (before is not None and follows == before[1][-SUM:]), "the file before it is another one")
    arrays: dict[str, Array] = {}
    for _ in range(reader.get("I")):
        try:
            name = reader.take(reader.get("H")).decode("utf-8")
        except UnicodeDecodeError:
            raise Corrupt("a name that is not UTF-8") from None
        require(name != "__metadata__" and name not in arrays, "bad name")
        arrays[name] = read_array(reader, {} if alone or before is None else before[0], name)
    require(reader.done(), "bytes are left over")
    return arrays
