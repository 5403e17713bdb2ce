#!/usr/bin/env python3
"""Compares what `thinwire plan` predicts with steps that are measured over links of several rates.

    sudo lab/check_plan.py lab/recipes/mlp-10m.toml recipes/sidco-resnet20.toml --data DIR --page docs/results/plan.md
    sudo lab/compare_auto.py recipes/sidco-resnet20.toml --data DIR --kept DIR --autos none
    lab/check_plan.py recipes/sidco-resnet20.toml --data DIR --kept DIR --turns

Two ranks have a core each, which computation and exchange share. More ranks (--ranks) share cores: then the plan is told
computation that takes as many times longer, but not coding, so that only links that are slow are a fair test. Predictions
come first: the program measures computation and codecs with a single thread. Then every cell is measured as
compare_training.py does, over shaped links (thin_links.py), or between threads where the rate is none. What was measured
is kept in --kept, a line of JSON each, and not measured again while it is there. Run it on a quiet machine: two ranks need
both of its cores.
With --turns the cells are those of compare_auto.py (--autos none), whose codecs took turns in one run of each recipe and
rate. The plan then has the computation of these steps: a machine that others use is faster in some minutes.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))
import results_page  # noqa: E402

from compare_training import Kept, seconds_per_step, train  # noqa: E402

CODECS = ("fp32", "fp16", "int8", "topk:density=0.01")
KEPT = ROOT / "docs/results/runs/plan"
NEAR = 0.15  # predictions that are farther off than this share of the measured time are counted as wrong


def plan_command(options, recipe: pathlib.Path, rate: str) -> list[str]:
    command = [options.program, "plan", str(recipe), "--json", "--ranks", str(options.ranks), "--cores", "1", "--set",
               "run.threads=1", "--link", rate if rate == "none" else f"{rate},{options.latency}",
               "--codecs", ";".join(codec for codec in options.codecs if codec != "fp32")]
    for one in options.sets:
        command += ["--set", one]
    for name in ("data", "costs"):
        if getattr(options, name):
            command += [f"--{name}", getattr(options, name)]
    if options.step_seconds:
        command += ["--step-seconds", str(options.step_seconds)]
    return command


def predicted(options, recipe: pathlib.Path, rate: str) -> dict[str, dict]:
    """Rows of the plan by codec."""
    done = subprocess.run(plan_command(options, recipe, rate), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"check_plan: {recipe} at {rate}: {done.stderr[-2000:]}")
    return {row["codec"]: row for row in json.loads(done.stdout)["codecs"]}


def measured(options, kept: Kept, rate: str, codec: str) -> list[float]:
    """Seconds per step of every round, of the recipe that kept_of was told."""
    times = []
    for number in range(options.rounds):
        of = ("time", codec, rate, number)
        if not kept.get(*of):
            steps = train(options, codec, options.timed_steps, None if rate == "none" else rate)
            kept.put(*of, seconds=seconds_per_step(steps))
        times.append(kept.get(*of)["seconds"])
    return times


def turns_of(kept: Kept, rate: str) -> tuple[dict[str, list[float]], float | None]:
    """The quartiles of a step by codec, as compare_auto.py measured them, and the computation of the same steps."""
    rows = [row for of, row in kept.rows.items() if of[:2] == ("turns", rate)]
    if not rows:
        sys.exit(f"check_plan: {kept.path}: compare_auto.py measured nothing at {rate}")
    last = rows[-1]
    found = dict(zip(last["of"][3:], zip(last["low"], last["seconds"], last["high"])))
    times = {codec: list(times) for codec, times in found.items() if "\t" not in codec and "," not in codec}
    return times, last.get("processor")


def computation_of(ranks: int, processor: float) -> float:
    """How long a rank computes that needs so much of a processor's time, where several ranks share a core."""
    return processor * max(1, ranks / results_page.cores())


def rows_of(cells: list[tuple[str, str, str, dict, list[float]]]) -> list[str]:
    """The table, and how many cells are near. A cell: recipe, rate, codec, row of the plan, measured seconds."""
    lines = ["| recipe | link | codec | predicted ms | measured ms | predicted / measured | limited by |",
             "| --- | --- | --- | ---: | ---: | ---: | --- |"]
    near = 0
    for recipe, rate, codec, row, times in cells:
        middle = statistics.median(times)
        share = row["seconds"] / middle
        near += abs(share - 1) <= NEAR
        lines.append(f"| {recipe} | {rate} | `{codec}` | {1e3 * row['seconds']:,.1f} | {1e3 * middle:,.1f} "
                     f"({1e3 * min(times):,.1f} to {1e3 * max(times):,.1f}) | {share:.2f} | {row['limit']} |")
    return [*lines, "", f"{near} of {len(cells)} cells are within {100 * NEAR:.0f} % of the measured time."]


