#!/usr/bin/env python3
"""Measures factored models: test error and loss against size, by outputs and by weights, and writes docs/results/factored-models.md.

usage: factor_study.py [--program build/thinwire] [--data DIR] [--work FOLDER] [--page FILE] [--seeds N] [--keep SHARE...]
           [--rank R...] [--set KEY=VALUE...]

Each case trains a shipped recipe, once for each seed. Then thinwire factor factors the trained network at every share of the
outputs' variance and at every rank. Finished runs in FOLDER are not made again.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import results_page

# Recipes and settings, by the heading of their table.
CASES = {
    "Census data": ("factor-adult", {}),
    "Images": ("demo", {"model.name": "mlp", "exchange.codec": "fp32"}),
}


def call(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}: ended with {ended.returncode}\n{ended.stderr}")
    return ended.stdout


def train(options, recipe: str, settings: dict, seed: int) -> pathlib.Path:
    """The folder of a finished run. All settings are in its name: a run with others is not taken for this one."""
    settings = {**settings, **dict(one.split("=", 1) for one in options.set)}
    text = "".join(f"-{key.split('.')[-1]}-{value}" for key, value in settings.items())
    out = pathlib.Path(options.work) / f"{recipe}{text.replace('/', '-')}-seed{seed}"
    if not (out / "summary.json").exists():
        words = [word for key, value in {**settings, "train.seed": seed, "train.evaluate_every": 0}.items()
                 for word in ("--set", f"{key}={value}")]
        call([options.program, "train", recipe, "--workers", "2", "--out", str(out), "--data", options.data, *words])
    return out


def factor(options, run: pathlib.Path, way: tuple[str, str]) -> dict:
    return json.loads(call([options.program, "factor", str(run), "--data", options.data, "--json", *way]))


def cell(values: list[float], scale: float = 1, digits: int = 2) -> str:
    text = f"{scale * statistics.mean(values):.{digits}f}"
    return text + (f" ± {scale * statistics.stdev(values):.{digits}f}" if len(values) > 1 else "")


def ranks(reports: list[dict]) -> str:
    """The rank of each layer, "full" where it is left as it is; the smallest and the largest where seeds differ."""
    found = []
    for layers in zip(*(report["layers"] for report in reports)):
        of_layer = [layer["rank"] or min(layer["rows"], layer["columns"]) for layer in layers]
        left = all(layer["rank"] is None for layer in layers)
        few, many = min(of_layer), max(of_layer)
        found.append("full" if left else f"{few}" if few == many else f"{few}-{many}")
    return ", ".join(found)


def row(name: str, reports: list[dict]) -> str:
    """One line of a table: means over seeds."""
    smaller = [report["parameters"] / report["factored"] for report in reports]
    change = [report[way]["error"] - report["trained"]["error"] for way in ("by_outputs", "by_weights") for report in reports]
    count = len(reports)
    cells = [name, ranks(reports), f"{statistics.mean(report['factored'] for report in reports):,.0f}", cell(smaller, 1, 1)]
    for place, way in enumerate(("by_outputs", "by_weights")):
        cells += [cell(change[place * count:(place + 1) * count], 100), cell([report[way]["loss"] for report in reports], 1, 3)]
    return "| " + " | ".join(cells) + " |"


def table(options, recipe: str, settings: dict, seeds: list[int]) -> list[str]:
    runs = [train(options, recipe, settings, seed) for seed in seeds]
    ways = [(f"{100 * share:g} % of variance", ("--keep", f"{share}")) for share in options.keep]
    ways += [(f"rank {rank}", ("--rank", f"{rank}")) for rank in options.rank]
    lines, last = [], []
    for name, way in ways:
        last = [factor(options, run, way) for run in runs]
        lines.append(row(name, last))
        print(lines[-1], flush=True)
    layers = ", ".join(f"`{layer['name']}` {layer['rows']} x {layer['columns']}" for layer in last[0]["layers"])
    return [f"`{recipe}`" + "".join(f", `{key}={value}`" for key, value in settings.items())
            + f": {last[0]['parameters']:,} parameters, {last[0]['test_samples']:,} test samples. Layers: {layers}.",
            f"As trained: test error {cell([one['trained']['error'] for one in last], 100)} %, loss "
            f"{cell([one['trained']['loss'] for one in last], 1, 3)}.", "",
            "| kept | ranks of the layers | parameters | times smaller | by outputs: error, points more | loss | by weights: error, "
            "points more | loss |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |", *lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/thinwire")
    parser.add_argument("--data", default="data")
    parser.add_argument("--work", default="out/factored-models")
    parser.add_argument("--page", default="docs/results/factored-models.md")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--keep", type=float, nargs="*", default=[0.8, 0.9, 0.95, 0.99, 0.999])
    parser.add_argument("--rank", type=int, nargs="*", default=[2, 4, 8, 16, 32])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="of every recipe")
    parser.add_argument("--commit", default=results_page.commit(), help="that the program was built from")
    options = parser.parse_args()
    seeds = list(range(1, options.seeds + 1))
    lines = ["# Factored models", "",
             "How much smaller may a trained network's layers become, and is the subspace of a layer's outputs a better guide than its "
             "weights? [factored-models.md](../factored-models.md) says what `thinwire factor` does. `by outputs` is that command's "
             "method. `by weights` keeps the largest singular values of the weights instead, at the same ranks. Outputs are those of 2,048 "
             "training samples, test errors those of all test samples.", "",
             "A line either keeps a share of the variance of every layer's outputs, or one rank for all layers. Layers whose factors would "
             "not be smaller are left as they are (`full`). Parameters are those of the whole network. Points more is the test error, in "
             "percentage points, less that of the network as trained. The loss is the mean cross entropy of the test samples. Entries are "
             f"means{' ± standard deviations' if len(seeds) > 1 else ''} over {len(seeds)} seed{'s' if len(seeds) > 1 else ''}."]
    for heading, (recipe, settings) in CASES.items():
        lines += ["", f"## {heading}", "", *table(options, recipe, settings, seeds)]
    lines += ["", f"Command: `{' '.join(['tools/factor_study.py', *sys.argv[1:]])}`, on {results_page.processor()}, "
              f"{results_page.cores()} cores, commit {options.commit}."]
    results_page.write(pathlib.Path(options.page), lines)


if __name__ == "__main__":
    main()
