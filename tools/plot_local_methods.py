#!/usr/bin/env python3
"""Draws the results of the study leader-sgd, and the problems by which the paper of LSGD argues, as SVG.

usage: plot_local_methods.py

Reads docs/results/runs/leader-sgd.jsonl (what study.py keeps of each run) and writes into
docs/results/plots: local-methods.svg, leaders.svg, consensus.svg, int8-rounds.svg, lsgd-problems.svg.
Prints tables for the page: bytes per round beside the arithmetic of docs/leader-sgd.md, which must
agree, who led how often, and the speeds of the study leader-straggler. Needs Matplotlib.

Time is a virtual clock: steps times the seconds of a step of one worker with a core to itself (the
fastest tenth of the steps of the study's run with one worker, since others may use the machine), plus,
for each round, the time that its longest chain of messages takes on the link below.
"""
import collections
import json
import math
import pathlib
import re
import statistics

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "thinwire"  # the same file from the same runs
import matplotlib.pyplot as plt

import kept_runs

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLOTS = ROOT / "docs/results/plots"
BYTES_PER_SECOND = 100e6 / 8
LATENCY = 1e-3  # seconds, of a message
HEADER = 48     # bytes of a frame's header
COLOURS = {"data-parallel": "black", "leader-1-group": "tab:cyan", "leader-2-groups": "tab:blue",
           "leader-2-groups-int8": "tab:purple", "leader-4-groups": "navy", "easgd": "tab:orange",
           "downpour": "tab:brown", "average": "tab:green", "diloco": "tab:red",
           "parle": "tab:pink", "gossip": "tab:olive"}


def load() -> dict:
    """{workers: {variant: [run, ...]}}, runs by seed."""
    found: dict = {}
    for run_name, run in kept_runs.read(kept_runs.FOLDER / "leader-sgd.jsonl").items():
        name = re.fullmatch(r"cnn7-(\d+)-workers?-(.+)-seed\d+", run_name)
        if name:
            found.setdefault(int(name[1]), {}).setdefault(name[2], []).append(run)
    return found


def log2(count: int) -> int:
    return math.ceil(math.log2(count)) if count > 1 else 0


def options(method: str) -> dict:
    return dict(item.split("=") for item in method.partition(":")[2].split(",") if item)


# ---- the virtual clock --------------------------------------------------------------------------------

def leader_seconds(run: dict, step: int) -> float:
    """Broadcasts of whole models: each hop of the longest way sends one after the other."""
    n, own = run["world_size"], options(run["settings"]["sync.method"])
    tau, tau_global, groups = int(own["tau"]), int(own["tau_global"]), int(own["groups"])
    hop = frame_bytes(run) / BYTES_PER_SECOND + LATENCY
    choose = LATENCY * (1 + log2(n))  # losses to each other, then the verdict
    in_group = n // groups
    local = groups > 1 and tau != tau_global and in_group > 1
    seconds = 0.0
    if local:
        seconds += step // tau * (log2(in_group) * hop + choose)
    to_all = log2(n) if groups == 1 else 2 * log2(in_group) + log2(groups)
    return seconds + step // tau_global * (to_all * hop + (0 if local else choose))


def parameters(run: dict) -> int:
    n = run["world_size"]
    return round(run["dense_bytes_per_step"] * n / (8 * (n - 1))) if n > 1 else 0


def frame_bytes(run: dict) -> int:
    count = parameters(run)
    if run["settings"]["exchange.codec"] == "int8":
        return HEADER + count + 4 * math.ceil(count / 256)
    return HEADER + 4 * count


def wire_seconds(run: dict, test: dict) -> float:
    method = run["settings"]["sync.method"].partition(":")[0]
    n = run["world_size"]
    if n == 1:
        return 0.0
    if method == "leader":
        return leader_seconds(run, test["step"])
    if method == "gossip":
        return test["received_bytes"] / BYTES_PER_SECOND + test["step"] * LATENCY
    rounds = test["rounds"] if method else test["step"]
    return test["sent_bytes"] / BYTES_PER_SECOND + rounds * 2 * log2(n) * LATENCY


def step_seconds(runs: dict) -> float:
    alone = runs[1]["data-parallel"]
    return min(run["course"]["step_seconds"]["tenth"] for run in alone)


