#!/usr/bin/env python3
"""Compares what codec auto chooses with every codec that it chooses from, over links of several rates.

    sudo lab/compare_auto.py lab/recipes/mlp-1m.toml recipes/sidco-resnet20.toml --data DIR --page docs/results/auto.md
    sudo lab/compare_auto.py lab/recipes/mlp-10m.toml --data DIR --rates 1gbit --change 10mbit@20 --change 1gbit@60

Two ranks have a core each, on hosts of their own (thin_links.py). First auto trains. Then a single run follows a plan
(auto:loss=LOSS,plan=FILE) in which all the codecs that it may choose, and what it chose in the end, take turns of a few
steps. So all are measured under the same conditions: steps of one codec differ between runs of a shared machine by more
than codecs do. The first steps of a turn, in which the exchange changes, do not count. Each auto has such a run of its own,
because it decides which memories codecs have, and thereby where the momentum is.
With --autos none only the codecs of loss=any take turns, for check_plan.py.
With --alone fp32 as auto runs it takes turns with fp32 as the codec of a run, which may have momentum elsewhere.
With --change the link changes during a run of auto, and the table says how many steps later auto changed codecs, and what
steps took soon afterwards and in the rest of the time.
Run it on a quiet machine: two ranks need both of its cores.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))

import results_page  # noqa: E402

from check_plan import add_cell_options, kept_of  # noqa: E402
from compare_training import Kept, computation, train  # noqa: E402

ANY = "auto:loss=any"
AUTOS = ("auto:loss=small", ANY)
NEAR, DENSE = 1.05, 1.02  # a cell is near the best up to the first, and as fast as dense up to the second
TURN = 5, 3  # steps, and how many of them do not count
TOLD = 6  # decisions after a change of the link
# Where steps are shorter than that many seconds: the first ten take some milliseconds longer than the others.
SHORT, SHORT_TURN = 0.05, (30, 10)


def choices_of(program: str, auto: str) -> list[str]:
    """What it chooses from, "fp32" first."""
    done = subprocess.run([program, "codecs", "--auto", auto.partition("loss=")[2]], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_auto: {auto}: {done.stderr[-2000:]}")
    return done.stdout.splitlines()


def last_decision(text: str) -> str:
    """Of a run's decisions.txt: the codec, then a codec and a tensor for each exception, with tabs between them."""
    return [line for line in text.splitlines()[1:] if line and line[0] != "#"][-1].partition("\t")[2]


def plan_text(decisions: list[str], segment: int, turns: int) -> str:
    """All decisions take turns of `segment` steps, after as many of the first one, in which the run warms up."""
    return "thinwire decisions 1\n" + "".join(f"{i * segment}\t{decision}\n"
                                              for i, decision in enumerate([decisions[0], *decisions * turns]))


def short_name(decision: str) -> str:
    codec, *others = decision.split("\t")
    codec = codec if len(codec) < 40 or "," not in codec else codec.partition(",")[0] + ",..."
    return f"`{codec}`" + (f", others for {len(others) // 2} tensors" if others else "")


def largest_codec(steps: list[dict]) -> str:
    """The codec of most tensors, biases and norm parameters aside, after the last decision."""
    named = [step["codecs"] for step in steps if "codecs" in step][-1]
    compressed = {codec: len(tensors) for codec, tensors in named.items() if codec != "fp32"}
    return max(compressed, key=compressed.get) if compressed else "fp32"


def durations(steps: list[dict]) -> list[float]:
    ends = [step["seconds"] for step in steps]
    return [b - a for a, b in zip(ends, ends[1:])]


