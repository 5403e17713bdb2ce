#!/usr/bin/env python3
"""Trains a recipe with one codec after another over links of several rates, and measures time per step and to a loss.

    sudo lab/compare_training.py lab/recipes/mlp-10m.toml --data DIR --page docs/results/thin-links.md

Step times come from shaped links (thin_links.py), where every codec takes the same few steps, in rounds,
so that all see the same machine. What a codec learns in a step does not depend on the link (the bits are
those of two threads), so losses come from longer runs without links: the time to a loss is the
first step at which the mean loss of the last --window steps is at most that loss, times the time of a
step. The loss asked for is what the dense run has after --goal-step steps, half of all unless given: a
codec may take longer.

What was measured is kept in --kept, a line of JSON each, and not measured again while it is there.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
DENSITIES = ("0.1", "0.01", "0.001")
SPARSE = ("topk:density={}", "topk:density={} @ model", "torch-topk:density={}", "dgc:density={}",
          "redsync:density={}", "gaussiank:density={}", "sidco:density={},law=exponential",
          "sidco:density={},law=pareto", "sidco:density={},law=gamma_pareto")
DENSE = ("fp32", "fp16", "int8", "adacomp", "powersgd:rank=1", "powersgd:rank=4")


CODECS = [*DENSE, *(codec.format(density) for density in DENSITIES for codec in SPARSE)]


class Kept:
    """Measurements by what was measured; appended to a file as they come."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows = {tuple(row["of"]): row for row in map(json.loads, lines)}

    def get(self, *of):
        return self.rows.get(of)

    def put(self, *of, **row) -> None:
        self.rows[of] = {"of": of, **row}
        with open(self.path, "a") as file:
            file.write(json.dumps(self.rows[of]) + "\n")


def steps_of(folder: pathlib.Path) -> list[dict]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "samples" in line and "sent_bytes" in line]


def codec_settings(codec: str) -> dict[str, str]:
    name, _, rest = codec.partition(" @ ")
    grouping = rest if rest in ("tensor", "model", "global") else ""
    settings = {"exchange.codec": name, "exchange.grouping": grouping or "auto"}
    return settings | ({"exchange.method": rest} if rest and not grouping else {})


def train(options, codec: str, steps: int, rate: str | None, texts: dict[str, str] | None = None) -> list[dict]:
    """The metrics of each step, of rank 0. A codec may name a grouping or a method: topk:density=0.1 @ model. The names of
    files in `texts` get what the run's files of these names hold."""
    with tempfile.TemporaryDirectory() as out:
        settings = {**codec_settings(codec),
                    "train.max_steps": steps, "train.epochs": 1000000,
                    "data.test_samples": 64,  # the hold-out is not what is measured
                    **getattr(options, "settings", {})}
        command = [options.program, "train", str(options.recipe), "--out", out]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        if codec.startswith("dgc"):  # with its own memory, which has the momentum
            command += ["--set", f"exchange.feedback=dgc:momentum={options.momentum}",
                        "--set", "optimizer.momentum=0"]
        if options.data:
            command += ["--data", options.data]
        if rate:
            lab = [sys.executable, str(ROOT / "lab/thin_links.py"), "--rate", rate, "--timeout",
                   str(options.timeout), *getattr(options, "lab", []), "--"]
            command = lab + command
        else:
            command += ["--workers", str(getattr(options, "workers", 2))]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"compare_training: {codec} at {rate or 'no link'}: {done.stderr[-2000:]}")
        made = steps_of(pathlib.Path(out))
        if len(made) != steps:
            sys.exit(f"compare_training: {codec}: {len(made)} steps where {steps} were asked for")
        for name in texts or {}:
            texts[name] = (pathlib.Path(out) / name).read_text()
        return made


def seconds_per_step(steps: list[dict]) -> float:
    """The first steps, which allocate and connect, do not count."""
    ends = [step["seconds"] for step in steps[3:]]
    return statistics.median(b - a for a, b in zip(ends, ends[1:]))


