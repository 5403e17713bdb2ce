#!/usr/bin/env python3
"""Decodes the small checkpoints on file with small_decoder.py and compares; cut and altered files are refused.

usage: small_file_test.py FOLDER
"""
import hashlib
import json
import pathlib
import random
import struct
import sys

from decoder import Corrupt
from small_decoder import read_small


def failures_of(folder: pathlib.Path):
    recorded = json.loads((folder / "sha256.json").read_text())
    first, last = ((folder / f"model-00{place}.small").read_bytes() for place in (0, 1))
    before = read_small(first)
    if not any(array.centres for array in before.values()):
        yield "no array of the first file has clusters"
    read = {name: hashlib.sha256(array.data).hexdigest()
            for name, array in read_small(last, (before, first)).items()}
    if read != recorded:
        yield f"decoded other values of {[name for name in recorded if read.get(name) != recorded[name]]}"
    for bad in (None, (before, first[:-1] + bytes([first[-1] ^ 1]))):
        try:
            read_small(last, bad)
            yield "read without the file that it follows"
        except Corrupt:
            pass
    for size in range(0, len(first) - 8, 97):
        try:
            read_small(first[:size] + first[-8:])
            yield f"{size} of {len(first)} bytes were accepted"
        except (Corrupt, struct.error):
            pass
    draw = random.Random(7)
    for _ in range(40):  # any bytes are an error or arrays, never another exception
        raw = bytearray(first)
        raw[draw.randrange(len(raw) - 8)] ^= draw.randrange(1, 256)
        try:
            read_small(bytes(raw))
        except (Corrupt, struct.error):
            pass


def main(folder: pathlib.Path) -> int:
    failures = list(failures_of(folder))
    print("\n".join(failures) or "passed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
