"""Tables of studies whose `judge` is "loss", called by study.py: the loss on the test set and its difference from `first` in per cent,
beside what a rank sends.
"""
# SPDX-License-Identifier: Apache-2.0
import math
import statistics

import student

NAMES = ["variant", "seeds", "test loss", "difference", "bytes per step and rank", "fewer", "most bytes in a step"]


def is_by_loss(study: dict) -> bool:
    return study.get("judge") == "loss"


def with_spread(values: list[float], digits: int, unit: str = "", sign: str = "") -> str:
    half = student.interval(values)
    spread = "" if math.isnan(half) else f" ± {half:.{digits}f}"
    return f"{statistics.mean(values):{sign}.{digits}f}{spread}{unit}"


def loss_table(study: dict, found: dict) -> list[str]:
    """A table for each case."""
    lines: list[str] = []
    for case, variants in found.items():
        lines += ["", f"## {case}"] * (len(found) > 1) + ["", "| " + " | ".join(NAMES) + " |",
                                                          "| --- |" + " ---: |" * (len(NAMES) - 1)]
        first = variants.get(study["first"], {})
        for variant, seeds in variants.items():
            lines.append("| " + " | ".join(cells(variant, seeds, first)) + " |")
    return lines[1:]


def cells(variant: str, seeds: dict[int, dict], first: dict[int, dict]) -> list[str]:
    losses = [run["final_test_loss"] for run in seeds.values()]
    sent = statistics.mean(run["sent_bytes_per_step"] for run in seeds.values())
    paired = [seed for seed in seeds if seed in first] if seeds is not first else []
    above = [100 * (seeds[seed]["final_test_loss"] / first[seed]["final_test_loss"] - 1) for seed in paired]
    whole = statistics.mean(run["sent_bytes_per_step"] for run in first.values()) if first else math.nan
    return [variant, str(len(seeds)), with_spread(losses, 3), with_spread(above, 1, " %") if above else "",
            f"{sent:,.0f}", f"{whole / sent:.1f} x" if first and sent > 0 else "",
            f"{max(run['peak_sent_bytes'] for run in seeds.values()):,.0f}"]
