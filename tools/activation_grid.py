"""Tables for grids of compressed activations, called by study.py: codecs by the number of compressed layers, for each place and
kind of training, and what the grid says to claims of Bian et al. [arXiv:2301.02654].

Cases are named "training, place, depth": "from scratch, pipeline cuts, last 1".
"""
import statistics

from pipeline_table import judged, runs_of

SIMILAR = 1.5  # bytes of settings that are compared, one by the other at most
ALL = "all"  # the depth at which the first variant, without compression, stands


def parts_of(case: str) -> list[str]:
    return case.split(", ")


def is_grid(found: dict) -> bool:
    return bool(found) and all(len(parts_of(case)) == 3 and "boundaries" in run
                               for case, variants in found.items() for run in runs_of({case: variants}))


def megabytes(run: dict) -> float:
    """All that crosses in a step, both ways."""
    return sum(boundary[way]["message_bytes"] for boundary in run["boundaries"] for way in ("forward", "backward")) / 1e6


class Grid:
    """Of each setting (training, place, depth, codec): the perplexity with compression on above that without, by seed, and
    what crosses."""

    def __init__(self, study: dict, found: dict) -> None:
        self.first = study["first"]
        self.depths: list[str] = []
        self.places: list[tuple[str, str]] = []
        self.base: dict[tuple[str, str], float] = {}
        self.cost: dict[tuple[str, str, str, str], float] = {}
        self.off: dict[tuple[str, str, str, str], float] = {}
        self.size: dict[tuple[str, str, str, str], float] = {}
        self.reach: dict[tuple[str, str, str, str], float] = {}  # half the distance of the seeds' costs, if there are several
        for case, variants in found.items():
            training, place, depth = parts_of(case)
            if depth not in self.depths:
                self.depths.append(depth)
            if (training, place) not in self.places:
                self.places.append((training, place))
            plain = found.get(f"{training}, {place}, {ALL}", {}).get(self.first, {})
            if plain:
                self.base[training, place] = statistics.mean(judged(run)[0] for run in plain.values())
            for codec, seeds in variants.items():
                if codec == self.first:
                    continue
                key = training, place, depth, codec
                self.size[key] = statistics.mean(megabytes(run) for run in seeds.values())
                pairs = [[mode - judged(plain[seed])[0] for mode in judged(run)]
                         for seed, run in seeds.items() if seed in plain]
                if pairs:
                    off, on = zip(*pairs)
                    self.off[key], self.cost[key] = statistics.mean(off), statistics.mean(on)
                    if len(on) > 1:
                        self.reach[key] = (max(on) - min(on)) / 2

    def codecs(self, training: str, place: str) -> list[str]:
        return list(dict.fromkeys(key[3] for key in self.size if key[:2] == (training, place)))

    def cost_text(self, key: tuple[str, str, str, str]) -> str:
        if key not in self.cost:
            return ""
        return f"{self.cost[key]:+.3f}" + (f" ± {self.reach[key]:.3f}" if key in self.reach else "")

    def table(self, training: str, place: str) -> list[str]:
        base = self.base.get((training, place))
        lines = [f"## {training[0].upper()}{training[1:]}, {place}", "",
                 "Without compression: perplexity " + (f"{base:.3f}." if base is not None else "not run yet."), ""]
        titles = ["codec", *[title for depth in self.depths for title in (f"{depth}: on", "off", "MB a step")]]
        lines += ["| " + " | ".join(titles) + " |", "| --- |" + " ---: |" * (len(titles) - 1)]
        for codec in self.codecs(training, place):
            cells = [codec]
            for depth in self.depths:
                key = training, place, depth, codec
                cells += [self.cost_text(key),
                          f"{self.off[key]:+.3f}" if key in self.off else "",
                          f"{self.size[key]:.2f}" if key in self.size else ""]
            lines.append("| " + " | ".join(cells) + " |")
        return lines

    def compare(self, pairs: list[tuple[tuple, tuple]]) -> tuple[int, int]:
        """In how many of the pairs of settings the first costs less, and of how many both were run."""
        both = [(a, b) for a, b in pairs if a in self.cost and b in self.cost]
        return sum(self.cost[a] < self.cost[b] for a, b in both), len(both)


def verdict(less: int, of: int) -> str:
    if of == 0:
        return "not run"
    return "holds" if 4 * less >= 3 * of else "does not hold" if 4 * less <= of else "mixed"


def claims(grid: Grid) -> list[tuple[str, int, int]]:
    """What the paper says, and in how many pairs of settings it is so here."""
    keys = list(grid.cost)
    swap = lambda key, **to: tuple(to.get(name, part) for name, part in
                                   zip(("training", "place", "depth", "codec"), key))
    shallow = [(swap(key, depth="last 1"), key) for key in keys if key[2] == ALL]
    codes = [key for key in keys if key[3].startswith("code")]

    def against(kinds: tuple[str, ...]) -> list[tuple[tuple, tuple]]:
        """Each code beside the codecs of these kinds that send about as much in its place."""
        return [(code, other) for code in codes for other in keys
                if other[:3] == code[:3] and other[3].startswith(kinds)
                and 1 / SIMILAR <= grid.size[other] / grid.size[code] <= SIMILAR]

    tuned = [(key, swap(key, training="from scratch")) for key in keys if key[0] == "fine-tuning"]
    random = [(swap(key, codec=key[3].replace("random", "top")), key) for key in keys if key[3].startswith("random")]
    return [("Layers at the front should not be compressed: the last one alone costs less than all.", *grid.compare(shallow)),
            ("A trained code costs less than a sparsifier that sends about as much.", *grid.compare(against(("top", "random")))),
            ("A trained code costs less than a quantiser that sends about as much.",
             *grid.compare(against(("2 bits", "4 bits", "8 bits")))),
            ("Top-k costs less than random-k of the same density.", *grid.compare(random)),
            ("Fine-tuning loses less than training from scratch.", *grid.compare(tuned))]


def grid_table(study: dict, found: dict) -> list[str]:
    grid = Grid(study, found)
    lines = ["Differences of perplexity to the same training without compression: with compression on in the test, and off."
             + (" In these tables ± is half the distance between the lowest and the highest seed." if grid.reach else ""), ""]
    for training, place in grid.places:
        lines += [*grid.table(training, place), ""]
    lines += ["## What the paper says, and what these runs say", "",
              "A claim holds if it is so in at least three quarters of the pairs of settings, and does not hold if in at most "
              f"one quarter. \"About as much\": bytes within a factor of {SIMILAR}.", "",
              "| claim | pairs | verdict |", "| --- | ---: | --- |"]
    return lines + [f"| {text} | {less} of {of} | {verdict(less, of)} |" for text, less, of in claims(grid)]
