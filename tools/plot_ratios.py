#!/usr/bin/env python3
"""Draws the codec ratio of each kind of layer over the course of training, as SVG.

usage: plot_ratios.py STUDY [VARIANT]

Reads docs/results/runs/STUDY.jsonl (what study.py keeps of each run), writes
docs/results/plots/ratios-STUDY.svg: a panel per case, lines per kind of layer, one per seed. Needs
Matplotlib.
"""
import pathlib
import re
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

import kept_runs

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLOURS = {"convolution": "tab:blue", "linear": "tab:orange", "recurrent": "tab:green",
           "embedding": "tab:red", "mixed": "tab:purple"}


def main() -> None:
    study = sys.argv[1]
    variant = sys.argv[2] if len(sys.argv) > 2 else "adacomp"
    cases: dict[str, list[dict]] = {}
    for name, run in kept_runs.read(kept_runs.FOLDER / f"{study}.jsonl").items():
        if case := re.fullmatch(rf"(.+)-{re.escape(variant)}-seed\d+", name):
            cases.setdefault(case[1], []).append(run)
    if not cases:
        sys.exit(f"plot_ratios.py: no runs of '{variant}' in docs/results/runs/{study}.jsonl")
    columns = min(4, len(cases))
    rows = -(-len(cases) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.2 * columns, 2.6 * rows), sharey=True,
                                squeeze=False)
    for axis in axes.flat[len(cases):]:
        axis.axis("off")
    for axis, (case, runs) in zip(axes.flat, cases.items()):
        labelled = set()
        for run in runs:
            for kind, points in run["ratios_over_time"].items():
                if kind not in COLOURS:
                    continue  # biases and norms travel as they are
                axis.plot(*zip(*points), color=COLOURS[kind], linewidth=1,
                          label=None if kind in labelled else kind)
                labelled.add(kind)
        axis.set(yscale="log", title=case, xlabel="epoch")
        axis.title.set_size(9)
        axis.grid(True, which="both", alpha=0.3)
        axis.legend(fontsize=7)
    for axis in axes[:, 0]:
        axis.set_ylabel("codec ratio")
    figure.tight_layout()
    target = ROOT / f"docs/results/plots/ratios-{study}.svg"
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Date": None})
    print(target.relative_to(ROOT))


if __name__ == "__main__":
    main()
