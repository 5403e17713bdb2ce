"""Tables for studies of pipelines, called by study.py: errors with compression off and on, and bytes between stages.

Language models are judged by their perplexity, exp(loss) of the test samples, others by their errors.
"""
import math
import statistics

from loss_table import with_spread


def boundaries_of(lines: list[dict]) -> dict:
    """What the last step of metrics.jsonl sent over each cut, and how long workers waited; empty without cuts."""
    steps = [line["pipeline"] for line in lines if "pipeline" in line]
    if not steps:
        return {}
    return {"boundaries": steps[-1]["boundaries"],
            "idle_share": statistics.median(step["idle_share"] for step in steps)}


def is_language(run: dict) -> bool:
    return run["settings"]["model.name"].startswith("gpt")


def megabytes(run: dict, direction: str) -> str:
    """Of all cuts, in a step, with the times by which fp32 would be more."""
    sides = [boundary[direction] for boundary in run["boundaries"]]
    sent = sum(side["message_bytes"] for side in sides)
    return f"{sent / 1e6:.3f} ({4 * sum(side['values'] for side in sides) / sent:.1f}x)"


def judged(run: dict) -> list[float]:
    """Compression off, then on: held-out errors in percent where there are any, or perplexities."""
    if is_language(run):
        return [math.exp(run["final_test_loss"]), math.exp(run["final_compressed_test_loss"])]
    part = "hold_out" if run.get("final_hold_out_error") is not None else "test"
    return [100 * run[f"final_{part}_error"], 100 * run[f"final_compressed_{part}_error"]]


def runs_of(found: dict) -> list[dict]:
    return [run for variants in found.values() for seeds in variants.values() for run in seeds.values()]


def is_of_pipelines(found: dict) -> bool:
    runs = runs_of(found)
    return bool(runs) and all("boundaries" in run for run in runs)


def pipeline_table(study: dict, found: dict) -> list[str]:
    """Rows of {case: {variant: {seed: summary}}}; differences are to the study's first variant, by seed. A table for each case. Where
    nothing is compressed in any run, one error is shown; where schedules differ, the share of their time in which stages wait."""
    runs = runs_of(found)
    what = "perplexity" if is_language(runs[0]) else "error %"
    modes = [0, 1] if any(judged(run)[0] != judged(run)[1] for run in runs) else [1]
    has_schedules = len({run["settings"].get("pipeline.schedule", "") for run in runs}) > 1
    errors = [f"{what}, compression off", f"{what}, on"] if len(modes) == 2 else [what, what]
    titles = ["variant", "seeds", *(title for mode in modes for title in (errors[mode], "difference")),
              *["stages wait, %"] * has_schedules, "MB forward", "MB back"]
    lines: list[str] = []
    for case, variants in found.items():
        lines += ["", f"## {case}", ""] * (len(found) > 1)
        lines += ["| " + " | ".join(titles) + " |", "| --- |" + " ---: |" * (len(titles) - 1)]
        base = variants.get(study["first"], {})
        for variant, seeds in variants.items():
            cells = [variant, str(len(seeds))]
            for mode in modes:
                values = [judged(run)[mode] for run in seeds.values()]
                pairs = [judged(seeds[s])[mode] - judged(base[s])[mode]
                         for s in seeds if s in base and variant != study["first"]]
                cells += [with_spread(values, 2), with_spread(pairs, 2, sign="+") if pairs else ""]
            if has_schedules:
                cells.append(with_spread([100 * run["idle_share"] for run in seeds.values()], 0))
            run = next(iter(seeds.values()))
            cells += [megabytes(run, "forward"), megabytes(run, "backward")]
            lines.append("| " + " | ".join(cells) + " |")
    return lines[1:] if len(found) > 1 else lines
