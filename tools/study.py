#!/usr/bin/env python3
"""Runs a study with `thinwire sweep`, keeps the results of its runs, and writes its page.

usage: study.py FILE.toml [--data DIR] [--out FOLDER] [--program FILE] [--commit ID] [--at-once N]
                [--device cuda] [--gpu NAME] [--table-only]

A study is a sweep (docs/sweeps.md) with a title, an `about` for its page, and `first`, the variant
that others are compared with, seed by seed; with `judge = "loss"` by their test loss. With `judge = "bytes"` the
table also says how much a run had sent when its test error was first at most a point above that in which `first` ended.
Runs go to FOLDER/<study>/; what a finished one came to is kept in docs/results/runs/<study>.jsonl, and it is not made again while its line is there and its recipe is
the same. What its runs begin with, if anything, is <study>.base.toml beside it: a sweep that is made first,
in out/<study>.base/, where settings such as model.weights name it. The page goes to docs/results/<study>.md; its
paragraph "**Question.** ..." below the title, and what stands below "## Notes", stay.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tomllib

import kept_runs
import results_page
from activation_grid import grid_table, is_grid
from attack_table import attack_table, is_of_attacks
from loss_table import is_by_loss, loss_table
from pipeline_table import boundaries_of, is_of_pipelines, pipeline_table
from student import interval

ROOT = pathlib.Path(__file__).resolve().parent.parent


def read_json(path: pathlib.Path):
    return json.loads(path.read_text()) if path.exists() else None


# Of metrics.jsonl: the codec ratio of each kind of tensor over the course of training, as
# {kind: [[epoch, ratio], ...]}, means over a twentieth of the run each.
def ratios_over_time(lines: list[dict]) -> dict:
    steps = [line for line in lines if "kinds" in line]
    width = max(1, len(steps) // 20)
    found: dict = {}
    for begin in range(0, len(steps) - width + 1, width):
        part = steps[begin:begin + width]
        for kind in sorted({kind for line in part for kind in line["kinds"]}):
            lines_of = [line["kinds"][kind] for line in part if kind in line["kinds"]]
            values = sum(line["values"] for line in lines_of)
            sent = sum(line["payload_bytes"] for line in lines_of)
            if sent:
                found.setdefault(kind, []).append([round(part[-1]["epoch"], 3),
                                                   round(4 * values / sent, 2)])
    return found


# Every test with the bytes of rank 0 until then and the seconds of a step's arithmetic; of workers
# that step by themselves also who led in each global round, and how many rounds moved which bytes.
def course(lines: list[dict]) -> dict:
    sent = received = rounds = 0
    tests, leaders, per_round, compute, coding, densities = [], [], {}, [], [], []
    for line in lines:
        if "test_error" in line:
            tests.append({**{key: line[key] for key in line if key != "test_samples"},
                          "sent_bytes": sent, "received_bytes": received, "rounds": rounds})
            continue
        sent += line["sent_bytes"]
        received += line["received_bytes"]
        compute.append(line["times"]["fetch"] + line["times"]["compute"])
        coding.append(line["times"]["compress"] + line["times"]["decompress"])
        if "kept_over_target" in line:
            densities.append(line["kept_over_target"])
        report = line.get("round")
        if report:
            rounds += 1
            key = "global" if report["global"] else "local"
            sizes = (report["payload_bytes"], report["sent_bytes"], report["received_bytes"])
            per_round.setdefault(key, {}).setdefault(str(sizes), 0)
            per_round[key][str(sizes)] += 1
            if report["global"] and report.get("leader", -1) >= 0:
                leaders.append([line["step"], report["leader"]])
    compute.sort()
    quantile = lambda share: compute[int(share * (len(compute) - 1))] if compute else None
    return {**({"density": density_of_steps(densities)} if densities else {}), "tests": tests,
            "leaders": leaders, "rounds": per_round,
            "step_seconds": {"least": quantile(0), "tenth": quantile(0.1), "median": quantile(0.5)},
            "coding_seconds": statistics.median(coding) if coding else None}


# How near single steps came to their target: quantiles of kept / target, and the share of steps
# that are further than 20 % away.
def density_of_steps(ratios: list[float]) -> dict:
    ratios = sorted(ratios)
    at = lambda share: round(ratios[int(share * (len(ratios) - 1))], 4)
    far = sum(not 0.8 <= ratio <= 1.2 for ratio in ratios)
    return {"low": at(0.025), "median": at(0.5), "high": at(0.975), "far": round(far / len(ratios), 4)}


def device_of(run: dict) -> str:
    return run["settings"].get("run.device", "cpu")


def summary_of(run: pathlib.Path, commit: str, gpu: str = "") -> dict:
    """A finished run's summary, with what its page and plots need of the rest."""
    summary = read_json(run / "summary.json")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    summary["ratios_over_time"] = ratios_over_time(lines)
    summary["course"] = course(lines)
    summary.update(boundaries_of(lines))
    summary["commit"] = commit
    if device_of(summary) != "cpu":
        summary["gpu"] = gpu
    return summary


