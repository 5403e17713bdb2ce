#!/usr/bin/env python3
"""Measures small checkpoints: size, time, and the test error after restores, against exact checkpoints.

usage: small_checkpoints.py [--program build/thinwire] [--data DIR] [--work FOLDER] [--page FILE] [--kept FILE] [--steps N...]
           [--seeds N...] [--settings NAME...] [--restores N...] [--commit ID] [--table-only]

Each run trains the demo recipe with constant learning rate. A run of k restores is cut into k + 1 parts of equal length; each part
but the first is resumed from the checkpoint of the part before. A run makes a checkpoint every 22 steps. Exact checkpoints are
not restored: a run resumed from them has the bits of one that never stopped. The results of each run
are kept in docs/results/runs/small-checkpoints.jsonl. Runs that are kept there, or lie finished in FOLDER, are not made again.
The page shows all that are kept. A cell is empty where nothing was run.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import kept_runs
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
SAVED = ("bytes", "exact_bytes", "loss", "exact_loss", "follows", "trials", "seconds")  # what is kept of a small checkpoint


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


def run(options, setting, steps, restores, seed) -> dict:
    """What is kept of the run. All settings are in its folder's name: a run with others is not taken for this one."""
    compress = VARIANTS[setting]
    name = compress.translate(str.maketrans(":=,", "---"))
    out = pathlib.Path(options.work) / f"{name}-every{PERIOD}-steps{steps}-restores{restores}-seed{seed}"
    parts = restores + 1
    for part in range(1, parts + 1):
        end = steps * part // parts
        if (out / f"checkpoint-{end:010}").exists():
            continue
        train(options, out, compress, end, seed, resume=part > 1)
    summary = json.loads((out / "summary.json").read_text())
    progress = [json.loads((folder / "progress.json").read_text()) for folder in sorted(out.glob("checkpoint-*"))]
    saves = [{key: p["small"][key] for key in SAVED} for p in progress if "small" in p]
    return {"setting": setting, "steps": steps, "restores": restores, "seed": seed, "error": summary["final_test_error"],
            "saves": saves, "processor": summary["processor"], "cores": summary["cores"], "commit": options.commit}


def spread(values) -> str:
    values = [100 * value for value in values]
    text = f"{statistics.mean(values):.2f}" if values else ""
    return text + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def size_row(setting: str, steps: int, saves: list[dict]) -> str:
    ratios = [save["exact_bytes"] / save["bytes"] for save in saves]
    mean = lambda values: f"{statistics.mean(values):.1f}" if values else "-"
    total = sum(save["exact_bytes"] for save in saves) / sum(save["bytes"] for save in saves)
    rise = max(save["loss"] / save["exact_loss"] - 1 for save in saves)
    return (f"| {setting} | {steps:,} | {mean([r for r, s in zip(ratios, saves) if s['follows'] == 0])} | "
            f"{mean([r for r, s in zip(ratios, saves) if s['follows'] > 0])} | {total:.1f} | {max(ratios):.1f} | "
            f"{100 * rise:.2f} % | {mean([save['trials'] for save in saves])} | "
            f"{statistics.mean(save['seconds'] for save in saves):.2f} |")


def tables(runs: list[dict]) -> tuple[list[str], list[str], list[str]]:
    """Rows of sizes, the head of the table of errors, and its rows."""
    restores = sorted({one["restores"] for one in runs})
    sizes, errors = [], []
    for steps in sorted({one["steps"] for one in runs}):
        for setting in VARIANTS:
            mine = [one for one in runs if one["setting"] == setting and one["steps"] == steps]
            if not mine:
                continue
            saves = [save for one in mine if one["restores"] == 0 for save in one["saves"]]
            if saves:
                sizes.append(size_row(setting, steps, saves))
            ended = [spread([one["error"] for one in mine if one["restores"] == (0 if setting == "exact" else k)])
                     for k in restores]
            seeds = len({one["seed"] for one in mine})
            errors.append(f"| {setting} | {steps:,} | {seeds} | " + " | ".join(ended) + " |")
    head = [f"| setting | steps | seeds | {' | '.join(map(str, restores))} |", "| --- |" + " ---: |" * (2 + len(restores))]
    return sizes, head, errors


def page_of(runs: list[dict], kept: str) -> list[str]:
    sizes, head, errors = tables(runs)
    return f"""# Small checkpoints

How small checkpoints are, what they cost, and what restoring them does to the error
([small-checkpoints.md](../small-checkpoints.md)). The demo recipe (Fashion-MNIST, `cnn-mnist`, batch 128, momentum 0.9,
uncompressed exchange, two workers) at a constant learning rate of 0.02, a checkpoint every {PERIOD} steps. The tolerance is a share of the
loss on the first 1000 of 2000 held-out samples; the test error is of 5000 test samples.

Size: bytes of the weights (fp32) divided by bytes of the file, mean over the checkpoints of the runs without restores.

| setting | steps | files that stand alone | files of changes | all bytes | largest ratio | largest rise of the loss | settings tried | seconds |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{chr(10).join(sizes)}

Seconds are those of a checkpoint: measuring settings and coding, on rank 0.

Test error in per cent at the end, after so many restores at equal distances (± standard deviation over seeds):

{chr(10).join(head + errors)}

The paper claims up to 39 times, and up to ten restores with negligible effect on accuracy. The ratios above are those of
weights; whether the paper's counts more is not known here. The optimiser's state is as large as the weights and stays exact unless the setting says otherwise.

Exact checkpoints give the bits of a run without restores. So the rows "exact" were run without restores only; their other cells repeat that figure.

Command: `tools/small_checkpoints.py --data DIR`, which runs all of {', '.join(f'`--{name}`' for name in ('steps', 'settings', 'restores', 'seeds'))}; they choose some. {results_page.machines(runs)}.
{results_page.commits(runs)} (each run's own is in `{kept}`). Other work shared the cores.
""".splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/thinwire")
    parser.add_argument("--data", default="data")
    parser.add_argument("--work", default="out/small-checkpoints")
    parser.add_argument("--page", type=pathlib.Path, default=pathlib.Path("docs/results/small-checkpoints.md"))
    parser.add_argument("--kept", type=pathlib.Path, default=kept_runs.FOLDER / "small-checkpoints.jsonl")
    parser.add_argument("--steps", type=int, nargs="+", default=[330, 1320], help="divisible by 1, 2, 6 and 11 parts")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--settings", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--restores", nargs="+", type=int, default=[0, 1, 5, 10])
    parser.add_argument("--commit", default=results_page.commit(), help="that the program was built from")
    parser.add_argument("--table-only", action="store_true")
    options = parser.parse_args()
    for steps in [] if options.table_only else options.steps:
        for setting in options.settings:
            for seed in options.seeds:
                for restores in options.restores if setting != "exact" else [0]:
                    name = f"{setting}, {steps} steps, {restores} restores, seed {seed}"
                    if name in kept_runs.read(options.kept):
                        continue
                    found = run(options, setting, steps, restores, seed)
                    kept_runs.put(options.kept, name, found)
                    print(f"{name}: error {100 * found['error']:.2f} %", flush=True)
    runs = list(kept_runs.read(options.kept).values())
    if not runs:
        sys.exit(f"{options.kept}: no results are kept")
    results_page.write(options.page, page_of(runs, f"runs/{options.kept.name}"))


if __name__ == "__main__":
    sys.exit(main())