def seconds_by_turns(steps: list[dict], count: int, segment: int, unsettled: int) -> list[tuple[float, float, float]]:
    """The quartiles of each of `count` decisions, of the medians of its turns without their first steps, `unsettled` of them.

    A machine that others use is faster in one minute than in the next. So each turn is compared with the others of its
    cycle, in which every decision has one turn, and these ratios are told in seconds of the median cycle.
    """
    took = durations(steps)[segment - 1:]
    turns = [statistics.median(took[begin + unsettled:begin + segment])
             for begin in range(0, len(took) - segment + 1, segment)]
    cycles = [turns[begin:begin + count] for begin in range(0, len(turns) - count + 1, count)]
    means = [statistics.mean(cycle) for cycle in cycles]
    usual = statistics.median(means)
    ratios = [[cycle[i] / mean for cycle, mean in zip(cycles, means)] for i in range(count)]
    return [tuple(usual * ratio for ratio in quartiles(one)) for one in ratios]


def quartiles(numbers: list[float]) -> list[float]:
    return statistics.quantiles(numbers, n=4, method="inclusive") if len(numbers) > 1 else 3 * numbers


def taking_turns(options, auto: str, rate: str, decisions: list[str], turns: int, turn: tuple[int, int]):
    """As seconds_by_turns, and the median processor time of all steps."""
    segment, unsettled = turn
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as plan:
        plan.write(plan_text(decisions, segment, turns))
        plan.flush()
        steps = train(options, f"{auto},plan={plan.name}", (1 + len(decisions) * turns) * segment,
                      None if rate == "none" else rate)
    return seconds_by_turns(steps, len(decisions), segment, unsettled), computation(steps)


def turns_key(auto: str, rate: str, segment: int, decisions: list[str]) -> tuple:
    """Those of loss=any are what check_plan.py --turns reads."""
    return ("turns" if auto == ANY else f"turns of {auto}", rate, segment, *decisions)


def turn_of(options, kept: Kept, auto: str, rate: str, decisions: list[str], seconds: list[float]) -> tuple[int, int]:
    """By the shortest of auto's steps, if there are any, else as it was, else by a step of any codec."""
    if not seconds:
        for turn in (TURN, SHORT_TURN):
            if kept.get(*turns_key(auto, rate, turn[0], decisions)):
                return turn
        seconds = [middle for _, middle, _ in taking_turns(options, auto, rate, decisions, 1, TURN)[0]]
    return SHORT_TURN if min(seconds) < SHORT else TURN


def standard_error(low: float, high: float, turns: int) -> float:
    """Of the median of as many turns, from their quartiles: as if they were normal. 1.35 standard deviations are between
    the quartiles, and a median spreads 1.25 times as much as a mean."""
    return 1.25 * (high - low) / 1.35 / math.sqrt(turns) if turns > 1 else math.nan


class Measured(typing.NamedTuple):
    """Of one auto in one cell: seconds of a step and their standard errors by decision, and what each of its runs decided."""
    seconds: dict[str, float]
    errors: dict[str, float]
    runs: list[dict]


def runs_of(options, kept: Kept, auto: str, rate: str) -> list[dict]:
    """What auto decided in every round, and also in rounds that are kept from runs with more of them."""
    for number in range(options.rounds):
        of = ("auto", auto, rate, number)
        if not kept.get(*of):
            texts = {"decisions.txt": ""}
            steps = train(options, auto, options.auto_steps, None if rate == "none" else rate, texts)
            last = max((step for step, line in enumerate(steps) if "decisions" in line), default=0)
            kept.put(*of, seconds=statistics.median(durations(steps)[-options.settled:]), decided=last, steps=len(steps),
                     decision=last_decision(texts["decisions.txt"]), decisions=texts["decisions.txt"].splitlines()[1:],
                     commit=results_page.commit())
    return [row for of, row in kept.rows.items() if of[:3] == ("auto", auto, rate)]


def turns_in(options, kept: Kept, auto: str, rate: str, codecs: list[str], runs: list[dict]) -> Measured:
    """The codecs, and what `runs` decided, take turns in a run with the memories of `auto`."""
    decisions = list(dict.fromkeys([*codecs, *(row["decision"] for row in runs)]))
    turn = turn_of(options, kept, auto, rate, decisions, [row["seconds"] for row in runs])
    of = turns_key(auto, rate, turn[0], decisions)
    if not kept.get(*of):
        found, processor = taking_turns(options, auto, rate, decisions, 1, turn)
        turns = int(min(options.turns, options.affordable / (turn[0] * sum(middle for _, middle, _ in found))))
        if turns > 1:
            found, processor = taking_turns(options, auto, rate, decisions, turns, turn)
        low, seconds, high = map(list, zip(*found))
        kept.put(*of, turns=max(turns, 1), seconds=seconds, low=low, high=high, processor=processor, commit=results_page.commit())
    row = kept.get(*of)
    errors = [standard_error(low, high, row["turns"]) for low, high in zip(row["low"], row["high"])]
    return Measured(dict(zip(decisions, row["seconds"])), dict(zip(decisions, errors)), runs)