def percent(values: list[float]) -> str:
    half = interval(values)
    return f"{100 * statistics.mean(values):.2f}" + ("" if math.isnan(half) else f" ± {100 * half:.2f}")


# {case: {variant: {seed: summary}}} of what is kept. `rows` are those of sweep.json.
def by_case(rows: list[dict], kept: dict[str, dict]) -> dict:
    found: dict = {}
    for row in rows:
        for name, seed in zip(row["runs"], row["seeds"]):
            if name in kept:
                found.setdefault(row["case"], {}).setdefault(row["variant"], {})[seed] = kept[name]
    return found


# Of single steps: where 95 % of them are, and how many are further than 20 % from the target.
def densities(runs: list[dict]) -> list[str]:
    steps = [run["course"]["density"] for run in runs if "density" in run.get("course", {})]
    if not steps:
        return ["", ""]
    mean = lambda key: statistics.mean(step[key] for step in steps)
    return [f"{mean('low'):.2f} to {mean('high'):.2f}", f"{100 * mean('far'):.1f} %"]


# Runs that differ by the seed alone end about as far apart, so that less is not a difference.
REACHED = 0.01  # above the error of first

# MB that a rank had sent when a test first showed at most the error in which the same seed of
# `first` ended, and a point more, on average over the seeds that came there.
def megabytes_to(first: dict[int, dict], seeds: dict[int, dict]) -> str:
    paired = [seed for seed in seeds if seed in first]
    sent = []
    for seed in paired:
        goal = first[seed]["final_test_error"]
        near = [test for test in seeds[seed]["course"]["tests"] if test["test_error"] <= goal + REACHED]
        sent += [test["sent_bytes"] for test in near[:1]]
    if not sent:
        return "not reached" if paired else ""
    return f"{statistics.mean(sent) / 1e6:,.1f}" + f" ({len(sent)} of {len(paired)} seeds)" * (len(sent) < len(paired))


FLUSH_NAMES = ["owed / gradient", "owed / delivered", "test error after flushing, change in points",
               "held-out error, change"]


# Of what memories owed at the end (exchange.flush): its norm beside that of a gradient and of what a
# step delivered, and what sending all of it changed.
def flushes(runs: list[dict]) -> list[str]:
    found = [run["flush"] for run in runs if "flush" in run]
    if not found:
        return [""] * len(FLUSH_NAMES)

    def share(key: str) -> str:
        parts = [flush["owed_norm"] / flush[key] for flush in found if flush[key] > 0]
        return f"{statistics.mean(parts):.2f}" if parts else ""

    def change(key: str) -> str:
        pairs = [flush[f"{key}_after"] - flush[f"{key}_before"] for flush in found if f"{key}_after" in flush]
        return percent(pairs) if pairs else ""

    return [share("gradient_norm"), share("delivered_norm"), change("test_error"), change("hold_out_error")]


# Of the step that sends the most; empty where a run did not keep it.
def peak_bytes(runs: list[dict]) -> str:
    peaks = [run.get("peak_sent_bytes") for run in runs]
    return "" if None in peaks else f"{max(peaks):,.0f}"


