#!/usr/bin/env python3
"""Runs on a machine with an NVIDIA GPU what cannot run without one, and writes the results page.

    device/check_gpu.py [--largest VALUES] [--only NAME] [--commit HASH] [--page docs/results/gpu.md] BUILD

BUILD is a build folder with the program check_gpu (`cmake --build build --target check_gpu`). Kernel texts, and codecs and
memories with a form for the device, are run at every size, their bits are compared with the processor's, and their speed is
given as a share of the device's copy bandwidth. That of codecs and memories includes all waits for the device and the
copies of payloads. Where compute-sanitizer is installed, the smaller sizes run under it, too. Where this Python has
thinwire.torch and a torch with CUDA, device/check_torch.py follows: DistributedDataParallel with every codec; optimisers,
local methods, boundaries and HSDP; and steps of a GPT, over links of lab/thin_links.py where these can be made. The page says
of each part whether it ran. Nothing is written unless the
kernels ran on a GPU. It ends with 0 if what ran was right, and something of each part that this machine can run did.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

GOALS = {"int8": 0.7, "sign": 0.7}  # shares of the bandwidth
WHOLE_GOALS = {"threshold": 0.7, "topk": 0.4, "sidco": 0.4, "adacomp": 0.4}
CLOSE = 1e-3  # of the largest value: where training on the two is the same but for rounding
FLAGS = ("equal", "same_on_all_ranks", "same_bytes")  # of a row of check_torch.py
TORCH = pathlib.Path(__file__).with_name("check_torch.py")
sys.path.append(str(TORCH.parents[1] / "tools"))
import results_page  # noqa: E402


def commit_of(given: str) -> str:
    if given:
        return given
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=TORCH.parent, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def nvrtc_folders() -> list[str]:
    """Of the packages nvidia-cuda-nvrtc in the path of this Python."""
    return sorted({str(library.parent) for path in sys.path if path
                   for library in pathlib.Path(path).glob("nvidia/*/lib/libnvrtc.so*")})


def processor() -> str:
    text = pathlib.Path("/proc/cpuinfo").read_text() if pathlib.Path("/proc/cpuinfo").exists() else ""
    models = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return f"{models[0] if models else 'unknown'}, {os.cpu_count()} cores"


def table(rows: list[dict], largest: int, goals: dict[str, float]) -> list[str]:
    of_kernel: dict[str, list[dict]] = collections.defaultdict(list)
    for row in rows:
        of_kernel[row["kernel"]].append(row)
    lines = [f"| | runs with the processor's bits | ms at {largest:,} values | share of the copy bandwidth |",
             "| --- | ---: | ---: | ---: |"]
    for kernel, of in of_kernel.items():
        best = min((row for row in of if row["values"] == largest), key=lambda row: row["ms"])
        goal = next((f" (goal {goal:.0%})" for name, goal in goals.items() if kernel.startswith(name)), "")
        lines.append(f"| {kernel} | {sum(row['equal'] for row in of)} of {len(of)} | {best['ms']:.3f} | "
                     f"{best['share']:.0%}{goal} |")
    return lines


def page(device: dict, rows: list[dict], sanitized: str, torch_parts: list[str], commit: str) -> str:
    sizes = {row["values"] for row in rows}
    largest = max(size for size in sizes if size % 10 == 0 or size == 1)
    wholes = [row for row in rows if ": " in row["kernel"]]  # a codec's spec and what is done
    kernels = [row for row in rows if row not in wholes]
    lines = [
        "# What runs on a GPU", "",
        f"{device['device']} ({device['architecture']}), whose own copies move {device['copy_gb_per_s']:.0f} GB/s, reads and "
        f"writes together. Processor: {processor()}. Commit: {commit}.", "",
        f"Command: `{shlex.join(sys.argv)}`. Times are the least of 20 runs.", "",
        f"Sizes go from 1 to {largest:,} values, up to 10 million aligned and not. Compute-sanitizer: {sanitized}.", "",
        "## Kernels and memories", "",
        "The share counts the bytes that must be read and written at least. Times of kernels are the device's, those of memories "
        "the processor's, with the wait for the moments.", "",
        *table(kernels, largest, GOALS), "",
        "## Codecs as exchanges use them", "",
        "Times are the processor's. They include all waits for the device, the copy of the payload over PCIe, and for received "
        "payloads of sparse codecs other than adacomp the check by the processor. Every run has a new encoder, so that `sidco` "
        "without a fixed number of stages looks for the best number each time; in training it does so in every fifth step. The "
        "share counts all values of a sparse payload, too.", "",
        *table(wholes, largest, WHOLE_GOALS),
    ]
    return "\n".join([*lines, *torch_parts]) + "\n"


def lack_of_torch() -> str:
    """Why this Python cannot train on a GPU; empty if it can."""
    try:
        import torch

        import thinwire.torch  # noqa: F401
    except ImportError as error:
        return f"this Python lacks thinwire.torch ({error})"
    return "" if torch.cuda.is_available() else "this Python's torch finds no GPU"


def rows_of_torch(mode: str, more: list[str]) -> tuple[list[dict], bool]:
    """What it wrote, and whether it ended well."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "rows")
        done = subprocess.run([sys.executable, str(TORCH), mode, str(out), *more], check=False)
        rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return rows, done.returncode == 0