def cell(options, kept: Kept, rate: str, choices: dict[str, list[str]]) -> dict[str, Measured]:
    if not options.autos:
        return {ANY: turns_in(options, kept, ANY, rate, choices[ANY], [])}
    runs = {auto: runs_of(options, kept, auto, rate) for auto in options.autos}
    return {auto: turns_in(options, kept, auto, rate, choices[auto], runs[auto]) for auto in options.autos}


def spread_of(seconds: dict[str, float], errors: dict[str, float], one: str, other: str) -> float:
    """Two standard errors of the ratio of two decisions' times. Of one to itself there is none."""
    if one == other:
        return 0.0
    return 2 * seconds[one] / seconds[other] * math.hypot(errors[one] / seconds[one], errors[other] / seconds[other])


def rows_of(cells: list[tuple[str, str, dict[str, Measured]]], choices: dict[str, list[str]]) -> list[str]:
    """A cell: recipe, rate, and what was measured of each auto. Choices: of each auto. Where auto decided differently in
    several rounds, its slowest decision counts."""
    lines = ["| recipe | link | dense, ms | auto | chose | ms | last decision | runs | best it may choose | ms | chosen / best | chosen / dense |",
             "| --- | --- | ---: | --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |"]
    near = unresolved = fast = unresolved_fast = count = 0
    for recipe, rate, autos in cells:
        for auto, (seconds, errors, found) in autos.items():
            # What it chose, with exceptions, may be faster than any codec for all tensors.
            best = min([*choices[auto], *(row["decision"] for row in found)], key=seconds.get)
            slowest = max((row["decision"] for row in found), key=seconds.get)
            ratio, spread = seconds[slowest] / seconds[best], spread_of(seconds, errors, slowest, best)
            to_dense, of_dense = seconds[slowest] / seconds["fp32"], spread_of(seconds, errors, slowest, "fp32")
            near += ratio <= NEAR
            unresolved += ratio - spread <= NEAR < ratio
            fast += to_dense <= DENSE
            unresolved_fast += to_dense - of_dense <= DENSE < to_dense
            count += 1
            told = lambda number, range_: f"{number:.2f}" + (f" ± {range_:.2f}" if range_ > 0 else "")  # noqa: E731
            lines.append(f"| {recipe} | {rate} | {1e3 * seconds['fp32']:,.1f} | `{auto}` | {short_name(slowest)} | "
                         f"{1e3 * seconds[slowest]:,.1f} | {max(row['decided'] for row in found)} of {found[0]['steps']} | {len(found)} | {short_name(best)} | "
                         f"{1e3 * seconds[best]:,.1f} | {told(ratio, spread)} | {told(to_dense, of_dense)} |")
    return [*lines, "", told_of(f"{NEAR} times the best", near, unresolved, count) + " " +
            told_of(f"{DENSE} times dense", fast, unresolved_fast, count)]


def told_of(bound: str, within: int, unresolved: int, count: int) -> str:
    text = f"Auto is within {bound} in {within} of {count} cells."
    return text if within == count else f"{text} In {unresolved} of the other {count - within} the spread reaches down to that."


