#!/usr/bin/env python3
"""Measures steps of a pipeline in two stages, over links of several rates, with one compression after another.

    sudo lab/compare_pipeline.py recipes/mp-resnet18.toml --data DIR --page docs/results/thin-pipeline.md

Every way takes the same few steps at every rate, in rounds, so that all see the same machine. The rate
"free" is the same two hosts with a link that is faster than they are. Errors come from longer runs on
two threads, whose bits are those of the runs over links.

What was measured is kept in --kept, a line of JSON each, and not measured again while it is there.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from compare_training import Kept, seconds_per_step, spread, steps_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
FREE = "40gbit"
# name: forward, backward
WAYS = {
    "fp32": ("fp32", "fp32"),
    "fp16": ("fp16", "fp16"),
    "8 bits": ("uniform:bits=8,block=tensor", "uniform:bits=8,block=tensor"),
    "4 bits, 8 back": ("uniform:bits=4,block=tensor", "uniform:bits=8,block=tensor"),
    "4 bits": ("uniform:bits=4,block=tensor", "uniform:bits=4,block=tensor"),
    "top-k 10 %": ("topk:density=0.1", "topk:density=0.1"),
}


def command_of(options, way: str, out: str) -> list[str]:
    forward, backward = WAYS[way]
    command = [options.program, "train", str(options.recipe), "--out", out]
    settings = ["pipeline.stages=2", f"pipeline.cut={options.cut}", f"pipeline.forward={forward}",
                f"pipeline.backward={backward}", "train.checkpoint_every=0"]
    for setting in [*settings, *options.settings]:
        command += ["--set", setting]
    return command + (["--data", options.data] if options.data else [])


def run(options, what: str, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_pipeline: {what}: {done.stderr[-2000:]}")


def time_steps(options, way: str, rate: str) -> dict:
    with tempfile.TemporaryDirectory() as out:
        lab = [sys.executable, str(ROOT / "lab/thin_links.py"), "--rate",
               FREE if rate == "free" else rate, "--timeout", str(options.timeout), "--"]
        short = ["--set", f"train.max_steps={options.timed_steps}", "--set", "data.test_samples=250"]
        run(options, f"{way} at {rate}", lab + command_of(options, way, out) + short)
        steps = steps_of(pathlib.Path(out))
        boundary = steps[-1]["pipeline"]["boundaries"][0]
        return {"seconds": seconds_per_step(steps),
                "forward": boundary["forward"]["message_bytes"],
                "backward": boundary["backward"]["message_bytes"],
                "idle": statistics.median(s["pipeline"]["idle_share"] for s in steps[3:])}


def learn(options, way: str) -> dict:
    with tempfile.TemporaryDirectory() as out:
        run(options, way, command_of(options, way, out) +
            ["--workers", "2", "--set", f"train.epochs={options.epochs}"])
        summary = json.loads((pathlib.Path(out) / "summary.json").read_text())
    error = "hold_out_error" if "final_hold_out_error" in summary else "test_error"
    return {"off": summary[f"final_{error}"], "on": summary[f"final_compressed_{error}"],
            "samples": summary["samples"]}


def measure(options, kept: Kept) -> None:
    for number in range(options.rounds):
        for rate in options.rates:
            for way in options.ways:
                of = ("time", way, rate, number, options.setting)
                if not kept.get(*of):
                    kept.put(*of, **time_steps(options, way, rate))
    for way in options.ways if options.epochs else []:
        of = ("error", way, options.epochs, options.setting)
        if not kept.get(*of):
            kept.put(*of, **learn(options, way))


def table(options, kept: Kept) -> list[str]:
    def times(way, rate):
        return [kept.get("time", way, rate, n, options.setting)["seconds"]
                for n in range(options.rounds)]

    free = statistics.median(times("fp32", "free"))
    lines = ["| way | MB forward | MB back | " +
             " | ".join(f"ms at {rate} | x free fp32" for rate in options.rates) +
             " | error, compression off | on |",
             "| --- |" + " ---: |" * (2 + 2 * len(options.rates) + 2)]
    for way in options.ways:
        one = kept.get("time", way, options.rates[0], 0, options.setting)
        cells = [way, f"{one['forward'] / 1e6:.3f}", f"{one['backward'] / 1e6:.3f}"]
        for rate in options.rates:
            seconds = times(way, rate)
            cells += [spread(seconds), f"{statistics.median(seconds) / free:.2f}"]
        error = kept.get("error", way, options.epochs, options.setting)
        cells += [f"{100 * error['off']:.2f} %", f"{100 * error['on']:.2f} %"] if error else ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=pathlib.Path)
    parser.add_argument("--data")
    parser.add_argument("--program", default=str(ROOT / "build/thinwire"))
    parser.add_argument("--cut", default="group2_block2")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--ways", default=list(WAYS), type=lambda text: text.split(";"),
                        help="fp32 first; separated by semicolons")
    parser.add_argument("--rates", default="free,1gbit,100mbit", type=lambda text: text.split(","))
    parser.add_argument("--timed-steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=2, help="of the runs for errors; 0: none")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--kept", type=pathlib.Path,
                        default=ROOT / "docs/results/runs/thin-links/mp-resnet18.jsonl")
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    if options.ways[0] != "fp32" or options.rates[0] != "free" or options.timed_steps < 6:
        parser.error("--ways begins with fp32, --rates with free; --timed-steps is 6 at least")
    # What figures are kept by, besides the way.
    options.setting = " ".join([options.recipe.stem, options.cut, *options.settings])
    options.kept.parent.mkdir(parents=True, exist_ok=True)
    kept = Kept(options.kept)
    measure(options, kept)
    lines = table(options, kept)
    print("\n".join(lines))
    if options.page:
        text = options.page.read_text() if options.page.exists() else "# Pipelines over thin links\n"
        text = text.split("<!-- figures -->")[0].rstrip("\n") + "\n\n<!-- figures -->\n\n"
        options.page.write_text(text + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
