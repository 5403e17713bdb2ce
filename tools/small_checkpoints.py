#!/usr/bin/env python3
"""Measures small checkpoints: size, time, and the test error after restores, against exact checkpoints.

usage: small_checkpoints.py [--program build/thinwire] [--data DIR] [--work FOLDER] [--page FILE] [--steps N] [--seeds N]
           [--settings NAME...] [--restores N...]

Each row trains the demo recipe with constant learning rate. A run of k restores is cut into k + 1 parts of equal length; each part
but the first is resumed from the checkpoint of the part before. A run makes a checkpoint every 22 steps. Exact checkpoints are
not restored: a run resumed from them has the bits of one that never stopped. Finished runs in FOLDER are not made again.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import results_page

PERIOD = 22  # steps between checkpoints
STEPS_PER_EPOCH = 454  # 58,000 samples in batches of 128
VARIANTS = {
    "exact": "exact",
    "tolerance 0.01": "quantised:tolerance=0.01",
    "tolerance 0.05": "quantised:tolerance=0.05",
    "tolerance 0.05, optimiser in 16 bits": "quantised:tolerance=0.05,optimizer=half",
    "tolerance 0.05, no optimiser state": "quantised:tolerance=0.05,optimizer=none",
    "tolerance 0.05, no changes coded": "quantised:tolerance=0.05,deltas=0",
}


def train(options, out, compress, steps, seed, resume):
    settings = {"train.max_steps": steps, "train.seed": seed, "train.epochs": 1000, "train.evaluate_every": 0,
                "train.checkpoint_every": PERIOD / STEPS_PER_EPOCH, "schedule.name": "constant",
                "optimizer.lr": 0.02, "data.hold_out": 2000, "exchange.codec": "fp32", "checkpoint.compress": compress,
                "checkpoint.keep": 1000, "data.test_samples": 5000}
    command = [options.program, "train", "demo", "--workers", "2", "--out", str(out), "--data", options.data]
    command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    ended = subprocess.run(command + (["--resume", str(out)] if resume else []), capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}: ended with {ended.returncode}\n{ended.stderr}")


# All settings are in the folder's name: a run with others is not taken for this one.
def run(options, compress, restores, seed):
    settings = compress.translate(str.maketrans(":=,", "---"))
    out = pathlib.Path(options.work) / f"{settings}-every{PERIOD}-steps{options.steps}-restores{restores}-seed{seed}"
    parts = restores + 1
    for part in range(1, parts + 1):
        steps = options.steps * part // parts
        if (out / f"checkpoint-{steps:010}").exists():
            continue
        train(options, out, compress, steps, seed, resume=part > 1)
    error = json.loads((out / "summary.json").read_text())["final_test_error"]
    progress = [json.loads((folder / "progress.json").read_text()) for folder in sorted(out.glob("checkpoint-*"))]
    return error, [p["small"] for p in progress if "small" in p]


def spread(values):
    values = [100 * value for value in values]
    text = f"{statistics.mean(values):.2f}"
    return text + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/thinwire")
    parser.add_argument("--data", default="data")
    parser.add_argument("--work", default="out/small-checkpoints")
    parser.add_argument("--page", default="docs/results/small-checkpoints.md")
    parser.add_argument("--steps", type=int, default=1320)  # of 128 samples: three epochs, divisible by 1, 2, 6 and 11 parts
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--settings", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--restores", nargs="+", type=int, default=[0, 1, 5, 10], help="0 among them")
    parser.add_argument("--note", default="", help="a sentence for the end of the page, such as what else the machine did")
    options = parser.parse_args()
    seeds = range(1, options.seeds + 1)
    sizes, errors = [], []
    for name in options.settings:
        compress = VARIANTS[name]
        restores = options.restores if compress != "exact" else [0]
        results = {k: [run(options, compress, k, seed) for seed in seeds] for k in restores}
        cells = [spread([error for error, _ in results[k if k in results else 0]]) for k in options.restores]
        errors.append(f"| {name} | " + " | ".join(cells) + " |")
        small = [report for _, reports in results[0] for report in reports]
        if not small:
            continue
        ratios = [report["exact_bytes"] / report["bytes"] for report in small]
        alone = [r["exact_bytes"] / r["bytes"] for r in small if r["follows"] == 0]
        follow = [r["exact_bytes"] / r["bytes"] for r in small if r["follows"] > 0]
        total = sum(r["exact_bytes"] for r in small) / sum(r["bytes"] for r in small)
        rise = max(r["loss"] / r["exact_loss"] - 1 for r in small)
        mean = lambda values: f"{statistics.mean(values):.1f}" if values else "-"
        sizes.append(f"| {name} | {mean(alone)} | {mean(follow)} | {total:.1f} | {max(ratios):.1f} | {100 * rise:.2f} % | "
                     f"{mean([r['trials'] for r in small])} | {statistics.mean(r['seconds'] for r in small):.2f} |")
        print(sizes[-1], errors[-1], sep="\n", flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    page = f"""# Small checkpoints

How small checkpoints are, what they cost, and what restoring them does to the error
([small-checkpoints.md](../small-checkpoints.md)). The demo recipe (Fashion-MNIST, `cnn-mnist`, batch 128, momentum 0.9,
uncompressed exchange, two workers) at a constant learning rate of 0.02 for {options.steps:,} steps, a checkpoint every {PERIOD} steps,
{options.seeds} seed{"s" if options.seeds > 1 else ""}. The tolerance is a share of the loss on the
first 1000 of 2000 held-out samples; the test error is of 5000 test samples.

Size: bytes of the weights (fp32) divided by bytes of the file, mean over the checkpoints of a run without restores.

| setting | files that stand alone | files of changes | all bytes | largest ratio | largest rise of the loss | settings tried | seconds |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{chr(10).join(sizes)}

Seconds are those of a checkpoint: measuring settings and coding, on rank 0.

Test error in per cent at the end, after so many restores at equal distances{" (± standard deviation over seeds)" if options.seeds > 1 else ""}:

| setting | {' | '.join(map(str, options.restores))} |
| --- |{' ---: |' * len(options.restores)}
{chr(10).join(errors)}

The paper claims up to 39 times, and up to ten restores with negligible effect on accuracy. The ratios above are those of
weights; whether the paper's counts more is not known here. The optimiser's state is as large as the weights and stays exact unless the setting says otherwise.

Exact checkpoints give the bits of a run without restores.

Command: `tools/small_checkpoints.py {' '.join(sys.argv[1:])}`, on {results_page.processor()},
{os.cpu_count()} cores, commit {commit}.{" " + options.note if options.note else ""}
"""
    results_page.write(pathlib.Path(options.page), page.splitlines())


if __name__ == "__main__":
    sys.exit(main())