def seconds_alone(options, kept: Kept, rate: str) -> dict[str, list[float]]:
    """Seconds of a step of each round with fp32 as the codec, under "fp32", and with each auto that stays with fp32."""
    found = {codec: [] for codec in ("fp32", *options.autos)}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as plan:
        plan.write(plan_text(["fp32"], 0, 0))
        plan.flush()
        for number in range(options.alone):
            for codec, seconds in found.items():
                of = ("alone", codec, rate, number)
                if not kept.get(*of):
                    text = codec if codec == "fp32" else f"{codec},plan={plan.name}"
                    steps = train(options, text, options.auto_steps, None if rate == "none" else rate)
                    kept.put(*of, seconds=statistics.median(durations(steps)[SHORT_TURN[1]:]), commit=results_page.commit())
                seconds.append(kept.get(*of)["seconds"])
    return found


def rows_alone(recipe: str, rate: str, found: dict[str, list[float]]) -> list[str]:
    """A row for each auto: medians with the least and the most, and those of the ratios of every round."""
    def told(numbers: list[float], digits: int) -> str:
        middle, least, most = (f"{number:,.{digits}f}" for number in (statistics.median(numbers), min(numbers), max(numbers)))
        return f"{middle} ({least} to {most})"
    dense = found["fp32"]
    return [f"| {recipe} | {rate} | {told([1e3 * one for one in dense], 1)} | `{auto}` | {told([1e3 * one for one in seconds], 1)} | "
            f"{told([one / other for one, other in zip(seconds, dense)], 2)} |"
            for auto, seconds in found.items() if auto != "fp32"]


def page_of(options, lines: list[str]) -> list[str]:
    return [
        "# Codec auto beside fixed codecs", "",
        "Two ranks on hosts of their own with a core each, over links of several rates. In each cell auto trained first, once or",
        "several times. Then a run for each auto followed a plan in which all codecs that it may choose, and what it chose in the end, took turns: of",
        f"{TURN[0]} steps, the first {TURN[1]} of which do not count, or of {SHORT_TURN[0]} and {SHORT_TURN[1]} where steps are shorter than {1e3 * SHORT:.0f} ms. A turn counts as a share of its",
        "cycle, in which each codec has one turn; times are the medians of these shares. \"chose\" is the slowest of auto's choices. \"last",
        "decision\" is the step at which auto decided last. The best is the fastest choice. It is the least of up to ten measured times, so",
        "chance makes it look faster than it is. ± are two standard errors, as the quartiles of the turns tell them. Runs for `loss=any` have the",
        "momentum in the memories of all codecs, dense ones as well. Runs for `loss=small` have it at the optimiser.", "",
        f"Command: `lab/compare_auto.py {' '.join(str(recipe) for recipe in options.recipes)} --data DIR`. "
        f"Processor: {results_page.processor()}, {results_page.cores()} cores. Commit: {results_page.commit()}.", "", *lines]


def changed_at(steps: list[dict], seconds: list[float]) -> list[int]:
    """The steps in which the link changed. The lab's clock starts some seconds before that of training: the first change
    is near the step where ten steps and the ten before differ most, and the others follow from their distances to it."""
    ends, took = [step["seconds"] for step in steps], durations(steps)
    jumps = {i: abs(math.log(statistics.median(took[i:i + 10]) / statistics.median(took[i - 10:i])))
             for i in range(10, len(took) - 10)}
    near = [i for i in jumps if abs(ends[i] - seconds[0]) < 10]
    early = next(i for i in near if jumps[i] > 0.7 * max(jumps[i] for i in near))  # a decision that follows may be a jump, too
    around = [i for i in jumps if early <= i < early + 10]
    first = statistics.median_high([i for i in around if jumps[i] > 0.9 * max(jumps[i] for i in around)])
    after = [ends[first] + at - seconds[0] for at in seconds]
    return [next((i for i, end in enumerate(ends) if end > at), len(ends)) for at in after]


def decisions_after(steps: list[dict], begin: int, end: int) -> str:
    """Of the steps from `begin` to before `end`: how many later each decision that changed the codec of most tensors was."""
    codec, found = largest_codec(steps[:begin + 1]), []
    for i in range(begin + 1, min(end, len(steps))):
        if "codecs" in steps[i] and largest_codec(steps[:i + 1]) != codec:
            codec = largest_codec(steps[:i + 1])
            found.append(f"{i - begin}: `{codec.partition(',')[0].partition(':block')[0]}`")
    if len(found) > TOLD:
        found[TOLD - 1:] = [f"{len(found) - TOLD} more", found[-1]]
    return "; ".join(found) or f"stays with `{codec.partition(',')[0]}`"


