#!/usr/bin/env python3
"""Asks whether compression changes which training samples are influential, and writes docs/results/influence.md.

usage: influence_study.py [--program build/thinwire] [--data DIR] [--work FOLDER] [--page FILE] [--epochs N] [--samples N]
           [--seeds N] [--model NAME] [--hidden N] [--of N] [--threads N]

Every variant trains a network by the demo recipe on Fashion-MNIST with 5 % planted wrong labels, the same ones in every run, and
keeps a checkpoint of each epoch. Then thinwire influence gives the influence of every training sample on the first test samples
and on itself. Variants are compared with dense training of the same seed. How far two seeds of dense training are apart is the
yardstick. Finished runs in FOLDER are not made again.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import array
import json
import pathlib
import statistics
import subprocess
import sys

import results_page

VARIANTS = {
    "dense": {},
    "sidco:density=0.01": {"exchange.codec": "sidco:density=0.01"},
    "int8": {"exchange.codec": "int8"},
    "dense, small checkpoints": {"checkpoint.compress": "quantised:tolerance=0.05,samples=500,trials=8"},
}
LOOKED_AT = (0.05, 0.1, 0.2)
NEAREST = 20  # proponents whose overlap is counted


def read_arrays(path: pathlib.Path) -> dict[str, array.array]:
    """The arrays of a safetensors file, each as one sequence."""
    raw = path.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    header.pop("__metadata__", None)
    arrays = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        arrays[name] = array.array({"F64": "d", "I64": "q"}[entry["dtype"]], raw[begin + first:begin + end])
    return arrays


def ranks(values) -> list[int]:
    """The place of each value in their order, the smallest first."""
    places = [0] * len(values)
    for place, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        places[index] = place
    return places


def spearman(a, b) -> float:
    """The rank correlation of two sequences without equal values."""
    count = len(a)
    squares = sum((x - y) ** 2 for x, y in zip(ranks(a), ranks(b)))
    return 1 - 6 * squares / (count * (count * count - 1))


def top(values, count: int) -> set[int]:
    return set(sorted(range(len(values)), key=values.__getitem__, reverse=True)[:count])


def shares_found(arrays) -> dict[str, float]:
    """Of the wrong labels, the share among the samples with the largest self-influence."""
    wrong = {i for i, (now, true) in enumerate(zip(arrays["labels"], arrays["true_labels"])) if now != true}
    return {str(share): len(wrong & top(arrays["self"], round(share * len(arrays["self"])))) / len(wrong)
            for share in LOOKED_AT}


def likeness(arrays, others) -> dict[str, float]:
    """How alike two runs are in who is influential: over all training samples, means over the test samples."""
    training = len(arrays["self"])
    rows = [(arrays["influence"][i:i + training], others["influence"][i:i + training])
            for i in range(0, len(arrays["influence"]), training)]
    return {"self": spearman(arrays["self"], others["self"]),
            "influence": statistics.mean(spearman(a, b) for a, b in rows),
            "proponents": statistics.mean(len(top(a, NEAREST) & top(b, NEAREST)) / NEAREST for a, b in rows)}


def call(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}: ended with {ended.returncode}\n{ended.stderr}")
    return ended.stdout


def run(options, variant: str, seed: int):
    """Test error and scores of one run."""
    name = "-".join(part for part in variant.replace(":", " ").replace("=", " ").replace(",", " ").split())
    out = pathlib.Path(options.work) / f"{options.model}-{options.hidden}-{name}-{options.samples}-{options.epochs}-seed{seed}"
    settings = {"model.name": options.model, "model.hidden": options.hidden, "data.train_samples": options.samples, "data.hold_out": 2000, "data.wrong_labels": 0.05,
                "train.epochs": options.epochs, "train.seed": seed, "train.evaluate_every": 0,
                "checkpoint.keep": 1000, "exchange.codec": "fp32", "run.threads": options.threads, **VARIANTS[variant]}
    if not (out / "summary.json").exists():
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        call([options.program, "train", "demo", "--workers", "2", "--out", str(out), "--data", options.data, *words])
    scores = out / f"scores-{options.of}.safetensors"
    if not scores.exists():
        call([options.program, "influence", str(out), "--data", options.data, "--json", "--scores", str(scores),
              "--of", *map(str, range(options.of))])
    return json.loads((out / "summary.json").read_text())["final_test_error"], read_arrays(scores)


def cell(values: list[float], scale: float = 1, digits: int = 2) -> str:
    text = f"{scale * statistics.mean(values):.{digits}f}"
    return text + (f" ± {scale * statistics.stdev(values):.{digits}f}" if len(values) > 1 else "")


def measure(options, seeds) -> tuple[list[str], list[str]]:
    """The lines of both tables."""
    dense = {seed: run(options, "dense", seed) for seed in seeds}
    found, alike = [], []
    for variant in VARIANTS:
        runs = {seed: run(options, variant, seed) for seed in seeds}
        shares = [shares_found(arrays) for _, arrays in runs.values()]
        found.append(f"| {variant} | {cell([error for error, _ in runs.values()], 100)} | "
                     + " | ".join(cell([share[str(at)] for share in shares], 100, 1) for at in LOOKED_AT) + " |")
        pairs = [(dense[seed][1], runs[seed][1]) for seed in seeds]
        label = variant
        if variant == "dense":
            label = "dense, another seed"
            pairs = [(dense[a][1], dense[b][1]) for i, a in enumerate(seeds) for b in seeds[i + 1:]]
        if pairs:
            like = [likeness(*pair) for pair in pairs]
            alike.append(f"| {label} | " + " | ".join(
                cell([one[key] for one in like], *(1, 3) if key != "proponents" else (100, 1))
                for key in ("self", "influence", "proponents")) + " |")
        print(found[-1], *alike[-1:], sep="\n", flush=True)
    return found, alike


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/thinwire")
    parser.add_argument("--data", default="/usr/share/datasets")
    parser.add_argument("--work", default="out/influence")
    parser.add_argument("--page", default="docs/results/influence.md")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10000, help="that are trained on")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--model", default="cnn-mnist")
    parser.add_argument("--hidden", type=int, default=512, help="units of its hidden layers")
    parser.add_argument("--of", type=int, default=100, help="test samples whose proponents are compared")
    parser.add_argument("--commit", default=results_page.commit(), help="that the program was built from")
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    options = parser.parse_args()
    seeds = list(range(1, options.seeds + 1))
    found, alike = measure(options, seeds)
    results_page.write(pathlib.Path(options.page), f"""# Influence and compression

