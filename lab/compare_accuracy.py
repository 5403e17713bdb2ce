#!/usr/bin/env python3
"""Trains examples/pytorch/fashion.py with DistributedDataParallel as it is and with codecs, over seeds, and writes a page.

    lab/compare_accuracy.py --codecs sidco:density=0.01 --seeds 1,2,3 --page docs/results/pytorch-accuracy.md

Optimisers are SGD with momentum and AdamW, as the script has them; nothing but the codec is set. Ranks are processes
on this machine, with one thread each. What a finished run came to is kept in --runs (one line of JSON for each), and it is
not made again while its line is there. thinwire.torch must be importable by --python.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINE = re.compile(r"epoch (\d+): loss [\d.]+, ([\d.]+) % right(?:.* ([\d.]+) times fewer)?")
TITLES = {"sgd": "SGD, momentum 0.9", "adamw": "AdamW"}


def train(python: str, codec: str, optimizer: str, seed: int, epochs: int) -> dict:
    command = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
               str(ROOT / "examples/pytorch/fashion.py"), "--codec", codec, "--optimizer", optimizer,
               "--seed", str(seed), "--epochs", str(epochs)]
    done = subprocess.run(command, capture_output=True, text=True,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    lines = LINE.findall(done.stdout)
    if done.returncode != 0 or len(lines) != epochs:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return {"codec": codec, "optimizer": optimizer, "seed": seed, "epochs": epochs,
            "right": [float(right) for _, right, _ in lines],
            "wire_ratio": float(lines[-1][2]) if lines[-1][2] else 1.0}


def spread(values: list[float]) -> str:
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


def page(runs: list[dict], options, command: str) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                            text=True).stdout.strip()
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), "unknown")
    lines = [
        "# PyTorch scripts beside plain DistributedDataParallel", "",
        f"`examples/pytorch/fashion.py` on 2 ranks, {options.epochs} epochs of Fashion-MNIST, judged on all 10,000 test images "
        "after the last one. Nothing but the codec is set: `tw.compress(model, codec, optimizer=optimizer)`. Figures are means and "
        "standard deviations over seeds; differences are taken seed by seed. A positive difference is a loss.", "",
        f"Command: `{command}`. {cpu}, {os.cpu_count()} cores, commit {commit}.", "",
        "| optimiser | codec | seeds | test error % | difference to DDP, points | fewer bytes, last step |",
        "| --- | --- | ---: | ---: | ---: | ---: |"]
    for optimizer, codec in itertools.product(TITLES, ["none", *options.codecs]):
        own = {run["seed"]: run for run in runs if (run["optimizer"], run["codec"]) == (optimizer, codec)}
        base = {run["seed"]: run for run in runs if (run["optimizer"], run["codec"]) == (optimizer, "none")}
        errors = [100 - run["right"][-1] for run in own.values()]
        differences = [base[seed]["right"][-1] - run["right"][-1] for seed, run in own.items()]
        ratio = statistics.mean(run["wire_ratio"] for run in own.values())
        cells = [TITLES[optimizer], "DDP" if codec == "none" else f"`{codec}`", str(len(own)), spread(errors),
                 "" if codec == "none" else spread(differences), "" if codec == "none" else f"{ratio:.0f} x"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codecs", default="sidco:density=0.01", type=lambda text: text.split(";"),
                        help="separated by semicolons")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"))
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "docs/results/runs/pytorch-accuracy.jsonl")
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    runs = [json.loads(line) for line in options.runs.open()] if options.runs.exists() else []
    for seed, optimizer, codec in itertools.product(map(int, options.seeds.split(",")), TITLES,
                                                    ["none", *options.codecs]):
        wanted = {"codec": codec, "optimizer": optimizer, "seed": seed, "epochs": options.epochs}
        if any(wanted.items() <= run.items() for run in runs):
            continue
        runs.append(train(options.python, **wanted))
        with options.runs.open("a") as kept:
            kept.write(json.dumps(runs[-1]) + "\n")
        print(runs[-1], flush=True)
    if options.page:
        old = options.page.read_text() if options.page.exists() else ""
        notes = "\n## Notes" + old.split("\n## Notes", 1)[1] if "\n## Notes" in old else ""
        own = [run for run in runs if run["epochs"] == options.epochs]
        options.page.write_text(page(own, options, f"lab/compare_accuracy.py --codecs \"{';'.join(options.codecs)}\" "
                                     f"--seeds {options.seeds} --epochs {options.epochs}") + notes)


if __name__ == "__main__":
    main()