def kept_text(options) -> str:
    folder = options.kept.resolve()
    if folder == KEPT:
        return ""
    return f" --kept {folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder}"


def cores_text(ranks: int) -> str:
    cores = results_page.cores()
    if ranks <= cores:
        return "Ranks have a core each, which computation and exchange share."
    return f"{ranks} ranks share {cores} cores: the plan is told {ranks / cores:g} times the computation, and the coding of a rank that has a core."


def page_of(options, lines: list[str]) -> list[str]:
    how = ("Codecs took turns in one run for each recipe and link (`lab/compare_auto.py --autos none`). Measured times are medians, with quartiles. "
           "Computation is what the training thread used of its core in these runs."
           if options.turns else f"Measured times are medians of {options.rounds} runs, with the least and the most. "
                "The plan measures computation, too, in minutes of its own.")
    return [
        "# Predicted and measured steps", "",
        f"What `thinwire plan` predicts for a step of {options.ranks} ranks, beside steps that were measured over shaped links, or between threads",
        f"where the link is `none`. {cores_text(options.ranks)} The plan measures codecs with one thread, without an exchange.",
        how, "",
        f"Command: `lab/check_plan.py {' '.join(str(recipe) for recipe in options.recipes)}"
        f"{f' --ranks {options.ranks}' if options.ranks != 2 else ''}{' --turns' if options.turns else ''}{kept_text(options)}{''.join(f' --set {one}' for one in options.sets)} --rates {','.join(options.rates)} --data DIR`. "
        f"Processor: {results_page.processor()}, {results_page.cores()} cores. Commit: {results_page.commit()}.", "", *lines, "",
        "`tools/plot_plan.py` draws the table; the grey band is 15 % around equality:", "",
        "![predicted against measured steps](plots/plan.svg)", ""]


def add_cell_options(parser: argparse.ArgumentParser, rates: str, rounds: int) -> None:
    """What a cell is measured with, here and in compare_auto.py, which share the file of --kept."""
    parser.add_argument("recipes", nargs="+", type=pathlib.Path)
    parser.add_argument("--data")
    parser.add_argument("--program", default=str(ROOT / "build/thinwire"))
    parser.add_argument("--rates", default=rates.split(","), type=lambda text: text.split(","))
    parser.add_argument("--ranks", type=int, default=2, help="each on a host of its own; its cells need a --kept of their own")
    parser.add_argument("--timed-steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--kept", type=pathlib.Path, default=KEPT)
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE", help="changes the recipes")
    parser.add_argument("--page", type=pathlib.Path)


def kept_of(options, recipe: pathlib.Path) -> Kept:
    """What was measured of a recipe, which `measured` trains from here on."""
    options.recipe = recipe
    options.settings = dict(one.split("=", 1) for one in options.sets)
    options.workers, options.lab = options.ranks, ["--hosts", str(options.ranks)]
    options.momentum = tomllib.loads(recipe.read_text())["optimizer"].get("momentum", 0)
    options.kept.mkdir(parents=True, exist_ok=True)
    return Kept(options.kept / f"{recipe.stem}.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_cell_options(parser, rates="none,1gbit,100mbit", rounds=3)
    parser.add_argument("--codecs", default=list(CODECS), type=lambda text: text.split(";"))
    parser.add_argument("--latency", default="50us", help="of one way between two hosts of the lab")
    parser.add_argument("--step-seconds", type=float, help="computation, if it is not to be measured")
    parser.add_argument("--costs", help="file of codecs' costs, as for thinwire plan")
    parser.add_argument("--turns", action="store_true", help="take what compare_auto.py measured, from --kept")
    options = parser.parse_args()
    given = options.step_seconds
    cells = []
    for recipe in options.recipes:
        if options.turns:
            kept = kept_of(options, recipe)
            for rate in options.rates:
                times, compute = turns_of(kept, rate)
                options.codecs = list(times)
                options.step_seconds = given or computation_of(options.ranks, compute)
                plan = predicted(options, recipe, rate)
                cells += [(recipe.stem, rate, codec, plan[codec], times[codec]) for codec in times]
            continue
        plans = {rate: predicted(options, recipe, rate) for rate in options.rates}
        kept = kept_of(options, recipe)
        for rate, plan in plans.items():
            cells += [(recipe.stem, rate, codec, plan[codec], measured(options, kept, rate, codec))
                      for codec in options.codecs]
    lines = rows_of(cells)
    print("\n".join(lines))
    if options.page:
        results_page.write(options.page, page_of(options, lines))


if __name__ == "__main__":
    main()