def show_changes(options, kept: Kept, recipe: pathlib.Path, rate: str) -> None:
    options.lab = ["--hosts", str(options.ranks)] + [word for change in options.change for word in ("--then", change)]
    rates, seconds = zip(*((rate_, float(at)) for rate_, _, at in (change.partition("@") for change in options.change)))
    for auto in options.autos:
        of = ("change", auto, rate, *options.change)
        if not kept.get(*of):
            steps = train(options, auto, options.auto_steps, rate)
            kept.put(*of, commit=results_page.commit(), steps=[
                {"seconds": round(step["seconds"], 4)} | ({"codecs": step["codecs"]} if "codecs" in step else {}) for step in steps])
        steps = kept.get(*of)["steps"]
        at = changed_at(steps, seconds)
        for begin, end, to in zip([0, *at], [*at, len(steps)], [rate, *rates]):
            took = [1e3 * one for one in durations(steps)[begin:end - 1]]
            soon, late = (f"{statistics.median(some):,.1f}" if some else "" for some in (took[20:50], took[50:]))
            print(f"| {recipe.stem} | `{auto}` | {begin} | {to} | {decisions_after(steps, begin, end)} | {soon} | {late} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_cell_options(parser, rates="none,10gbit,1gbit,100mbit,10mbit", rounds=1)
    parser.add_argument("--autos", default=list(AUTOS), type=lambda text: [] if text == "none" else text.split(";"),
                        help="of these, or none: only the codecs take turns, as check_plan.py --turns needs it")
    parser.add_argument("--auto-steps", type=int, default=60)
    parser.add_argument("--settled", type=int, default=20)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--affordable", type=float, default=120, help="seconds for a run in which codecs take turns")
    parser.add_argument("--alone", type=int, default=0, metavar="ROUNDS", help="runs of fp32 as auto has it and as a codec has it")
    parser.add_argument("--change", action="append", default=[], metavar="RATE@SECONDS", help="of thin_links.py --then")
    options = parser.parse_args()
    unknown = [auto for auto in options.autos if auto not in AUTOS]
    if unknown:
        parser.error(f"--autos has {', '.join(unknown)}; choices: {', '.join(AUTOS)}")
    if not options.autos and (options.page or options.change):
        parser.error("--autos none makes no page and follows no change: see check_plan.py --turns")
    if options.alone and (options.page or options.change or not options.autos):
        parser.error("--alone makes a table of its own: no --page, no --change, and some of --autos")
    if options.change and "none" in options.rates:
        parser.error("--change needs links that can change; give --rates without none")
    choices = {auto: choices_of(options.program, auto) for auto in options.autos or AUTOS}
    cells = []
    if options.change:
        print("| recipe | auto | from step | link | steps later: codec of most tensors | ms, 21 to 50 steps later | ms, after that |\n"
              "| --- | --- | ---: | --- | --- | ---: | ---: |")
    if options.alone:
        print("| recipe | link | fp32, ms | auto, with fp32 | ms | ratio |\n| --- | --- | ---: | --- | ---: | ---: |")
    for recipe in options.recipes:
        kept = kept_of(options, recipe)
        for rate in options.rates:
            if options.alone:
                print("\n".join(rows_alone(recipe.stem, rate, seconds_alone(options, kept, rate))), flush=True)
                continue
            if options.change:
                show_changes(options, kept, recipe, rate)
                continue
            cells.append((recipe.stem, rate, cell(options, kept, rate, choices)))
            print("\n".join(rows_of(cells[-1:], choices)[2:-2]) if options.autos else f"{recipe.stem} at {rate}: measured",
                  file=sys.stderr)
    if cells and options.autos:
        lines = rows_of(cells, choices)
        print("\n".join(lines))
        if options.page:
            results_page.write(options.page, page_of(options, lines))


if __name__ == "__main__":
    main()
