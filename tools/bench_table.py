#!/usr/bin/env python3
"""Runs the benchmark programs of a build folder; prints one table and writes bench.json.

usage: bench_table.py BUILD_FOLDER [REGEX] [--page FILE]

REGEX selects benchmarks by name. A page gets the table as Markdown, below what already stands there.

Rows: name, seconds, gb_per_s, over_stream (time as a multiple of r[i] += g[i] over the same count, in
the same run), over_budget (below 1 is met) where the benchmark has a budget, and what else it counts.
Rows codec/NAME, of every codec, make a table of their own: encode_gb_s, decode_gb_s, bits, ratio,
relative_error, beside what reading memory (scan_gb_s) and r[i] += g[i] (stream_gb_s) did meanwhile.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import results_page

NEEDS_LINK = "wire_bench"  # of lab/, which runs it
SCALE = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
STANDARD = {
    "name", "run_name", "run_type", "family_index", "per_family_instance_index", "repetitions",
    "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit",
}


def run(program: pathlib.Path, pattern: str) -> dict:
    command = [str(program), "--benchmark_format=json", f"--benchmark_filter={pattern}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program.name} failed:\n{done.stderr}")
    return json.loads(done.stdout) if done.stdout.strip() else {"benchmarks": []}


def row_of(entry: dict) -> dict:
    row = {"name": entry["run_name"].split("/iterations")[0].removeprefix("BM_")}
    row["seconds"] = entry["real_time"] * SCALE[entry["time_unit"]]
    row.update({key: value for key, value in entry.items() if key not in STANDARD})
    return row


CODECS = (("codec", None, ""), ("encode GB/s", "encode_gb_s", ".2f"), ("decode GB/s", "decode_gb_s", ".2f"),
          ("bits per value", "bits", ".3f"), ("ratio", "ratio", ".1f"),
          ("relative error", "relative_error", ".4f"), ("reading, GB/s", "scan_gb_s", ".1f"),
          ("r += g, GB/s", "stream_gb_s", ".1f"))


def codec_table(rows: list[dict]) -> list[str]:
    lines = ["| " + " | ".join(heading for heading, _, _ in CODECS) + " |",
             "| --- |" + " ---: |" * (len(CODECS) - 1)]
    for row in rows:
        if row["name"].startswith("codec/"):
            name = row["name"].removeprefix("codec/")
            lines.append("| " + " | ".join([f"`{name}`"] + [format(row[key], how) for _, key, how in CODECS[1:]])
                         + " |")
    return lines if len(lines) > 2 else []


def write_page(page: pathlib.Path, document: dict) -> None:
    lines = [f"{document['processor']}, {document['cores']} cores, commit {results_page.commit()}. Times are medians; "
             "multiples are medians of ratios taken side by side in one run.", "",
             *codec_table(document["rows"]), "",
             "| what | ms | GB/s | x stream | x budget |", "| --- | ---: | ---: | ---: | ---: |"]
    for row in document["rows"]:
        if row["name"].startswith("codec/"):
            continue
        cells = [f"`{row['name']}`", f"{row['seconds'] * 1e3:.3f}"]
        cells += [f"{row[key]:.2f}" if key in row else ""
                  for key in ("gb_per_s", "over_stream", "over_budget")]
        lines.append("| " + " | ".join(cells) + " |")
    text = page.read_text() if page.exists() else "# Speed\n\n"
    text = text.split("<!-- figures -->")[0].rstrip("\n") + "\n\n<!-- figures -->\n\n"
    page.write_text(text + "\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("pattern", nargs="?", default=".", metavar="REGEX")
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    build, pattern = options.build, options.pattern
    rows, context = [], {}
    print(f"{'':44} {'ms':>9} {'GB/s':>7} {'x stream':>9} {'x budget':>9}")
    for program in sorted(set(build.glob("*_bench")) - {build / NEEDS_LINK}):
        result = run(program, pattern)
        context = result.get("context", context)
        for entry in result["benchmarks"]:
            row = row_of(entry)
            rows.append(row)
            cells = [f"{row['name']:44}", f"{row['seconds'] * 1e3:9.3f}"]
            for key, width in (("gb_per_s", 7), ("over_stream", 9), ("over_budget", 9)):
                value = row.get(key)
                cells.append(f"{value:{width}.2f}" if value is not None else " " * width)
            print(" ".join(cells), flush=True)
    cpu = results_page.processor()
    document = {"processor": cpu, "cores": context.get("num_cpus"), "date": context.get("date"),
                "rows": rows}
    (build / "bench.json").write_text(json.dumps(document, indent=1) + "\n")
    print("\n".join(["", *codec_table(rows)]))
    if options.page:
        write_page(options.page, document)
    print(f"\n{cpu}, {context.get('num_cpus')} cores; rows in {build / 'bench.json'}")


if __name__ == "__main__":
    main()
