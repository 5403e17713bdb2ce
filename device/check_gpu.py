#!/usr/bin/env python3
"""Runs on a machine with an NVIDIA GPU what cannot run without one, and writes the results page.

    device/check_gpu.py [--largest VALUES] [--page docs/results/gpu.md] BUILD

BUILD is a build folder with the program check_gpu (`cmake --build build --target check_gpu`). Kernel texts, and codecs
with a form for the device, are run at every size, their bits are compared with the processor's, and their speed is given as a share of
the device's copy bandwidth. That of codecs includes all waits for the device and the copies of payloads. Where
compute-sanitizer is installed, the smaller sizes run under it, too. Nothing is written unless everything ran.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import collections
import json
import pathlib
import shutil
import subprocess
import sys


def nvrtc_folders() -> list[str]:
    """Of the packages nvidia-cuda-nvrtc in the path of this Python."""
    return sorted({str(library.parent) for path in sys.path if path
                   for library in pathlib.Path(path).glob("nvidia/*/lib/libnvrtc.so*")})


def page(device: dict, rows: list[dict], sanitized: str) -> str:
    sizes = sorted({row["values"] for row in rows})
    of_kernel: dict[str, list[dict]] = collections.defaultdict(list)
    for row in rows:
        of_kernel[row["kernel"]].append(row)
    largest = max(size for size in sizes if size % 10 == 0 or size == 1)
    lines = [
        "# Kernels on a GPU", "",
        f"{device['device']} ({device['architecture']}), whose own copies move {device['copy_gb_per_s']:.0f} GB/s, reads and "
        "writes together. Written by `device/check_gpu.py`.", "",
        f"Sizes from 1 to {largest:,} values, aligned and not. Compute-sanitizer: {sanitized}.", "",
        f"| kernel | runs with the processor's bits | ms at {largest:,} values | share of the copy bandwidth |",
        "| --- | --- | --- | --- |",
    ]
    for kernel, of in of_kernel.items():
        best = min((row for row in of if row["values"] == largest), key=lambda row: row["ms"])
        lines.append(f"| {kernel} | {sum(row['equal'] for row in of)} of {len(of)} | {best['ms']:.3f} | {best['share']:.0%} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--largest", type=int, default=100_000_000)
    parser.add_argument("--page", type=pathlib.Path)
    arguments = parser.parse_args()
    program = arguments.build / "check_gpu"
    if not program.exists():
        sys.exit(f"check_gpu.py: no {program}; build it: cmake --build {arguments.build} --target check_gpu")
    done = subprocess.run([program, str(arguments.largest), *nvrtc_folders()], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        return done.returncode or 2
    device, *rows = map(json.loads, done.stdout.splitlines())
    sanitized, bad = "not installed, so not run", False
    if sanitizer := shutil.which("compute-sanitizer"):
        checked = subprocess.run([sanitizer, "--error-exitcode", "9", program, "100000", *nvrtc_folders()],
                                 stdout=subprocess.PIPE, text=True)
        bad = checked.returncode != 0
        sanitized = "errors" if bad else "no errors up to 100,000 values"
    text = page(device, rows, sanitized)
    print(text)
    if arguments.page:
        arguments.page.write_text(text)
    return 1 if done.returncode or bad else 0


if __name__ == "__main__":
    sys.exit(main())
