#!/usr/bin/env python3
"""Trains examples/pytorch/fashion.py with and without codecs, over seeds, and writes a page.

    lab/compare_accuracy.py --codecs "sidco:density=0.01" --page docs/results/pytorch-accuracy.md
    lab/compare_accuracy.py --codecs "sidco:density=0.01 with --momentum optimizer" --optimizers adamw

What follows " with " are further options of the script. A codec of "none" is
DistributedDataParallel as it is, which is always run, too. Ranks are two processes on this machine,
with one thread each. What was measured is kept in --runs, a line of JSON for each run, and not
measured again while it is there. The page has all that is kept for --epochs. thinwire.torch must be
importable by --python.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import itertools
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys

from compare_training import Kept

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))
import results_page  # noqa: E402

LINE = re.compile(r"epoch (\d+): loss [\d.]+, ([\d.]+) % right(?:.* ([\d.]+) times fewer)?")
TITLES = {"sgd": "SGD, momentum 0.9", "adamw": "AdamW"}
PLAIN = "none"


def command_of(python: str, optimizer: str, codec: str, seed: int, epochs: int) -> list[str]:
    name, _, others = codec.partition(" with ")
    return [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            str(ROOT / "examples/pytorch/fashion.py"), "--codec", name, "--optimizer", optimizer,
            "--seed", str(seed), "--epochs", str(epochs), *shlex.split(others)]


def train(command: list[str], epochs: int) -> dict:
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    lines = LINE.findall(done.stdout)
    if done.returncode != 0 or len(lines) != epochs:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return {"right": [float(right) for _, right, _ in lines],
            "wire_ratio": float(lines[-1][2]) if lines[-1][2] else 1.0}


def spread(values: list[float]) -> str:
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


def table(kept: Kept, epochs: int) -> list[str]:
    """A row for each optimiser and codec, in the order in which they were first run."""
    found: dict = {optimizer: {} for optimizer in TITLES}
    for (optimizer, codec, seed, length), run in kept.rows.items():
        if length == epochs:
            found[optimizer].setdefault(codec, {})[seed] = run
    lines = ["| optimiser | codec | seeds | test error % | difference to DDP, points | fewer bytes, last step |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]
    for optimizer, of_codecs in found.items():
        for codec, of_seeds in of_codecs.items():
            base = of_codecs.get(PLAIN, {})
            pairs = [base[seed]["right"][-1] - run["right"][-1] for seed, run in of_seeds.items() if seed in base]
            ratio = statistics.mean(run["wire_ratio"] for run in of_seeds.values())
            cells = [TITLES[optimizer], "DDP" if codec == PLAIN else f"`{codec}`", str(len(of_seeds)),
                     spread([100 - run["right"][-1] for run in of_seeds.values()]),
                     spread(pairs) if pairs and codec != PLAIN else "",
                     "" if codec.startswith(PLAIN) else f"{ratio:.0f} x"]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def page(kept: Kept, epochs: int) -> list[str]:
    return [
        "# PyTorch scripts beside plain DistributedDataParallel", "",
        f"`examples/pytorch/fashion.py` on 2 ranks, {epochs} epochs of Fashion-MNIST, judged on all 10,000 test",
        "images after the last one. The script calls `tw.compress(model, codec, optimizer=optimizer)`; what follows",
        "\"with\" are further options of the script. Figures are means and standard deviations over seeds; differences",
        "are taken seed by seed. A positive difference is a loss.", "",
        "Command of each row: `lab/compare_accuracy.py --codecs CODEC --optimizers OPTIMISER --seeds SEEDS "
        f"--epochs {epochs}`. Processor: {results_page.processor()}, {results_page.cores()} cores. "
        f"{results_page.commits([run for of, run in kept.rows.items() if of[-1] == epochs])}.", "",
        *table(kept, epochs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codecs", nargs="+", default=["sidco:density=0.01"])
    parser.add_argument("--optimizers", default=[*TITLES], type=lambda text: text.split(","))
    parser.add_argument("--seeds", default=[1, 2, 3], type=lambda text: [int(seed) for seed in text.split(",")])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"))
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "docs/results/runs/pytorch-accuracy.jsonl")
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    if unknown := {*options.optimizers} - {*TITLES}:
        parser.error(f"--optimizers has {', '.join(sorted(unknown))}; known: {', '.join(TITLES)}")
    kept = Kept(options.runs)
    for seed, optimizer, codec in itertools.product(options.seeds, options.optimizers, [PLAIN, *options.codecs]):
        of = (optimizer, codec, seed, options.epochs)
        if not kept.get(*of):
            made = train(command_of(options.python, *of), options.epochs)
            kept.put(*of, **made, commit=results_page.commit())
            print(kept.get(*of), flush=True)
    if options.page:
        results_page.write(options.page, page(kept, options.epochs))


if __name__ == "__main__":
    main()