def computation(steps: list[dict]) -> float:
    """The median of what a rank's own arithmetic takes in a step, on a core that the exchange's thread shares: samples, both
    passes and the optimiser, without what the other thread does meanwhile. With more than one thread for arithmetic
    (run.threads) it lacks what the others do."""
    return statistics.median(step["times"]["processor"] for step in steps)


def measure(options, kept: Kept) -> None:
    for number in range(options.rounds):
        for rate in options.rates:
            for codec in options.codecs:
                if not kept.get("time", codec, rate, number):
                    steps = train(options, codec, options.timed_steps, rate)
                    kept.put("time", codec, rate, number, seconds=seconds_per_step(steps),
                             compute=computation(steps[3:]))
    for codec in options.codecs:
        found = kept.get("loss", codec)
        if not found or len(found["losses"]) != options.steps:
            steps = train(options, codec, options.steps, None)
            kept.put("loss", codec, losses=[round(step["loss"], 5) for step in steps],
                     bytes=statistics.mean(step["sent_bytes"] for step in steps[1:]))


def steps_to(losses: list[float], goal: float, window: int) -> int | None:
    for end in range(window, len(losses) + 1):
        if statistics.mean(losses[end - window:end]) <= goal:
            return end
    return None


def spread(values: list[float]) -> str:
    middle = statistics.median(values)
    return f"{1e3 * middle:,.0f} ({1e3 * min(values):,.0f} to {1e3 * max(values):,.0f})"


def rows(options, kept: Kept, rate: str) -> list[str]:
    losses = kept.get("loss", "fp32")["losses"]
    goal = statistics.mean(losses[options.goal_step - options.window:options.goal_step])
    times = {codec: [kept.get("time", codec, rate, n)["seconds"] for n in range(options.rounds)]
             for codec in options.codecs}
    dense = statistics.median(times["fp32"])
    dense_steps = steps_to(losses, goal, options.window)
    lines = [f"| codec at {rate} | bytes per step and rank | ms per step | throughput over fp32 | "
             f"steps to loss {goal:.3f} | time to it, s | speed-up over fp32 |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for codec in options.codecs:
        loss = kept.get("loss", codec)
        step = statistics.median(times[codec])
        needed = steps_to(loss["losses"], goal, options.window)
        reached = (f"{needed} | {needed * step:.1f} | {dense_steps * dense / (needed * step):.1f}"
                   if needed else f"over {len(loss['losses'])} | | ")
        lines.append(f"| `{codec}` | {loss['bytes']:,.0f} | {spread(times[codec])} | "
                     f"{dense / step:.1f} | {reached} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=pathlib.Path)
    parser.add_argument("--data")
    parser.add_argument("--program", default=str(ROOT / "build/lab_train"))
    parser.add_argument("--codecs", default=CODECS, type=lambda text: text.split(";"),
                        help="fp32 first; separated by semicolons")
    parser.add_argument("--rates", default="100mbit,1gbit", type=lambda text: text.split(","))
    parser.add_argument("--steps", type=int, default=300, help="of the runs for losses")
    parser.add_argument("--timed-steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--goal-step", type=int, help="half of --steps unless given")
    parser.add_argument("--window", type=int, default=20)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--kept", type=pathlib.Path, help="default: docs/results/runs/thin-links/")
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    options.goal_step = options.goal_step or options.steps // 2
    if not options.window <= options.goal_step <= options.steps:
        parser.error("--goal-step is not between --window and --steps")
    recipe = tomllib.loads(options.recipe.read_text())
    options.momentum = recipe["optimizer"].get("momentum", 0)
    kept = options.kept or ROOT / f"docs/results/runs/thin-links/{options.recipe.stem}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    found = Kept(kept)
    measure(options, found)
    page = [line for rate in options.rates for line in [*rows(options, found, rate), ""]]
    print("\n".join(page))
    if options.page:
        heading = f"## {options.recipe.stem}"
        before = options.page.read_text() if options.page.exists() else "# Training over thin links\n"
        options.page.write_text(before.split(heading)[0].rstrip("\n") + f"\n\n{heading}\n\n" +
                                "\n".join(page))


if __name__ == "__main__":
    main()