# ---- plots --------------------------------------------------------------------------------------------

def mean_curve(runs: list[dict], x_of) -> tuple[list, list]:
    """Means over seeds of the error in per cent, at the same tests."""
    count = min(len(run["course"]["tests"]) for run in runs)
    xs, ys = [], []
    for i in range(count):
        tests = [run["course"]["tests"][i] for run in runs]
        xs.append(statistics.mean(x_of(run, test) for run, test in zip(runs, tests)))
        ys.append(100 * statistics.mean(test["hold_out_error"] for test in tests))
    return xs, ys


def save(figure, name: str) -> None:
    figure.tight_layout()
    PLOTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(PLOTS / name, metadata={"Date": None})
    plt.close(figure)
    print((PLOTS / name).relative_to(ROOT))


def plot_methods(runs: dict) -> None:
    step = step_seconds(runs)
    axes_of = [("samples seen by all workers, thousands",
                lambda run, test: test["epoch"] * run["samples"] /
                float(run["settings"]["train.epochs"]) / 1e3),
               ("MB that worker 0 sent and received",
                lambda run, test: (test["sent_bytes"] + test["received_bytes"]) / 1e6),
               ("seconds of the virtual clock",
                lambda run, test: test["step"] * step + wire_seconds(run, test))]
    sizes = [n for n in sorted(runs) if n > 1]
    figure, axes = plt.subplots(len(sizes), 3, figsize=(12, 3.6 * len(sizes)), sharey="row",
                                squeeze=False)
    for row, n in zip(axes, sizes):
        for axis, (label, x_of) in zip(row, axes_of):
            for variant, colour in COLOURS.items():
                if variant in runs[n]:
                    axis.plot(*mean_curve(runs[n][variant], x_of), color=colour, linewidth=1.2,
                              label=variant.replace("-", " "))
            axis.set(xlabel=label)
            axis.grid(True, which="both", alpha=0.3)
        row[1].set(xscale="log")
        row[2].set(xscale="log")
        row[0].set(ylabel=f"held-out error %, {n} workers")
    axes[0][0].legend(fontsize=7, ncols=2)
    save(figure, "local-methods.svg")


def plot_leaders(runs: dict) -> None:
    sizes = [n for n in sorted(runs) if n > 1]
    variants = [v for v in COLOURS if v.startswith("leader") and "int8" not in v]
    figure, axes = plt.subplots(len(sizes), len(variants), figsize=(4 * len(variants), 5),
                                squeeze=False)
    for row, n in zip(axes, sizes):
        for axis, variant in zip(row, variants):
            for i, run in enumerate(runs[n].get(variant, [])):
                axis.plot(*zip(*run["course"]["leaders"]), ".", markersize=3, label=f"seed {i + 1}",
                          alpha=0.7)
            axis.set(title=f"{variant.replace('-', ' ')}, {n} workers", xlabel="step",
                     ylabel="leader of all", ylim=(-0.5, n - 0.5))
            axis.title.set_size(9)
    axes[0][0].legend(fontsize=7)
    save(figure, "leaders.svg")


def plot_consensus(runs: dict) -> None:
    sizes = [n for n in sorted(runs) if n > 1]
    figure, axes = plt.subplots(1, len(sizes), figsize=(4.5 * len(sizes), 3), squeeze=False)
    for axis, n in zip(axes[0], sizes):
        for variant, colour in COLOURS.items():
            tests = [run["course"]["tests"] for run in runs[n].get(variant, [])]
            tests = [test for test in tests if "spread" in test[0]]
            if not tests:
                continue
            axis.plot([test["epoch"] for test in tests[0]],
                      [statistics.mean(values) for values in
                       zip(*([test["spread"] for test in one] for one in tests))],
                      color=colour, linewidth=2 if variant == "gossip" else 1,
                      label=variant.replace("-", " "))
        axis.set(title=f"{n} workers", xlabel="epoch", yscale="log",
                 ylabel="root mean square distance\nof workers to their common model")
        axis.grid(True, which="both", alpha=0.3)
    axes[0][0].legend(fontsize=6, ncols=2)
    save(figure, "consensus.svg")


