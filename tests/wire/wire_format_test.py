#!/usr/bin/env python3
"""Decodes every golden payload and frame with decoder.py and compares; cut payloads are refused.

usage: wire_format_test.py GOLDEN_FOLDER
"""
import math
import pathlib
import struct
import sys

from decoder import DECODERS, Corrupt, decode, read_frame


def cases(text: str):
    for block in text.split("\n\n"):
        fields = dict(line.split(" ", 1) for line in block.strip().splitlines())
        name, _, settings = fields["codec"].partition(":")
        options = dict(item.split("=", 1) for item in settings.split(",") if item)
        named = [t.split(":") for t in fields["tensors"].split()]
        options["shapes"] = [[int(n) for n in extent.split("x")] for _, _, extent in named]
        tensors = [(kind, math.prod(shape)) for (_, kind, _), shape in zip(named, options["shapes"])]
        payload = b"" if fields["payload"] == "-" else bytes.fromhex(fields["payload"])
        decoded = b""
        for item in fields["decoded"].split():
            if item.startswith("*"):
                decoded += bytes(4 * int(item[1:]))
            elif item != "-":
                decoded += bytes.fromhex(item)
        yield name, options, tensors, payload, decoded


FIELDS = ("codec", "flags", "round", "sender", "generation", "stream", "step", "place", "count")


def frame_failures(text: str):
    for number, line in enumerate(text.splitlines()):
        *fields, payload, frame = line.split()
        expected = dict(zip(FIELDS, map(int, fields)))
        want = b"" if payload == "-" else bytes.fromhex(payload)
        header, got = read_frame(bytes.fromhex(frame))
        if header != expected | {"payload_size": len(want)} or got != want:
            yield f"frame {number}: read {header}, not {expected}"


def main(folder: pathlib.Path) -> int:
    ids = [line.split() for line in (folder / "codec_ids.txt").read_text().splitlines()]
    passed, failures = 0, list(frame_failures((folder / "frames.txt").read_text()))
    for _, name in ids:
        if name not in DECODERS:
            failures.append(f"{name}: decoder.py cannot decode it; add it from docs/wire-format.md")
            continue
        for number, case in enumerate(cases((folder / f"{name}.txt").read_text())):
            _, options, tensors, payload, expected = case
            where = f"{name} case {number}"
            values = decode(name, options, tensors, payload)
            # -0.0 and 0.0 are the same value of a sum that starts at zero
            got = b"".join(struct.pack("<f", value + 0.0) for value in values)
            if got != expected:
                failures.append(f"{where}: decoded other values")
            for size in {0, len(payload) // 2, len(payload) - 1} - {-1, len(payload)}:
                try:
                    decode(name, options, tensors, payload[:size])
                    failures.append(f"{where}: {size} of {len(payload)} bytes were accepted")
                except (Corrupt, struct.error):
                    pass
            passed += 1
    print("\n".join(failures))
    print(f"{passed} passed, {len(failures)} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