Does compression change which training samples are influential? [influence.md](../influence.md) says what influence is. The
network `{options.model}` with {options.hidden} hidden units was trained by the demo recipe, by two workers, on {options.samples:,} images of Fashion-MNIST for {options.epochs} epochs,
with a checkpoint after each, and {len(seeds)} seed{"s" if len(seeds) > 1 else ""}. The labels of 5 % of the training images were made wrong, the same
ones in every run. Entries are means{" ± standard deviations" if len(seeds) > 1 else ""} over seeds, or over pairs of seeds.

Test error in per cent, and the share of the wrong labels, in per cent, among the training samples that come first in the ranking by
influence on themselves. By chance the first 5 % of the samples have 5 % of the wrong labels.

| training | test error | first 5 % | first 10 % | first 20 % |
| --- | ---: | ---: | ---: | ---: |
{chr(10).join(found)}

The same samples as in dense training? Each run is compared with dense training of the same seed: the rank correlation (Spearman)
over all training samples of influence on themselves, that of influence on a test sample, and the share, in per cent, of the {NEAREST} strongest
proponents of a test sample that are the same. The last two are means over {options.of} test samples. The first line compares two seeds
of dense training, which is what chance alone changes.

| compared with dense training | influence on itself | influence on a test sample | same proponents |
| --- | ---: | ---: | ---: |
{chr(10).join(alike)}

Small checkpoints are `checkpoint.compress = "{VARIANTS["dense, small checkpoints"]["checkpoint.compress"]}"`.

Command: `{' '.join(["tools/influence_study.py", *sys.argv[1:]])}`, on {results_page.processor()}, {results_page.cores()} cores, commit
{options.commit}.""".splitlines())


if __name__ == "__main__":
    main()