def plot_int8(runs: dict) -> None:
    sizes = [n for n in sorted(runs) if n > 1]
    figure, axes = plt.subplots(1, len(sizes), figsize=(4.5 * len(sizes), 3), squeeze=False)
    for axis, n in zip(axes[0], sizes):
        for variant in ("leader-2-groups", "leader-2-groups-int8"):
            for i, run in enumerate(runs[n].get(variant, [])):
                axis.plot([test["epoch"] for test in run["course"]["tests"]],
                          [100 * test["hold_out_error"] for test in run["course"]["tests"]],
                          color=COLOURS[variant], linewidth=1,
                          label=variant.replace("-", " ") if i == 0 else None)
        axis.set(title=f"{n} workers, a line for each seed", xlabel="epoch",
                 ylabel="held-out error %")
        axis.grid(True, alpha=0.3)
        axis.legend(fontsize=7)
    save(figure, "int8-rounds.svg")


# ---- tables -------------------------------------------------------------------------------------------

def print_bytes(runs: dict) -> None:
    """What worker 0 received in a round, beside docs/leader-sgd.md: a model unless it leads, 8-byte words."""
    print("\n| workers | variant | round | received by worker 0 | arithmetic |\n" + "| --- " * 5 + "|")
    for n in sorted(runs):
        for variant, some in sorted(runs[n].items()):
            if not variant.startswith("leader"):
                continue
            groups = int(options(some[0]["settings"]["sync.method"])["groups"])
            received: dict = {}
            for run in some:
                for kind, sizes in run["course"]["rounds"].items():
                    for key in sizes:
                        received.setdefault(kind, set()).add(json.loads("[" + key[1:-1] + "]")[2])
            frame = frame_bytes(some[0])
            for kind, seen in sorted(received.items()):
                circle = n if kind == "global" else n // groups
                words = 8 * (circle - 1) + 8 * log2(circle)
                both = kind == "global" and "local" in received  # two models, or one, or none
                expected = {words + models * frame for models in ((0, 1, 2) if both else (0, 1))}
                assert seen <= expected, (n, variant, kind, seen, expected)
                print(f"| {n} | {variant.replace('-', ' ')} | {kind} | "
                      f"{', '.join(f'{one:,}' for one in sorted(seen))} | "
                      f"{words} + {'0, 1 or 2' if both else '0 or 1'} x {frame:,} |")


def print_leaders(runs: dict) -> None:
    print("\n| workers | variant | global rounds | led by the busiest | by the least busy | changes of "
          "leader |\n" + "| --- " * 6 + "|")
    for n in sorted(runs):
        for variant, some in sorted(runs[n].items()):
            if not variant.startswith("leader"):
                continue
            counts: list[int] = []
            total = changes = 0
            for run in some:
                who = [leader for _, leader in run["course"]["leaders"]]
                count = collections.Counter(who)
                counts += [count[rank] for rank in range(n)]
                total += len(who)
                changes += sum(a != b for a, b in zip(who, who[1:]))
            if total:
                print(f"| {n} | {variant.replace('-', ' ')} | {total // len(some)} | "
                      f"{max(counts)} | {min(counts)} | {changes / len(some):.0f} |")


def print_times(runs: dict) -> None:
    step = step_seconds(runs)
    print(f"\nstep of one worker: {1e3 * step:.2f} ms\n")
    print("| workers | variant | seconds of the virtual clock | of these on the link |\n"
          + "| --- " * 4 + "|")
    for n in sorted(runs):
        for variant, some in sorted(runs[n].items()):
            wire = statistics.mean(wire_seconds(run, run["course"]["tests"][-1]) for run in some)
            total = some[0]["steps"] * step + wire
            print(f"| {n} | {variant.replace('-', ' ')} | {total:.1f} | {100 * wire / total:.0f} % |")


def print_speeds() -> None:
    """Samples per second of the study leader-straggler, tests not counted."""
    found: dict = {}
    for run_name, run in kept_runs.read(kept_runs.FOLDER / "leader-straggler.jsonl").items():
        name = re.fullmatch(r"(one-worker-slow|all-alike)-(.+)-seed\d+", run_name)
        seconds = run["seconds"] - run["totals"]["evaluate_seconds"]
        found.setdefault((name[1], name[2]), []).append(run["samples"] / seconds)
    if found:
        print("\n| speeds | method | samples/s, each seed |\n" + "| --- " * 3 + "|")
    for (case, variant), speeds in sorted(found.items()):
        print(f"| {case.replace('-', ' ')} | {variant.replace('-', ' ')} | "
              f"{', '.join(f'{speed:.0f}' for speed in speeds)} |")


