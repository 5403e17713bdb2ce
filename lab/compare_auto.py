#!/usr/bin/env python3
"""Compares the steps of codec auto with those of every codec that it chooses from, over links of several rates.

    sudo lab/compare_auto.py lab/recipes/mlp-10m.toml recipes/sidco-resnet20.toml --data DIR --page docs/results/auto.md
    sudo lab/compare_auto.py lab/recipes/mlp-10m.toml --data DIR --rates 1gbit --change 10mbit@20 --change 1gbit@60

Two ranks have a core each, on hosts of their own (thin_links.py). Fixed codecs are the same cells as those of
check_plan.py, whose file they share. Auto is judged by the last --settled steps of --auto-steps, when it has chosen.
With --change the link changes during the run, and what counts is how many steps later the last change of codecs was.
Run it on a quiet machine: two ranks need both of its cores.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import pathlib
import statistics
import sys
import tomllib

from check_plan import measured
from compare_training import Kept, train

ROOT = pathlib.Path(__file__).resolve().parent.parent
# As docs/choosing.md lists them.
SMALL = ("fp32", "fp16", "bf16", "int8")
ANY = (*SMALL, "powersgd:rank=4", "sidco:density=0.01", "topk:density=0.01")
CHOICES = {"auto:loss=small": SMALL, "auto:loss=any": ANY}


def largest_codec(steps: list[dict]) -> str:
    """The codec of most tensors, biases and norm parameters aside, after the last decision."""
    named = [step["codecs"] for step in steps if "codecs" in step][-1]
    compressed = {codec: len(tensors) for codec, tensors in named.items() if codec != "fp32"}
    return max(compressed, key=compressed.get) if compressed else "fp32"


def durations(steps: list[dict]) -> list[float]:
    ends = [step["seconds"] for step in steps]
    return [b - a for a, b in zip(ends, ends[1:])]


def fixed_cell(options, kept: Kept, recipe: pathlib.Path, rate: str, codec: str) -> float:
    """Seconds of a step with one codec all the time, under the same conditions as auto's where that is affordable.

    A link lets 256 KB pass at once before its rate holds. Codecs that send little live on that for many steps, so runs of
    short steps are as long as auto's, and judged by as many steps at their end.
    """
    short = statistics.median(measured(options, kept, recipe, rate, codec))
    if short * options.auto_steps > options.affordable:
        return short
    found = []
    for number in range(options.rounds):
        of = ("long", codec, rate, number)
        if not kept.get(*of):
            steps = train(options, codec, options.auto_steps, None if rate == "none" else rate)
            kept.put(*of, seconds=statistics.median(durations(steps)[-options.settled:]))
        found.append(kept.get(*of)["seconds"])
    return statistics.median(found)


def auto_cell(options, kept: Kept, rate: str, auto: str) -> list[dict]:
    """A row of every round: seconds of a settled step, its codec, the step of the last decision."""
    found = []
    for number in range(options.rounds):
        of = ("auto", auto, rate, number)
        if not kept.get(*of):
            steps = train(options, auto, options.auto_steps, None if rate == "none" else rate)
            settled = durations(steps)[-options.settled:]
            last = max((step for step, line in enumerate(steps) if "decisions" in line), default=0)
            kept.put(*of, seconds=statistics.median(settled), codec=largest_codec(steps), decided=last)
        found.append(kept.get(*of))
    return found


def rows_of(cells: list[tuple[str, str, dict[str, float], dict[str, list[dict]]]]) -> list[str]:
    """A cell: recipe, rate, seconds of the fixed codecs, rows of auto by its text."""
    lines = ["| recipe | link | dense, ms | auto | chose | ms | best it may choose | ms | auto / best | auto / dense |",
             "| --- | --- | ---: | --- | --- | ---: | --- | ---: | ---: | ---: |"]
    near = fast = count = 0
    for recipe, rate, fixed, autos in cells:
        for auto, found in autos.items():
            best = min(CHOICES[auto], key=fixed.get)
            took = statistics.median(row["seconds"] for row in found)
            near += took <= 1.05 * fixed[best]
            fast += took <= 1.02 * fixed["fp32"]
            count += 1
            chose = ", ".join(f"`{codec}`" for codec in dict.fromkeys(row["codec"] for row in found))
            lines.append(f"| {recipe} | {rate} | {1e3 * fixed['fp32']:,.1f} | `{auto}` | {chose} | {1e3 * took:,.1f} | "
                         f"`{best}` | {1e3 * fixed[best]:,.1f} | {took / fixed[best]:.2f} | "
                         f"{took / fixed['fp32']:.2f} |")
    return [*lines, "", f"Auto is within 1.05 times the best in {near} of {count} cells, and within 1.02 times dense in "
            f"{fast}."]


def after_changes(steps: list[dict]) -> list[tuple[int, int | None, str]]:
    """For each change of the link: its step, how many steps later codecs changed last before the next, the codec.

    A link has changed at a step that takes over twice, or under half, of the median of the ten before.
    """
    took = durations(steps)
    changes, i = [], 10
    while i < len(took):
        before = statistics.median(took[i - 10:i])
        if took[i] > 2 * before or took[i] < before / 2:
            changes.append(i + 1)
            i += 40  # of the same change: auto answers, steps take less again
        i += 1
    found = []
    for change, following in zip(changes, [*changes[1:], len(steps)]):
        decided = [step for step in range(change, following) if "decisions" in steps[step]]
        found.append((change, decided[-1] - change if decided else None, largest_codec(steps[:following])))
    return found


def show_changes(options, recipe: pathlib.Path, rate: str) -> None:
    options.lab = [word for change in options.change for word in ("--then", change)]
    for auto in options.autos:
        print(recipe.stem, rate, auto)
        for step, later, codec in after_changes(train(options, auto, options.auto_steps, rate)):
            print(f"  step {step}: {'no decision' if later is None else f'decided {later} steps later'}, {codec}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="+", type=pathlib.Path)
    parser.add_argument("--data")
    parser.add_argument("--program", default=str(ROOT / "build/thinwire"))
    parser.add_argument("--autos", default=list(CHOICES), type=lambda text: text.split(";"))
    parser.add_argument("--rates", default=["none", "10gbit", "1gbit", "100mbit", "10mbit"],
                        type=lambda text: text.split(","))
    parser.add_argument("--timed-steps", type=int, default=12)
    parser.add_argument("--auto-steps", type=int, default=60)
    parser.add_argument("--settled", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--affordable", type=float, default=15, help="seconds for the steps of a fixed codec")
    parser.add_argument("--change", action="append", default=[], metavar="RATE@SECONDS", help="of thin_links.py --then")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--kept", type=pathlib.Path, default=ROOT / "docs/results/runs/plan")
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    unknown = [auto for auto in options.autos if auto not in CHOICES]
    if unknown:
        parser.error(f"--autos has {', '.join(unknown)}; choices: {', '.join(CHOICES)}")
    if options.change and "none" in options.rates:
        parser.error("--change needs links that can change; give --rates without none")
    options.kept.mkdir(parents=True, exist_ok=True)
    allowed = [codec for codec in ANY if any(codec in CHOICES[auto] for auto in options.autos)]
    cells = []
    for recipe in options.recipes:
        options.recipe = recipe
        options.momentum = tomllib.loads(recipe.read_text())["optimizer"].get("momentum", 0)
        kept = Kept(options.kept / f"{recipe.stem}.jsonl")
        for rate in options.rates:
            if options.change:
                show_changes(options, recipe, rate)
                continue
            fixed = {codec: fixed_cell(options, kept, recipe, rate, codec) for codec in allowed}
            cells.append((recipe.stem, rate, fixed, {auto: auto_cell(options, kept, rate, auto)
                                                     for auto in options.autos}))
            print("\n".join(rows_of(cells[-1:])[2:-2]), file=sys.stderr)
    if cells:
        lines = rows_of(cells)
        print("\n".join(lines))
        if options.page:
            options.page.write_text("# Codec auto beside fixed codecs\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