def faults_of_torch(bits: list[dict], models: list[dict], steps: list[dict]) -> list[str]:
    """What is wrong with these rows; that nothing ran on a GPU, too."""
    ran = [row for row in bits if "refused" not in row]
    faults = [f"{row['codec']} by {row['method']}: {flag} is false" for row in ran for flag in FLAGS if not row[flag]]
    faults += [f"{row['part']}: far from the processor's" for row in models
               if not row["difference"] <= CLOSE * row["largest"]]
    faults += [f"{row['part']}: ranks agree otherwise than on the processor" for row in models if not row["ranks_agree"]]
    for what, rows in (("the comparison of bits", ran), ("the models", models), ("the steps of a GPT", steps)):
        if not rows:
            faults.append(f"{what} has no rows: nothing ran")
        elif not all(row["gpu"] for row in rows):
            faults.append(f"{what} ran on the processor")
    if ran and not any(row["on_device"] for row in ran):
        faults.append("no vector was compressed on the GPU: all were staged")
    return faults


def page_of_bits(rows: list[dict]) -> list[str]:
    refused = sorted(({row["codec"] for row in rows} - {row["codec"] for row in rows if "refused" not in row}))
    rows = [row for row in rows if "refused" not in row]
    lines = ["", "## DistributedDataParallel, two ranks on one GPU", "",
             "Gradients are the same as on the processor. PCIe bytes are those of a step and rank, both ways.", "",
             "| codec | method | the processor's bits | same on all ranks | same bytes sent | vectors compressed on the GPU | "
             "PCIe bytes of uncompressed ones |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        share = (row["to_host"] + row["from_host"]) / (8 * row["values"])
        flags = ["yes" if row[key] else "**no**" for key in FLAGS]
        lines.append(f"| {row['codec']} | {row['method']} | {' | '.join(flags)} | {row['on_device']} of {row['streams']} | "
                     f"{share:.1%} |")
    if refused:
        lines += ["", f"Codecs that no method takes without options, and that have not run: {', '.join(refused)}."]
    return lines


def page_of_models(rows: list[dict]) -> list[str]:
    lines = ["", "## Models, two ranks on one GPU", "",
             "Six steps of a small network; of boundaries, the losses, otherwise the weights. The network's own arithmetic "
             "differs from the processor's by rounding.", "",
             "| part | largest difference from the processor | largest value | ranks agree as on the processor |",
             "| --- | ---: | ---: | --- |"]
    return lines + [f"| {row['part']} | {row['difference']:.1e} | {row['largest']:.2f} | "
                    f"{'yes' if row['ranks_agree'] else '**no**'} |" for row in rows]


def page_of_steps(rows: list[dict]) -> list[str]:
    parameters = max(row["parameters"] for row in rows)
    lines = ["", f"## Steps of a GPT of {parameters:,} parameters, two ranks on one GPU", "",
             "Forward and backward pass under autocast to bf16, and the exchange.", "",
             "| link | method | ms a step | MB sent | MB over PCIe |", "| --- | --- | ---: | ---: | ---: |"]
    lines += [f"| {row['link']} | {row['method']} | {row['ms']:.1f} | {row['sent_mb']:.2f} | {row['pcie_mb']:.2f} |"
              for row in rows]
    return lines


def check_torch(more: list[str]) -> tuple[list[str], bool]:
    """Lines of the page, and whether something was wrong."""
    if lack := lack_of_torch():
        return ["", f"DistributedDataParallel on CUDA tensors has not run: {lack}."], False
    bits, bits_ended = rows_of_torch("bits", more)
    models, models_ended = rows_of_torch("models", more)
    steps, steps_ended = rows_of_torch("steps", more)
    lines = page_of_bits(bits) if bits else []
    if not bits_ended:
        lines += ["", "DistributedDataParallel on CUDA tensors ended with an error."]
    lines += page_of_models(models) if models else []
    if not models_ended:
        lines += ["", "The models ended with an error."]
    lines += page_of_steps(steps) if steps else []
    if not steps_ended:
        lines += ["", "The steps of a GPT ended with an error."]
    faults = faults_of_torch(bits, models, steps)
    for fault in faults:
        print(f"check_gpu.py: {fault}", file=sys.stderr)
        lines += ["", f"**Wrong**: {fault}."]
    return lines, bool(faults) or not (bits_ended and models_ended and steps_ended)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--largest", type=int, default=100_000_000)
    parser.add_argument("--only", default="", metavar="NAME", help="kernels, codecs and memories with this in their name")
    parser.add_argument("--commit", default="", help="where this is no checkout")
    parser.add_argument("--page", type=pathlib.Path)
    arguments = parser.parse_args()
    program = arguments.build / "check_gpu"
    if not program.exists():
        sys.exit(f"check_gpu.py: no {program}; build it: cmake --build {arguments.build} --target check_gpu")
    done = subprocess.run([program, str(arguments.largest), arguments.only, *nvrtc_folders()], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        return done.returncode or 2
    device, *rows = map(json.loads, done.stdout.splitlines())
    if not rows:
        sys.exit("check_gpu.py: nothing has run on the GPU, so nothing is written")
    sanitized, bad = "not installed, so not run", False
    if sanitizer := shutil.which("compute-sanitizer"):
        checked = subprocess.run([sanitizer, "--error-exitcode", "9", program, "100000", arguments.only, *nvrtc_folders()],
                                 stdout=subprocess.PIPE, text=True)
        bad = checked.returncode != 0 or len(checked.stdout.splitlines()) < 2  # of a kernel, behind that of the device
        sanitized = "errors" if bad else "no errors up to 100,000 values"
    torch_parts, torch_bad = check_torch([])
    bad = bad or torch_bad
    text = page(device, rows, sanitized, torch_parts, commit_of(arguments.commit))
    print(text)
    if arguments.page:
        results_page.write(arguments.page, text.splitlines())
    return 1 if done.returncode or bad else 0


if __name__ == "__main__":
    sys.exit(main())
