#!/usr/bin/env python3
"""Measures how well SIDCo's laws fit the tails of recorded gradients: a page with tables, and plots as SVG.

usage: tail_fit.py NAME=SIGNALS ... [--page FILE.md] [--program FILE]

SIGNALS is the folder that a run with --set run.record_every=N left. Needs NumPy and Matplotlib.
For three recorded steps per name it draws the share of values above each magnitude, as measured and
as each law says, fitted once and in stages. Laws and thresholds are computed here from the paper's
formulas, apart from the library: `thinwire measure` then shows what the library's codec makes of
the same vectors, beside exact top-k and a sampled threshold.
"""
import argparse
import json
import math
import pathlib
import struct
import subprocess

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
DENSITIES = (0.1, 0.01, 0.001)
FIRST_STAGE = 0.25
LAWS = ("exponential", "pareto", "gamma_pareto")
TITLES = {"exponential": "exponential (E)", "pareto": "generalised Pareto (P)",
          "gamma_pareto": "gamma, then Pareto (GP)"}


def read_signals(path: pathlib.Path) -> tuple[int, np.ndarray]:
    """The step and all streams' values as one vector."""
    raw = path.read_bytes()
    size, = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + size])
    parts = []
    for name, array in sorted(header.items()):
        if name.endswith("/values"):
            begin, end = array["data_offsets"]
            parts.append(np.frombuffer(raw[8 + size + begin:8 + size + end], "<f4"))
    return int(header["__metadata__"]["step"]), np.concatenate(parts)


# Laws of magnitudes x > 0, by moments as in the paper; tail(x) is the share above x.
class Exponential:
    def __init__(self, x: np.ndarray):
        self.mean = x.mean(dtype=np.float64)

    def tail(self, x):
        return np.exp(-x / self.mean)

    def threshold(self, share: float) -> float:
        return -self.mean * math.log(share)


class Pareto:
    def __init__(self, x: np.ndarray):
        mean, variance = x.mean(dtype=np.float64), x.var(dtype=np.float64, ddof=1)
        q = mean * mean / variance
        self.shape, self.scale = (1 - q) / 2, mean * (q + 1) / 2

    def tail(self, x):
        inside = np.maximum(1 + self.shape * x / self.scale, 0)
        with np.errstate(divide="ignore"):
            return np.where(inside > 0, inside ** (-1 / self.shape), 0)

    def threshold(self, share: float) -> float:
        return self.scale / self.shape * math.expm1(-self.shape * math.log(share))