# ---- the paper's problems -----------------------------------------------------------------------------

def descend(slope, value, starts: list[float], pull: float, centre: str, steps: int, rate=0.05):
    """One coordinate per worker; a pull after every step. Returns all positions, step by step."""
    xs = list(starts)
    course = [list(xs)]
    for _ in range(steps):
        xs = [x - rate * slope(x) for x in xs]
        target = min(xs, key=value) if centre == "leader" else statistics.mean(xs)
        xs = [x if x == target else x + pull * (target - x) for x in xs]
        course.append(list(xs))
    return course


def plot_problems() -> None:
    figure, (moved, stalled, rate) = plt.subplots(1, 3, figsize=(12, 3.4))
    wells = lambda x: (x * x - 1) ** 2 / 4 + 0.25 * x
    slope = lambda x: x * (x * x - 1) + 0.25
    for centre, colour in (("leader", "tab:blue"), ("mean", "tab:orange")):
        course = descend(slope, wells, [-1, 1, -1, 1], 0.005, centre, 400)
        label = "leader" if centre == "leader" else "elastic averaging"
        best = [min(xs, key=wells) for xs in course]
        moved.plot([max(1e-9, abs(slope(x))) for x in best], color=colour, label=label)
    moved.set(yscale="log", xlabel="step", ylabel="|f'| at the best worker",
              title="two unequal wells, weak pull:\nwhere the best worker stands still")
    even = lambda x: (x * x - 1) ** 2 / 4
    flat = lambda x: x * (x * x - 1)
    for centre, colour in (("leader", "tab:blue"), ("mean", "tab:orange")):
        course = descend(flat, even, [0.5, -0.5, 0.5, -0.5], 0.06, centre, 300)
        for worker in range(4):
            stalled.plot([xs[worker] for xs in course], color=colour, linewidth=1,
                         label=("leader" if centre == "leader" else "elastic averaging")
                         if worker == 0 else None)
    stalled.set(xlabel="step", ylabel="x of each worker",
                title="two equal wells at -1 and 1:\naveraging holds workers at the maximum")
    m, eta, pull = 0.5, 0.2, 0.1
    curvatures = [0.5 + 0.1 * i for i in range(16)]
    loss = lambda x: sum(a * v * v / 2 for a, v in zip(curvatures, x))
    workers = [[(1 + r) * (1 if i % 2 == 0 else -0.5) for i in range(16)] for r in range(4)]
    led, bound = [loss(workers[3])], [loss(workers[3])]
    for _ in range(60):
        stepped = [[v - eta * a * v for a, v in zip(curvatures, x)] for x in workers]
        best = min(stepped, key=loss)
        bound.append((1 - m * eta) * loss(workers[3]) - pull * (loss(stepped[3]) - loss(best)))
        workers = [[v + pull * (z - v) for v, z in zip(x, best)] for x in stepped]
        led.append(loss(workers[3]))
    rate.plot(led, color="tab:blue", label="LGD, the worst worker")
    rate.plot(bound, "--", color="grey", label="the theorem's bound for this step")
    rate.plot([led[0] * (1 - m * eta) ** k for k in range(61)], ":", color="black",
              label="(1 - m η)^k")
    rate.set(yscale="log", xlabel="step", ylabel="f - f*",
             title="strongly convex quadratic:\nthe published rate")
    for axis in (moved, stalled, rate):
        axis.title.set_size(9)
        axis.grid(True, alpha=0.3)
        axis.legend(fontsize=7)
    save(figure, "lsgd-problems.svg")


def main() -> None:
    plot_problems()
    print_speeds()
    runs = load()
    if 1 not in runs:
        return
    plot_methods(runs)
    plot_leaders(runs)
    plot_consensus(runs)
    plot_int8(runs)
    print_times(runs)
    print_bytes(runs)
    print_leaders(runs)


if __name__ == "__main__":
    main()
