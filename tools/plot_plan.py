#!/usr/bin/env python3
"""Draws the table of docs/results/plan.md, predicted beside measured steps, as SVG.

usage: plot_plan.py [PAGE]

Writes plots/plan.svg beside the page: a panel per link, a colour per recipe, a marker per codec's row; the band is 15 %
around equality. Needs Matplotlib.
"""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEAR = 0.15  # as in lab/check_plan.py
ROW = re.compile(r"\| (\S+) \| (\S+) \| `([^`]+)` \| ([\d.,]+) \| ([\d.,]+) \(([\d.,]+) to ([\d.,]+)\) \|")


def cells_of(page: str) -> list[tuple]:
    """(recipe, link, codec, predicted, measured, least, most), in ms, of each row of the page's first table: those below its
    notes are of other numbers of ranks."""
    number = lambda text: float(text.replace(",", ""))
    return [(*row[:3], *map(number, row[3:])) for row in ROW.findall(page.partition("\n## Notes\n")[0])]


def draw(cells: list[tuple], target: pathlib.Path) -> None:
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "plan"  # the same file of the same table
    import matplotlib.pyplot as plt

    links = list(dict.fromkeys(cell[1] for cell in cells))
    recipes = list(dict.fromkeys(cell[0] for cell in cells))
    figure, axes = plt.subplots(1, len(links), figsize=(3 * len(links), 3.3), sharex=True, sharey=True, squeeze=False)
    ends = (0.8 * min(min(cell[3:5]) for cell in cells), 1.25 * max(max(cell[3:5]) for cell in cells))
    for axis, link in zip(axes[0], links):
        axis.fill_between(ends, [(1 - NEAR) * end for end in ends], [(1 + NEAR) * end for end in ends], color="0.9")
        axis.plot(ends, ends, color="0.6", linewidth=0.8)
        for colour, recipe in enumerate(recipes):
            points = [cell for cell in cells if cell[:2] == (recipe, link)]
            if not points:
                continue
            measured = [point[4] for point in points]
            spread = [[point[4] - point[5] for point in points], [point[6] - point[4] for point in points]]
            axis.errorbar(measured, [point[3] for point in points], xerr=spread, fmt="o", markersize=3, linewidth=0.7,
                          color=f"C{colour}", label=recipe)
        axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends, title=f"link: {link}", xlabel="measured, ms")
        axis.title.set_size(9)
        axis.grid(True, which="both", alpha=0.3)
    axes[0][0].set_ylabel("predicted, ms")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Date": None})


def main() -> None:
    page = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/results/plan.md"
    cells = cells_of(page.read_text())
    if not cells:
        sys.exit(f"plot_plan.py: no row of a table of lab/check_plan.py in {page}")
    target = page.parent / "plots/plan.svg"
    draw(cells, target)
    print(target)


if __name__ == "__main__":
    main()
