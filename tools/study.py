#!/usr/bin/env python3
"""Runs a study (cases x variants x seeds of recipes), resumably, and writes its table.

usage: study.py FILE.toml [--data DIR] [--out FOLDER] [--table-only] [--workers-at-once N]

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

Every run goes to FOLDER/<study>/<case>-<variant>-seed<n>; a finished one is not run again, an
interrupted one is resumed from its checkpoint. The page goes to docs/results/<study>.md.
"""
import argparse
import json
import math
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


def summary_of(folder: pathlib.Path) -> dict | None:
    path = folder / "summary.json"
    if not path.exists():
        return None
    summary = json.loads(path.read_text())
    return summary if summary.get("finished", True) else None


def text_of(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value)


def run(folder: pathlib.Path, case: dict, settings: dict, data: str | None) -> None:
    command = [str(ROOT / "build/thinwire"), "train", case["recipe"], "--out", str(folder)]
    command += ["--workers", str(case.get("workers", 1))]
    if data:
        command += ["--data", data]
    if any(folder.glob("checkpoint*")):
        command += ["--resume", str(folder)]
    for key, value in settings.items():
        command += ["--set", f"{key}={text_of(value)}"]
    folder.mkdir(parents=True, exist_ok=True)
    began = time.time()
    with open(folder / "log.txt", "a") as log:
        code = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL).returncode
    print(f"{folder.name}: {'ok' if code == 0 else f'exit {code}'} in {time.time() - began:.0f} s",
          flush=True)


def percent(values: list[float]) -> str:
    half = interval(values)
    return f"{100 * statistics.mean(values):.2f}" + ("" if math.isnan(half) else f" ± {100 * half:.2f}")


def table(study: dict, out: pathlib.Path) -> list[str]:
    found: dict = {}
    for name, case, variant, seed, _ in runs_of(study):
        summary = summary_of(out / f"{name}-{variant}-seed{seed}")
        if summary:
            found.setdefault(name, {}).setdefault(variant, {})[seed] = (summary, case)
    lines = ["| case | variant | seeds | workers | final error % | difference in points | "
             "bytes sent per step and rank | wire ratio | codec ratio | kept / target | skipped | s |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, variants in found.items():
        base = variants.get(study["first"], {})
        for variant, seeds in variants.items():
            rows = [summary for summary, _ in seeds.values()]
            mean = lambda key: statistics.mean(row[key] for row in rows)
            pairs = [seeds[s][0]["final_test_error"] - base[s][0]["final_test_error"]
                     for s in seeds if s in base and variant != study["first"]]
            target = mean("achieved_over_target")
            lines.append(
                f"| {name} | {variant} | {len(rows)} | {rows[0]['world_size']} "
                f"| {percent([row['final_test_error'] for row in rows])} "
                f"| {percent(pairs) if pairs else ''} | {mean('sent_bytes_per_step'):,.0f} "
                f"| {mean('wire_ratio'):.1f} | {mean('codec_ratio'):.1f} "
                f"| {f'{target:.3f}' if target else ''} | {sum(row['skipped_steps'] for row in rows)} "
                f"| {mean('seconds'):.0f} |")
    return lines


def commit() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                          text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--data")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out")
    parser.add_argument("--table-only", action="store_true")
    options = parser.parse_args()
    study = tomllib.loads(options.file.read_text())
    out = options.out / options.file.stem
    if not options.table_only:
        for name, case, variant, seed, settings in runs_of(study):
            folder = out / f"{name}-{variant}-seed{seed}"
            if summary_of(folder) is None:
                run(folder, case, settings, options.data)
    processor = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                      if line.startswith("model name")), "unknown")
    page = [f"# {study['title']}", "", *study.get("about", "").strip().splitlines(), "",
            f"Command: `tools/study.py studies/{options.file.name} --data DIR`. "
            f"Processor: {processor}, {len(__import__('os').sched_getaffinity(0))} cores. "
            f"Commit: {commit()}. Means over seeds ± half the 95 % confidence interval "
            "(Student's t); differences are paired by seed.", "", *table(study, out), ""]
    result = ROOT / "docs/results" / f"{options.file.stem}.md"
    notes = result.read_text().split("## Notes", 1) if result.exists() else [""]
    if len(notes) == 2:
        page += ["## Notes" + notes[1].rstrip("\n"), ""]
    result.write_text("\n".join(page))
    print("\n".join(page))


if __name__ == "__main__":
    sys.exit(main())