# One row per case and variant: means over seeds. Where it was kept a step's time too, in ms: its
# arithmetic (the tenth percentile, since runs may share the machine) and its encoding and decoding
# (the median).
def table(study: dict, found: dict) -> list[str]:
    all_runs = [run for variants in found.values() for seeds in variants.values() for run in seeds.values()]
    # Times of several devices have no mean.
    times = all(run.get("course", {}).get("coding_seconds") is not None for run in all_runs)
    times = times and all(len({device_of(run) for seeds in variants.values() for run in seeds.values()}) == 1
                          for variants in found.values())
    step_densities = any("density" in run.get("course", {}) for run in all_runs)
    flushed = any("flush" in run for run in all_runs)
    to_first = study.get("judge") == "bytes"
    # Where bytes come in bursts, as with rounds now and then.
    bursts = any(run.get("peak_sent_bytes", 0) >= 2 * run["sent_bytes_per_step"] > 0 for run in all_runs)
    names = ["case", "variant", "seeds", "workers", "epochs", "test error %", "difference in points",
             "held-out error %", "difference", "bytes per step and rank",
             *["most bytes in a step"] * bursts, *[f"MB until a point above {study['first']}"] * to_first,
             "wire ratio", "codec ratio",
             "kept / target", *["95 % of steps", "steps 20 % off"] * step_densities, *FLUSH_NAMES * flushed, "skipped"] + [
                 "arithmetic, ms", "coding, ms"] * times
    lines = ["| " + " | ".join(names) + " |", "| --- " * len(names) + "|"]
    for name, variants in found.items():
        base = variants.get(study["first"], {})
        for variant, seeds in variants.items():
            runs = list(seeds.values())
            mean = lambda key: statistics.mean(run[key] for run in runs)

            def errors(key: str) -> list[str]:
                if runs[0].get(key) is None:
                    return ["", ""]
                pairs = [seeds[s][key] - base[s][key] for s in seeds
                         if s in base and variant != study["first"]]
                return [percent([run[key] for run in runs]), percent(pairs) if pairs else ""]

            target = mean("achieved_over_target")
            cells = [name, variant, str(len(runs)), str(runs[0]["world_size"]),
                     f"{runs[0]['settings']['train.epochs']}", *errors("final_test_error"),
                     *errors("final_hold_out_error"), f"{mean('sent_bytes_per_step'):,.0f}",
                     *[peak_bytes(runs)] * bursts,
                     *[megabytes_to(base, seeds)] * to_first,
                     f"{mean('wire_ratio'):.1f}", f"{mean('codec_ratio'):.1f}",
                     f"{target:.3f}" if target else "", *densities(runs) * step_densities,
                     *flushes(runs) * flushed, str(sum(run["skipped_steps"] for run in runs))]
            if times:
                part = lambda take: f"{1e3 * statistics.mean(take(run['course']) for run in runs):.2f}"
                cells += [part(lambda course: course["step_seconds"]["tenth"]),
                          part(lambda course: course["coding_seconds"])]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def table_for(found: dict, study: dict):
    if is_by_loss(study):
        return loss_table
    if is_grid(found):
        return grid_table
    return pipeline_table if is_of_pipelines(found) else attack_table if is_of_attacks(found) else table


def page_of(file: pathlib.Path, study: dict, rows: list[dict], kept: dict[str, dict]) -> list[str]:
    found = by_case(rows, kept)
    return [f"# {study['title']}", "", *study.get("about", "").strip().splitlines(), "",
            f"Command: `tools/study.py studies/{file.name} --data DIR`. "
            f"{results_page.machines([*kept.values()])}. "
            f"{results_page.commits([*kept.values()])} (each run's own is in `runs/{file.stem}.jsonl`). "
            "Means over seeds ± half the 95 % confidence interval (Student's t); differences are "
            "paired by seed.", "",
            *table_for(found, study)(study, found), ""]


def what(run: dict) -> dict:
    """Its recipe, wherever it computed."""
    return {key: value for key, value in run["settings"].items() if key != "run.device"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--data", help="folder with data sets; else as thinwire finds them")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out")
    parser.add_argument("--program", default=str(ROOT / "build/thinwire"))
    parser.add_argument("--commit", default=results_page.commit(), help="that the program was built from")
    parser.add_argument("--device", default="cpu", help="that runs compute on")
    parser.add_argument("--gpu", default="", help="of runs that computed on one; else this machine's")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--table-only", action="store_true")
    options = parser.parse_args()
    study = tomllib.loads(options.file.read_text())
    out = options.out / options.file.stem
    kept = kept_runs.FOLDER / f"{options.file.stem}.jsonl"
    unpacked = options.out / f"{options.file.stem}.kept"
    kept_runs.unpack(kept, unpacked)
    data = ["--data", options.data] if options.data else []
    device = ["--set", f"run.device={options.device}"]
    base = options.file.with_suffix(".base.toml")
    if base.exists() and not options.table_only:
        code = subprocess.run([options.program, "sweep", str(base), "--out", f"out/{base.stem}", *data, *device]).returncode
        if code != 0:
            return code
    command = [options.program, "sweep", str(options.file), "--out", str(out),
               "--kept", str(unpacked), "--at-once", str(options.at_once)]
    code = subprocess.run(command + data + device + ["--table-only"] * options.table_only).returncode
    rows = [] if code == 2 else read_json(out / "sweep.json") or []
    if not rows:
        print(f"{options.file}: no run has finished, so that the page stays as it is", file=sys.stderr)
        return code or 1
    before = kept_runs.read(kept)
    for name in (name for row in rows for name in row["runs"] if name not in row.get("kept", [])):
        made = read_json(out / name / "summary.json")
        if not made or not made["finished"]:  # stopped: the sweep goes on with it when it is called again
            continue
        if name not in before or what(before[name]) != what(made):
            kept_runs.put(kept, name, summary_of(out / name, options.commit, options.gpu or results_page.gpu()))
    page = page_of(options.file, study, rows, kept_runs.read(kept))
    result = ROOT / "docs/results" / f"{options.file.stem}.md"
    results_page.write(result, page)
    print("\n".join(page))
    return code


if __name__ == "__main__":
    sys.exit(main())
