#!/usr/bin/env python3
"""Measures how much longer a step takes with a robust rule than with the mean, over links of several rates.

    sudo lab/compare_combine.py lab/recipes/mlp-1m.toml --page docs/results/robust-steps.md

Every rank has a host of its own (thin_links.py); where the rate is none, ranks are threads of one process. Each rule combines once at the owners of shards (method
scatter-reduce) and once on every rank (method gather), with codec int8 and its memory. In each of --rounds
rounds all of them train the same few steps, so that all see the same machine. Run it on a quiet machine.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import pathlib
import statistics
import sys

from compare_training import Kept, seconds_per_step, train

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))
import results_page  # noqa: E402

METHODS = ("scatter-reduce", "gather")
RULES = ("mean", "median", "trimmed_mean:f=1", "krum:f=1", "multi_krum:f=1", "geometric_median", "centred_clipping:tau=10")


def key_of(options, rate: str, method: str, rule: str, number: int) -> tuple:
    return ("combine", options.codec, options.workers, options.samples, options.timed_steps, results_page.commit(), rate,
            method, rule, number)


def measured(options, kept: Kept, rate: str, method: str, rule: str, number: int) -> float:
    of = key_of(options, rate, method, rule, number)
    if not kept.get(*of):
        options.settings = {"exchange.method": method, "exchange.combine": rule,
                            "train.batch": options.workers * options.samples, "exchange.deadline_seconds": 60}
        steps = train(options, options.codec, options.timed_steps, None if rate == "none" else rate)
        kept.put(*of, seconds=seconds_per_step(steps), bytes=statistics.mean(step["sent_bytes"] for step in steps[1:]))
    return kept.get(*of)["seconds"]


def rows_of(times: dict[tuple[str, str, str], list[float]], rates: list[str], sent: dict[str, float]) -> list[str]:
    """A row for each method and rule. times: seconds of every round by method, rule and rate."""
    lines = ["| method | rule | " + " | ".join(f"ms at {rate} | over the mean's" for rate in rates) +
             " | MB a step and rank |", "| --- | --- |" + " ---: | ---: |" * len(rates) + " ---: |"]
    for method in METHODS:
        for rule in RULES:
            cells = []
            for rate in rates:
                found, mean = times[method, rule, rate], times[method, "mean", rate]
                ratio = statistics.median(a / b for a, b in zip(found, mean))
                cells += [f"{1e3 * statistics.median(found):,.1f} ({1e3 * min(found):,.1f} to {1e3 * max(found):,.1f})",
                          "" if rule == "mean" else f"{ratio:.2f}"]
            lines.append(f"| `{method}` | `{rule}` | {' | '.join(cells)} | {sent[method, rule] / 1e6:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=pathlib.Path)
    parser.add_argument("--data")
    parser.add_argument("--program", default=str(ROOT / "build/thinwire"))
    parser.add_argument("--codec", default="int8")
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--samples", type=int, default=16, help="of a step, on each rank")
    parser.add_argument("--rates", default=["none", "1gbit", "100mbit"], type=lambda text: text.split(","))
    parser.add_argument("--timed-steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--kept", type=pathlib.Path, default=ROOT / "docs/results/runs/robust-steps")
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    options.momentum = 0
    options.lab = ["--hosts", str(options.workers)]
    options.kept.mkdir(parents=True, exist_ok=True)
    kept = Kept(options.kept / f"{options.recipe.stem}.jsonl")
    times: dict[tuple[str, str, str], list[float]] = {}
    for number in range(options.rounds):
        for rate in options.rates:
            for method in METHODS:
                for rule in RULES:
                    times.setdefault((method, rule, rate), []).append(
                        measured(options, kept, rate, method, rule, number))
    sent = {(method, rule): kept.get(*key_of(options, options.rates[-1], method, rule, 0))["bytes"]
            for method in METHODS for rule in RULES}
    lines = rows_of(times, options.rates, sent)
    print("\n".join(lines))
    if options.page:
        results_page.write(options.page, [
            "# Steps with robust rules", "", f"{options.recipe.stem}, {options.workers} ranks, each on a host of its own "
            f"(`none`: threads of one process), codec `{options.codec}`. Times are medians of {options.rounds} rounds of {options.timed_steps} steps (least and "
            "most round); the ratio is the median of the rounds' ratios to the mean by the same method. "
            f"{results_page.processor()}, {results_page.cores()} cores; commit {results_page.commit()}. Command: "
            f"`lab/compare_combine.py {' '.join(sys.argv[1:])}`.",
            "", *lines, ""])


if __name__ == "__main__":
    main()
