#!/usr/bin/env python3
"""Tells where a step's time goes when two ranks are threads of one process and have a core each.

    lab/core_time.py lab/recipes/mlp-1m.toml --data DIR --rounds 3

A core has two threads: one computes, one exchanges. The kernel tells the processor time of the second, by its name; the run
tells that of the first, and the time inside codecs. What neither thread uses of a step is idle. The last row has two runs of one
rank each, at the same time, which wait for nobody.
Run it on a quiet machine: two ranks need both of its cores.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from compare_training import codec_settings, steps_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODECS = ("fp32", "bf16", "int8", "powersgd:rank=4", "sidco:density=0.01", "topk:density=0.01",
          "topk:density=0.01 @ sparse-reduce")
THREAD = "tw-exchange"
WARM = 50  # steps that do not count for the step's time


def exchange_times(process: subprocess.Popen) -> list[float]:
    """Seconds of processor time of each exchange's thread, when it was last seen."""
    seen = {}
    while process.poll() is None:
        for task in pathlib.Path(f"/proc/{process.pid}/task").glob("*"):
            try:
                if (task / "comm").read_text().strip() == THREAD:
                    seen[task.name] = 1e-9 * int((task / "schedstat").read_text().split()[0])
            except OSError:
                pass  # it has ended since
        time.sleep(0.02)
    return list(seen.values())


def started(options, codec: str, ranks: int, out: str) -> subprocess.Popen:
    settings = {**codec_settings(codec), "train.max_steps": options.steps, "train.epochs": 1000000, "data.test_samples": 64,
                "train.batch": options.batch * ranks, "exchange.momentum": "optimizer", "run.threads": 1}
    command = [options.program, "train", str(options.recipe), "--workers", str(ranks), "--data", options.data, "--out", out]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def run(options, codec: str, apart: bool = False) -> dict[str, float]:
    """Milliseconds of a step of two ranks; of two runs of one rank each, at the same time, if they are `apart`."""
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as of_other:
        process = started(options, codec, 1 if apart else 2, out)
        other = started(options, codec, 1, of_other) if apart else None
        exchange = exchange_times(process)
        if process.returncode != 0 or not exchange or (other is not None and other.wait() != 0):
            sys.exit(f"core_time: {codec}: the run failed")
        steps = steps_of(pathlib.Path(out))
    ends = [step["seconds"] for step in steps[WARM:]]
    mean = {name: statistics.mean(step["times"][name] for step in steps) for name in steps[0]["times"]}
    row = {"step": (ends[-1] - ends[0]) / (len(ends) - 1), "computation": mean["processor"],
           "coding": mean["compress"] + mean["decompress"], "exchange": statistics.mean(exchange) / len(steps)}
    row["idle"] = row["step"] - row["computation"] - row["exchange"]
    return {name: 1e3 * seconds for name, seconds in row.items()}


def alone(options) -> dict[str, float]:
    """Milliseconds of coding in a step, as the plan has it: codecs measured by one thread, without an exchange."""
    command = [options.program, "plan", str(options.recipe), "--json", "--ranks", "2", "--cores", "1", "--link", "none", "--data",
               options.data, "--set", "run.threads=1", "--set", "exchange.momentum=optimizer", "--step-seconds", "0.005",
               "--codecs", ";".join(CODECS[1:])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"core_time: {done.stderr[-2000:]}")
    return {row["codec"]: 1e3 * (row["encode_seconds"] + row["decode_seconds"]) for row in json.loads(done.stdout)["codecs"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=pathlib.Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--program", default=str(ROOT / "build/thinwire"))
    parser.add_argument("--batch", type=int, default=64, help="samples of a rank")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each codec, which take turns")
    options = parser.parse_args()
    planned = alone(options)
    kinds = [(codec, False) for codec in CODECS] + [(CODECS[0], True)]
    rows = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind in kinds:
            rows[kind].append(run(options, *kind))
    names = ("step", "computation", "exchange", "coding", "idle")
    print("| codec | step, ms | computation | exchange's thread | of it coding | idle | coding in the plan |")
    print("| --- | " + "---: | " * (len(names) + 1))
    for (codec, apart), runs in rows.items():
        texts = []
        for name in names:
            values = [one[name] for one in runs]
            texts.append(f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})")
        name, plan = (f"`{codec}`, two runs of one rank", "") if apart else (f"`{codec}`", f"{planned[codec]:.1f}")
        print(f"| {name} | " + " | ".join(texts) + f" | {plan} |")


if __name__ == "__main__":
    main()
