#!/usr/bin/env python3
"""Times robust rules beside those of ByzFL, compares their results, and writes a page.

    .venv/bin/pip install --no-deps --target DIR byzfl
    cmake --build build --target rule_time
    PYTHONPATH=DIR .venv/bin/python lab/compare_rules.py --page docs/results/robust-speed.md

Both work on one thread, on the same rows of normal noise. In each of --rounds rounds every rule runs by
thinwire, by ByzFL and by thinwire again, and thinwire reads the rows once. Medians over the rounds count,
and for the ratio the median of the rounds' ratios: what other programs do meanwhile hits both. A rule that
takes ByzFL more than 10 s is timed once. Results are compared with ByzFL's in double; caf and smea, of which
ByzFL takes one iteration from a random vector, with a loop over the same formulas that asks numpy for
eigenvalues.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import importlib.metadata
import importlib.util
import itertools
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))
import results_page  # noqa: E402

NU, MOST_ROUNDS = 1e-6, 5000  # of the geometric median whose result is compared
LONG = 10.0  # seconds; a rule of ByzFL that takes longer is timed once


def byzfl_modules():
    """ByzFL's rules and mixes, without its benchmark, which wants torchvision."""
    if "byzfl" not in sys.modules:
        found = importlib.util.find_spec("byzfl")
        if found is None:
            sys.exit("compare_rules.py: there is no module byzfl; see the top of this file")
        for name in ("byzfl", "byzfl.aggregators", "byzfl.utils"):
            module = types.ModuleType(name)
            module.__path__ = [str(pathlib.Path(found.submodule_search_locations[0], *name.split(".")[1:]))]
            sys.modules[name] = module
    from byzfl.aggregators import aggregators, preaggregators
    return aggregators, preaggregators