class Gamma:
    def __init__(self, x: np.ndarray):
        x = x[x > 0]
        mean = x.mean(dtype=np.float64)
        s = math.log(mean) - np.log(x, dtype=np.float64).mean()
        self.shape = (3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
        self.scale = mean / self.shape

    def tail(self, x):
        return np.array([1 - lower_gamma(self.shape, v / self.scale) for v in np.atleast_1d(x)])

    def threshold(self, share: float) -> float:
        low, high = 0.0, 1.0
        while 1 - lower_gamma(self.shape, high) > share:
            high *= 2
        for _ in range(80):
            middle = (low + high) / 2
            low, high = ((middle, high) if 1 - lower_gamma(self.shape, middle) > share
                         else (low, middle))
        return high * self.scale


def lower_gamma(a: float, x: float) -> float:
    """Regularised lower incomplete gamma function: series below a + 1, continued fraction above."""
    if x <= 0:
        return 0.0
    front = math.exp(-x + a * math.log(x) - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while abs(term) > abs(total) * 1e-15:
            n += 1
            term *= x / n
            total += term
        return front * total
    b = x + 1 - a
    c, d = 1e300, 1 / b
    h = d
    for i in range(1, 1000):
        an = -i * (i - a)
        b += 2
        d = 1 / (an * d + b)
        c = b + an / c
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return 1 - front * h


FIRST = {"exponential": Exponential, "pareto": Pareto, "gamma_pareto": Gamma}
LATER = {"exponential": Exponential, "pareto": Pareto, "gamma_pareto": Pareto}


def staged_threshold(x: np.ndarray, law: str, density: float, stages: int) -> float:
    """Threshold after `stages` fits, each of what exceeds the one before."""
    if stages == 1:
        return FIRST[law](x).threshold(density)
    threshold = FIRST[law](x).threshold(FIRST_STAGE)
    share = (density / FIRST_STAGE) ** (1 / (stages - 1))
    for _ in range(stages - 1):
        kept = x[x > threshold]
        if len(kept) < 2:
            break
        lowest = kept.min()
        excess = kept - lowest
        if excess.max() == 0:
            break
        threshold = lowest + LATER[law](excess).threshold(share)
    return float(threshold)


def draw(name: str, steps: list[tuple[int, np.ndarray]], path: pathlib.Path) -> None:
    figure, axes = plt.subplots(1, len(steps), figsize=(4.2 * len(steps), 3.6), sharey=True)
    for axis, (step, values) in zip(np.atleast_1d(axes), steps):
        x = np.abs(values)
        x = np.sort(x[x > 0])
        share = np.arange(len(x), 0, -1) / len(values)
        shown = np.unique(np.geomspace(1, len(x), 400).astype(int))
        rms = math.sqrt(np.mean(np.square(values, dtype=np.float64)))
        axis.plot(x[-shown] / rms, share[-shown], "k", linewidth=2.5, label="measured")
        grid = np.geomspace(np.quantile(x, 0.5), x[-1] * 1.5, 200)
        for law, colour in zip(LAWS, ("tab:blue", "tab:orange", "tab:green")):
            axis.plot(grid / rms, FIRST[law](x).tail(grid) * len(x) / len(values), colour,
                      linewidth=1, label=TITLES[law])
            staged = [staged_threshold(x, law, density, 3) / rms
                      for density in np.geomspace(0.2, 0.0005, 12)]
            axis.plot(staged, np.geomspace(0.2, 0.0005, 12), colour, linestyle="", marker=".",
                      markersize=4)
        axis.set(xscale="log", yscale="log", ylim=(2e-5, 1), title=f"{name}, step {step}",
                 xlabel="magnitude / root mean square")
        axis.grid(True, alpha=0.3)
    np.atleast_1d(axes)[0].set_ylabel("share of values above")
    np.atleast_1d(axes)[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def achieved(values: np.ndarray, law: str, density: float, stages: int) -> float:
    x = np.abs(values)
    return float((x > staged_threshold(x, law, density, stages)).mean() / density)


def spread(items: list[float]) -> str:
    return f"{np.mean(items):.2f} ± {np.std(items, ddof=1):.2f}"


def fit_table(steps: list[tuple[int, np.ndarray]]) -> list[str]:
    lines = ["| law | stages | " + " | ".join(f"density {d:g}" for d in DENSITIES) + " |",
             "| --- | --- | --- | --- | --- |"]
    for law in LAWS:
        for stages in (1, 2, 3, 4):
            cells = [spread([achieved(values, law, density, stages) for _, values in steps])
                     for density in DENSITIES]
            lines.append(f"| {TITLES[law]} | {stages} | " + " | ".join(cells) + " |")
    return lines


def codec_table(program: str, folder: str) -> list[str]:
    def codecs(density: float) -> list[str]:
        laws = [f"sidco:density={density:g},law={law},adapt={adapt}"
                for adapt in ("scan", "plain") for law in LAWS]
        return [*laws, f"dgc:density={density:g}", f"topk:density={density:g}"]

    rows: dict[str, list[str]] = {}
    for density in DENSITIES:
        output = subprocess.run([program, "measure", folder, *codecs(density), "--json"],
                                check=True, capture_output=True, text=True).stdout
        for text, measured in zip(codecs(density), json.loads(output)):
            name = text.replace(f"density={density:g},", "").replace(f":density={density:g}", "")
            # The first window of plain's adaption is not yet the rule's.
            steps = measured["steps"][5:]
            kept = [step["kept"] / (density * step["values"]) for step in steps]
            speed = np.median([step["encode_seconds"] / step["values"] for step in steps])
            rows.setdefault(name, []).append(f"{spread(kept)} | {1e9 * speed:.2f}")
    lines = ["| codec | " + " | ".join(f"kept / target at {d:g} | ns per value"
                                       for d in DENSITIES) + " |",
             "| --- " * (1 + 2 * len(DENSITIES)) + "|"]
    return lines + [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("signals", nargs="+", metavar="NAME=SIGNALS")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/results/sidco-tails.md")
    parser.add_argument("--program", default=str(ROOT / "build/thinwire"))
    options = parser.parse_args()
    plots = options.page.parent / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    page = []
    for pair in options.signals:
        name, folder = pair.split("=", 1)
        steps = [read_signals(path) for path in sorted(pathlib.Path(folder).glob("step-*"))]
        # An early step, one in the middle and the last.
        shown = [steps[min(2, len(steps) - 1)], steps[len(steps) // 2], steps[-1]]
        draw(name, shown, plots / f"tails-{name}.svg")
        page += [f"## {name}: {len(steps)} steps, {len(steps[0][1]):,} values", "",
                 f"![tails of {name}](plots/tails-{name}.svg)", "",
                 "Kept over target from thresholds computed by the plotting script, mean ± standard "
                 "deviation over recorded steps:", "", *fit_table(steps), "",
                 "The library's codecs on the same steps:", "",
                 *codec_table(options.program, folder), ""]
    text = options.page.read_text() if options.page.exists() else "# How SIDCo's laws fit\n\n"
    text = text.split("<!-- figures -->")[0].rstrip("\n") + "\n\n<!-- figures -->\n\n"
    options.page.write_text(text + "\n".join(page))


if __name__ == "__main__":
    main()
