#!/usr/bin/env python3
"""Writes src/plan/known_accuracy_table.cc, what the program knows of codecs' accuracy, from the runs of docs/results/methods.md and,
before them, of docs/results/defaults.md, which has more seeds.

    tools/known_accuracy.py            writes it
    tools/known_accuracy.py --check    fails if it would be another
"""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import statistics
import sys

import kept_runs

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "src/plan/known_accuracy_table.cc"
HEAD = """// What committed results say about the accuracy of codecs. Written by tools/known_accuracy.py.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec_choice.h"

namespace thinwire {

// From docs/results/runs/defaults.jsonl, else methods.jsonl: error in points above that of fp32,
// same recipe and seeds; on held-out samples where there are some.
std::span<const KnownAccuracy> known_accuracies() {
  static constexpr KnownAccuracy kAll[] = {
"""
TAIL = """  };
  return kAll;
}

}  // namespace thinwire
"""


# Those whose default puts the optimiser's momentum into the memory (docs/memories.md). Where there is momentum, runs that have it
# elsewhere say nothing of the default.
IN_MEMORY = {"topk", "sidco", "dgc", "adacomp", "redsync", "gaussiank", "threshold", "randomk", "srht",
             "countsketch", "scalecom", "lgc"}
# Ran before `ahead` was the default: codec and network.
OTHER_MEMORY = {("scalecom:density=0.01", "resnet20")}


def rows(studies: list[list[dict]]) -> list[str]:
    """The lines of all studies; of the first that has it, where several have a codec and recipe."""
    lines: dict[tuple, str] = {}
    for runs in reversed(studies):
        lines.update(lines_of(runs))
    return [line for _, line in sorted(lines.items())]


def lines_of(runs: list[dict]) -> dict[tuple, str]:
    """One line for each codec and recipe, with the memory that the codec has by default or its own."""
    errors = {}
    for run in runs:
        settings = run["settings"]
        codec, memory = settings["exchange.codec"], settings["exchange.feedback"]
        own_memory = memory == "auto" or memory.startswith(codec.split(":")[0])
        if settings["exchange.grouping"] != "auto" or not own_memory or "(" in codec:  # a schedule has no step of its own
            continue
        name = codec.split(":")[0]
        if float(settings["optimizer.momentum"]) != 0:
            if settings.get("exchange.momentum") == "memory":  # asked for: not the default
                continue
            if name in IN_MEMORY and settings.get("exchange.momentum") != "auto":
                continue
            if (codec, settings["model.name"]) in OTHER_MEMORY:
                continue
        case = (settings["model.name"], settings["train.epochs"])
        # Held-out images are ten times as many as those of the test.
        errors.setdefault((codec, *case), {})[settings["train.seed"]] = run.get(
            "final_hold_out_error", run["final_test_error"])
    lines = {}
    for (codec, model, epochs), by_seed in errors.items():
        dense = errors[("fp32", model, epochs)]
        seeds = sorted(by_seed.keys() & dense.keys())
        points = 100 * statistics.mean(by_seed[seed] - dense[seed] for seed in seeds)
        if codec != "fp32":
            lines[codec, model, epochs] = f'      {{"{codec}", "{model}", {epochs}, {points:.2f}, {len(seeds)}}},\n'
    return lines


def main() -> int:
    studies = [list(kept_runs.read(ROOT / f"docs/results/runs/{name}.jsonl").values()) for name in ("defaults", "methods")]
    text = HEAD + "".join(rows(studies)) + TAIL
    if "--check" not in sys.argv[1:]:
        TABLE.write_text(text)
        return 0
    if TABLE.read_text() == text:
        return 0
    print(f"{TABLE.relative_to(ROOT)}: is not what the runs say; run tools/known_accuracy.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