def spread(rows: np.ndarray, counts: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The largest eigenvalue of the weighted covariance, its eigenvector, and the mean."""
    mean = counts @ rows / counts.sum()
    away = np.sqrt(counts / counts.sum())[:, None] * (rows - mean)
    values, vectors = np.linalg.eigh(away @ away.T)
    direction = away.T @ vectors[:, -1]
    return values[-1], direction / np.linalg.norm(direction), mean


def caf(rows: np.ndarray, f: int) -> np.ndarray:
    counts, least, best = np.ones(len(rows)), np.inf, rows.mean(axis=0)
    while counts.sum() > len(rows) - 2 * f:
        value, direction, mean = spread(rows, counts)
        if value < least:
            least, best = value, mean
        squares = ((rows - mean) @ direction) ** 2
        counts = counts * (1 - np.minimum(1, squares / squares[counts > 0].max()))
    return best


def smea(rows: np.ndarray, f: int) -> np.ndarray:
    products = rows @ rows.T

    def largest(ranks):
        chosen = products[np.ix_(ranks, ranks)]
        centre = np.eye(len(ranks)) - 1 / len(ranks)
        return np.linalg.eigvalsh(centre @ chosen @ centre)[-1]

    best = min(itertools.combinations(range(len(rows)), len(rows) - f), key=largest)
    return rows[list(best)].mean(axis=0)


def cases(f: int) -> list[tuple]:
    """thinwire's rule, ByzFL's as it is timed, and what its result is compared with, in double.

    ByzFL's Krum counts n - f - 1 neighbours, as thinwire's does with f - 1."""
    rules, mixes = byzfl_modules()
    tau = 500.0

    def mixed(rows):
        return rules.Median()(mixes.NNM(f=f)(rows))

    return [
        ("median", rules.Median(), rules.Median()),
        (f"trimmed_mean:f={f}", rules.TrMean(f=f), rules.TrMean(f=f)),
        (f"mean_around_median:f={f}", rules.Meamed(f=f), rules.Meamed(f=f)),
        (f"krum:f={f - 1}", rules.Krum(f=f), rules.Krum(f=f)),
        (f"multi_krum:f={f - 1},m={{m}}", rules.MultiKrum(f=f), rules.MultiKrum(f=f)),
        (f"mda:f={f}", rules.MDA(f=f), rules.MDA(f=f)),
        (f"geometric_median:nu={NU:g}", rules.GeometricMedian(nu=NU), rules.GeometricMedian(nu=NU, T=MOST_ROUNDS)),
        (f"centred_clipping:tau={tau:g},iterations=3", lambda rows: rules.CenteredClipping(L=3, tau=tau)(rows),
         lambda rows: rules.CenteredClipping(L=3, tau=tau)(rows)),
        (f"caf:f={f}", rules.CAF(f=f), lambda rows: caf(rows, f)),
        (f"smea:f={f}", rules.SMEA(f=f), lambda rows: smea(rows, f)),
        (f"nnm:f={f} then median", mixed, mixed),
        (f"cge:f={f}", None, None),
        (f"bulyan:f={f}", None, None),
        ("licm", None, None),
    ]


class Thinwire:
    """The program rule_time, and the rows in a file."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path, rows: np.ndarray):
        self.program, self.rows, self.result = program, folder / "rows", folder / "result"
        self.ranks = len(rows)
        rows.tofile(self.rows)

    def run(self, rule: str, times: int) -> tuple[list[float], list[float], np.ndarray]:
        """Seconds of the rule, seconds of one read, and the result."""
        command = [str(self.program), str(self.rows), str(self.ranks), rule, str(times), str(self.result)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
        seconds = [[float(number) for number in line.split()] for line in done.stdout.splitlines()]
        return [one for one, _ in seconds], [read for _, read in seconds], np.fromfile(self.result, np.float32)


def difference(program: pathlib.Path, folder: pathlib.Path, rule: str, reference, f: int) -> float:
    """The largest of any value in cases of 9 and 16 rows, some of them far away, over the largest value."""
    most = 0.0
    for ranks, count, hostile in itertools.product((9, 16), (257, 1000), (0, f)):
        rows = np.random.default_rng(ranks + count + hostile).standard_normal((ranks, count))
        rows[:hostile] = 50 * rows[:hostile] + 3
        rows = rows.astype(np.float32)
        found = Thinwire(program, folder, rows).run(rule.format(m=ranks - f), 1)[2]
        wanted = np.asarray(reference(rows.astype(np.float64)))
        most = max(most, float(np.abs(found - wanted).max() / np.abs(wanted).max()))
    return most


def measure(arguments, folder: pathlib.Path) -> list[dict]:
    rows = np.random.default_rng(1).standard_normal((arguments.ranks, arguments.values), np.float32)
    ours, tensor = Thinwire(arguments.program, folder, rows), torch.from_numpy(rows)
    found = []
    for rule, byzfl, reference in cases(arguments.f):
        text = rule.format(m=arguments.ranks - arguments.f)
        times, reads, theirs, ratios = [], [], [], []
        for _ in range(arguments.rounds):
            before, read, _ = ours.run(text, 3)
            if byzfl is not None:
                begin = time.perf_counter()
                byzfl(tensor)
                theirs.append(time.perf_counter() - begin)
            after, read_after, _ = ours.run(text, 3)
            times.append(statistics.median(before + after))
            reads.append(statistics.median(read + read_after))
            if theirs:
                ratios.append(theirs[-1] / times[-1])
                if theirs[-1] > LONG:
                    break
        row = {"rule": text, "ms": 1e3 * statistics.median(times),
               "reads": statistics.median(one / read for one, read in zip(times, reads)),
               "read_ms": 1e3 * statistics.median(reads)}
        if ratios:
            row |= {"byzfl_ms": 1e3 * statistics.median(theirs), "ratio": statistics.median(ratios),
                    "ratios": [min(ratios), max(ratios)]}
        found.append(row)
    for row, (rule, _, reference) in zip(found, cases(arguments.f)):
        if reference is not None:
            row["difference"] = difference(arguments.program, folder, rule, reference, arguments.f)
    return found


def page_of(found: list[dict], arguments) -> list[str]:
    read = statistics.median(row["read_ms"] for row in found)
    lines = [
        "# Robust rules beside ByzFL", "",
        f"{arguments.ranks} rows of {arguments.values:,} values, f = {arguments.f}, one thread each: thinwire, and ByzFL "
        f"{importlib.metadata.version('byzfl')} on torch {torch.__version__.partition('+')[0]}. Reading the rows once took "
        f"{read:.1f} ms, which is the limit for a rule. {results_page.processor()}, {results_page.cores()} cores; "
        f"commit {results_page.commit()}; medians of {arguments.rounds} rounds. Command: `lab/compare_rules.py --page "
        f"{arguments.page}`.", "",
        "| rule | thinwire, ms | reads of the rows | ByzFL, ms | times faster (least and most of the rounds) | "
        "largest difference |", "| --- | --- | --- | --- | --- | --- |"]
    for row in found:
        theirs = ["", "", ""]
        if "ratio" in row:
            least, most = row["ratios"]
            theirs = [f"{row['byzfl_ms']:.0f}", f"{row['ratio']:.1f} ({least:.1f} to {most:.1f})",
                      f"{row['difference']:.0e}"]
        lines.append(f"| `{row['rule']}` | {row['ms']:.1f} | {row['reads']:.1f} | " + " | ".join(theirs) + " |")
    return lines + [
        "", "The largest difference is that of any value in 8 cases of 9 and 16 rows, without and with f rows far away, over the "
        "largest value, from ByzFL's result in double. `caf` and `smea` are compared with numpy's eigenvalues: ByzFL takes one "
        f"power iteration from a random vector. ByzFL's geometric median is timed with its 3 iterations, and compared after "
        f"{MOST_ROUNDS}; thinwire's converges."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/rule_time")
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--f", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page", type=pathlib.Path, help="else the table goes to the terminal")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        lines = page_of(measure(arguments, pathlib.Path(folder)), arguments)
    if arguments.page:
        results_page.write(arguments.page, lines)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
