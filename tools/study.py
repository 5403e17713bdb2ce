#!/usr/bin/env python3
"""Runs a study (cases x variants x seeds of recipes), resumably, and writes its table.

usage: study.py FILE.toml [--data DIR] [--out FOLDER] [--program FILE] [--commit ID] [--at-once N]
                [--table-only]

A study file:

    title = "..."                     # heading of the result page
    first = "dense"                   # the variant that others are compared with, seed by seed
    seeds = [1, 2, 3]
    [variants.dense]                  # recipe settings; 'section.key' = value
    "exchange.codec" = "fp32"
    [[cases]]
    recipe = "adacomp-mnist"
    workers = 4
    variants = ["dense", "adacomp"]   # all when absent
    settings = {"train.epochs" = 3}

Every run goes to FOLDER/<study>/<case>-<variant>-seed<n>; an interrupted one is resumed from its
checkpoint. What a finished one came to is kept in docs/results/runs/<study>/, and it is not run
again while that file is there. The page goes to docs/results/<study>.md; what stands there below
"## Notes" stays.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom.
T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]


def interval(values: list[float]) -> float:
    """Half the width of the 95 % confidence interval of the mean; nan for one value."""
    if len(values) < 2:
        return math.nan
    t = T95[min(len(values) - 2, len(T95) - 1)]
    return t * statistics.stdev(values) / math.sqrt(len(values))


def runs_of(study: dict):
    for case in study["cases"]:
        name = case.get("name", case["recipe"])
        for variant in case.get("variants", list(study["variants"])):
            for seed in case.get("seeds", study["seeds"]):
                settings = {**case.get("settings", {}), **study["variants"][variant],
                            **case.get(variant, {}), "train.seed": seed}
                yield name, case, variant, seed, settings


def name_of(case: str, variant: str, seed: int) -> str:
    return f"{case}-{variant}-seed{seed}".replace(", ", "-").replace(" ", "-")


def read_json(path: pathlib.Path) -> dict | None:
    return json.loads(path.read_text()) if path.exists() else None


# Of metrics.jsonl: the codec ratio of each kind of tensor over the course of training, as
# {kind: [[epoch, ratio], ...]}, means over a twentieth of the run each.
def ratios_over_time(metrics: pathlib.Path) -> dict:
    steps = [line for line in map(json.loads, metrics.open()) if "kinds" in line]
    width = max(1, len(steps) // 20)
    found: dict = {}
    for begin in range(0, len(steps) - width + 1, width):
        part = steps[begin:begin + width]
        for kind in part[0]["kinds"]:
            values = sum(line["kinds"][kind]["values"] for line in part)
            sent = sum(line["kinds"][kind]["payload_bytes"] for line in part)
            if sent:
                found.setdefault(kind, []).append([round(part[-1]["epoch"], 3),
                                                   round(4 * values / sent, 2)])
    return found


def text_of(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value)


def run(options: argparse.Namespace, folder: pathlib.Path, kept: pathlib.Path, case: dict,
        settings: dict) -> None:
    command = [options.program, "train", case["recipe"], "--out", str(folder)]
    command += ["--workers", str(case.get("workers", 1))]
    if options.data:
        command += ["--data", options.data]
    if any(folder.glob("checkpoint*")):
        command += ["--resume", str(folder)]
    for key, value in settings.items():
        command += ["--set", f"{key}={text_of(value)}"]
    folder.mkdir(parents=True, exist_ok=True)
    began = time.time()
    with open(folder / "log.txt", "a") as log:
        code = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL).returncode
    summary = read_json(folder / "summary.json")
    if code == 0 and summary and summary.get("finished", True):
        summary["ratios_over_time"] = ratios_over_time(folder / "metrics.jsonl")
        summary["commit"] = options.commit
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{folder.name}: {'ok' if code == 0 else f'exit {code}'} in {time.time() - began:.0f} s",
          flush=True)


def percent(values: list[float]) -> str:
    half = interval(values)
    return f"{100 * statistics.mean(values):.2f}" + ("" if math.isnan(half) else f" ± {100 * half:.2f}")


# One row per case and variant: means over seeds.
def table(study: dict, kept: pathlib.Path) -> list[str]:
    found: dict = {}
    for name, case, variant, seed, _ in runs_of(study):
        summary = read_json(kept / f"{name_of(name, variant, seed)}.json")
        if summary:
            found.setdefault(name, {}).setdefault(variant, {})[seed] = summary
    lines = ["| case | variant | seeds | workers | epochs | test error % | difference in points | "
             "held-out error % | difference | bytes per step and rank | wire ratio | codec ratio | "
             "kept / target | skipped |", "| --- " * 14 + "|"]
    for name, variants in found.items():
        base = variants.get(study["first"], {})
        for variant, seeds in variants.items():
            rows = list(seeds.values())
            mean = lambda key: statistics.mean(row[key] for row in rows)

            def errors(key: str) -> list[str]:
                if rows[0].get(key) is None:
                    return ["", ""]
                pairs = [seeds[s][key] - base[s][key] for s in seeds
                         if s in base and variant != study["first"]]
                return [percent([row[key] for row in rows]), percent(pairs) if pairs else ""]

            target = mean("achieved_over_target")
            cells = [name, variant, str(len(rows)), str(rows[0]["world_size"]),
                     f"{rows[0]['settings']['train.epochs']}", *errors("final_test_error"),
                     *errors("final_hold_out_error"), f"{mean('sent_bytes_per_step'):,.0f}",
                     f"{mean('wire_ratio'):.1f}", f"{mean('codec_ratio'):.1f}",
                     f"{target:.3f}" if target else "",
                     str(sum(row["skipped_steps"] for row in rows))]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


# The programs that made the runs kept in the folder, by commit.
def commits(kept: pathlib.Path) -> str:
    found = sorted({read_json(path)["commit"] for path in kept.glob("*.json")})
    return ("Commit: " if len(found) == 1 else "Commits: ") + ", ".join(found)


def commit() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                          text=True).stdout.strip()


def page_of(file: pathlib.Path, study: dict, kept: pathlib.Path) -> list[str]:
    processor = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                      if line.startswith("model name")), "unknown")
    return [f"# {study['title']}", "", *study.get("about", "").strip().splitlines(), "",
            f"Command: `tools/study.py studies/{file.name} --data DIR`. "
            f"Processor: {processor}, {len(os.sched_getaffinity(0))} cores. "
            f"{commits(kept)} (each run's own is in `runs/{file.stem}/`). "
            "Means over seeds ± half the 95 % confidence interval (Student's t); differences are "
            "paired by seed.", "", *table(study, kept), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--data")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out")
    parser.add_argument("--program", default=str(ROOT / "build/thinwire"))
    parser.add_argument("--commit", default=commit(), help="that the program was built from")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--table-only", action="store_true")
    options = parser.parse_args()
    study = tomllib.loads(options.file.read_text())
    out = options.out / options.file.stem
    kept = ROOT / "docs/results/runs" / options.file.stem
    if not options.table_only:
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            for name, case, variant, seed, settings in runs_of(study):
                run_name = name_of(name, variant, seed)
                if not (kept / f"{run_name}.json").exists():
                    pool.submit(run, options, out / run_name, kept / f"{run_name}.json", case,
                                settings)
    page = page_of(options.file, study, kept)
    result = ROOT / "docs/results" / f"{options.file.stem}.md"
    notes = result.read_text().split("## Notes", 1) if result.exists() else [""]
    if len(notes) == 2:
        page += ["## Notes" + notes[1].rstrip("\n"), ""]
    result.write_text("\n".join(page))
    print("\n".join(page))


if __name__ == "__main__":
    sys.exit(main())
