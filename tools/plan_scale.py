#!/usr/bin/env python3
"""Predicted steps at 2 to 1,024 ranks: a page with curves, beside bytes that runs counted and a second simulator.

    tools/plan_scale.py --page docs/results/plan-scale.md

Every case is one call of `thinwire plan` with several numbers of ranks. Bytes of recipes are compared with those of runs
on threads, which the exchange counts (--counted). With --replay, a program made from tools/replay_messages.cc
(README of the page), SimGrid replays the messages of the fp32 exchange. Needs Matplotlib.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS = (2, 4, 16, 64, 256, 1024)
CODECS = "fp16; int8; topk:density=0.01; topk:density=0.01 @ sparse-reduce; powersgd:rank=4"


def gpt2() -> str:
    """The tensors of GPT-2 with 124 million parameters, as thinwire plan reads them."""
    width, lines = 768, ["wte.weight 50257x768 embedding", "wpe.weight 1024x768 embedding"]
    for block in range(12):
        layers = {"ln_1.weight": "768 norm", "ln_1.bias": "768 norm", "attn.c_attn.weight": f"{width}x{3 * width}",
                  "attn.c_attn.bias": f"{3 * width}", "attn.c_proj.weight": f"{width}x{width}",
                  "attn.c_proj.bias": f"{width}", "ln_2.weight": "768 norm", "ln_2.bias": "768 norm",
                  "mlp.c_fc.weight": f"{width}x{4 * width}", "mlp.c_fc.bias": f"{4 * width}",
                  "mlp.c_proj.weight": f"{4 * width}x{width}", "mlp.c_proj.bias": f"{width}"}
        lines += [f"h.{block}.{name} {shape}" for name, shape in layers.items()]
    return "\n".join([*lines, "ln_f.weight 768 norm", "ln_f.bias 768 norm"]) + "\n"


# Title, subject, further arguments of thinwire plan. A subject in angle brackets is a list that is made here.
CASES = [
    ("GPT-2 of 124 M parameters, 1 s of computation, 10 Gbit/s, 0.1 ms", "<gpt2>",
     ["--step-seconds", "1", "--link", "10gbit,0.1ms", "--codecs", CODECS]),
    ("The same on machines of 8 ranks, 100 Gbit/s inside", "<gpt2>",
     ["--step-seconds", "1", "--link", "10gbit,0.1ms", "--per-machine", "8", "--inside-link", "100gbit,10us",
      "--codecs", CODECS]),
    ("The same by DiLoCo, a round after 100 steps, 1 Gbit/s, 20 ms", "<gpt2>",
     ["--step-seconds", "1", "--link", "1gbit,20ms", "--sync", "diloco:tau=100", "--codecs", "fp16; int8; topk:density=0.01"]),
]


def per_machine(arguments: list[str]) -> int:
    return int(arguments[arguments.index("--per-machine") + 1]) if "--per-machine" in arguments else 1


def ranks_of(arguments: list[str], ranks: tuple[int, ...]) -> list[int]:
    """Those that make up whole machines."""
    return [count for count in ranks if count % per_machine(arguments) == 0]


def with_cores(arguments: list[str]) -> list[str]:
    """A machine has a core more than ranks, so that exchanges have one of their own in every case."""
    return [*arguments, "--cores", str(per_machine(arguments) + 1)]


def plan(options, subject: str, arguments: list[str], ranks: list[int]) -> list[dict]:
    """A plan for each number of ranks."""
    with tempfile.TemporaryDirectory() as folder:
        if subject == "<gpt2>":
            path = pathlib.Path(folder) / "gpt2.txt"
            path.write_text(gpt2())
            subject = str(path)
        command = [options.program, "plan", subject, "--json", "--ranks", ",".join(map(str, ranks)), *arguments]
        if options.costs:
            command += ["--costs", options.costs]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"plan_scale: {' '.join(command)}: {done.stderr[-2000:]}")
    plans = json.loads(done.stdout)
    return plans if isinstance(plans, list) else [plans]


def by_codec(plans: list[dict]) -> dict[str, dict[int, dict]]:
    """Rows of plans: by codec, then by ranks."""
    table: dict[str, dict[int, dict]] = {}
    for one in plans:
        for row in one["codecs"]:
            table.setdefault(row["codec"], {})[one["ranks"]] = row
    return dict(sorted(table.items(), key=lambda item: item[0] != "fp32"))


def bytes_text(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def table_of(table: dict[str, dict[int, dict]], cell) -> list[str]:
    ranks = sorted({count for rows in table.values() for count in rows})
    lines = ["| codec | " + " | ".join(f"{count:,}" for count in ranks) + " |", "| --- |" + " ---: |" * len(ranks)]
    for codec, rows in table.items():
        lines.append(f"| `{codec}` | " + " | ".join(cell(rows[count]) if count in rows else "" for count in ranks) + " |")
    return lines


def draw(tables: list[tuple[str, dict]], target: pathlib.Path) -> None:
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(2, len(tables), figsize=(4.2 * len(tables), 6.4), squeeze=False)
    for column, (title, table) in enumerate(tables):
        for codec, rows in table.items():
            ranks = sorted(rows)
            axes[0][column].plot(ranks, [rows[count]["seconds"] for count in ranks], marker=".", label=codec)
            axes[1][column].plot(ranks, [rows[count]["sent_bytes"] for count in ranks], marker=".", label=codec)
        axes[0][column].set_title(title.replace(", ", "\n", 1), fontsize=8)
        for axis, label in ((axes[0][column], "seconds per step"), (axes[1][column], "bytes per step and rank")):
            axis.set(xscale="log", yscale="log", xlabel="ranks", ylabel=label)
            axis.grid(True, which="major", alpha=0.3)
        axes[0][column].legend(fontsize=6)
    figure.tight_layout()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Date": None})


def counted_bytes(options, recipe: str, ranks: int, codec: str) -> float:
    """Of rank 0 in a step, on average over a few steps of a run on threads."""
    with tempfile.TemporaryDirectory() as folder:
        name, _, method = codec.partition(" @ ")
        command = [options.program, "train", recipe, "--out", folder, "--workers", str(ranks)]
        for key, value in {"exchange.codec": name, "exchange.method": method or "auto", "exchange.feedback": "auto",
                           "exchange.grouping": "auto", "train.max_steps": 2 * ranks, "train.batch": 2 * ranks}.items():
            command += ["--set", f"{key}={value}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"plan_scale: {' '.join(command)}: {done.stderr[-2000:]}")
        return json.loads((pathlib.Path(folder) / "summary.json").read_text())["sent_bytes_per_step"]


def counted_table(options) -> list[str]:
    ranks = [2, 4, 8, 16]
    table = by_codec(plan(options, options.counted, ["--step-seconds", "1", "--codecs", CODECS], ranks))
    lines = ["| codec | ranks | predicted bytes | counted bytes | predicted / counted |",
             "| --- | ---: | ---: | ---: | ---: |"]
    for codec, rows in table.items():
        for count in ranks:
            counted = counted_bytes(options, options.counted, count, codec)
            sent = rows[count]["sent_bytes"]
            lines.append(f"| `{codec}` | {count} | {sent:,.0f} | {counted:,.0f} | {sent / counted:.3f} |")
    return lines


def replay_seconds(options, ranks: int, sent: float, rate: float, latency: float) -> float:
    """Of parts and means of an exchange among all, by SimGrid."""
    message = sent / 2 / (ranks - 1)
    done = subprocess.run([options.replay, str(ranks), str(rate), str(latency), str(message)], capture_output=True,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"plan_scale: {options.replay}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def replay_table(options) -> list[str]:
    """An exchange alone: all gradients are there, nothing is computed, and coding is free."""
    lines = ["| link | ranks | thinwire plan, s | SimGrid, s | ratio |", "| --- | ---: | ---: | ---: | ---: |"]
    free = tempfile.NamedTemporaryFile("w", suffix=".txt")
    free.write("thinwire costs of codecs, version 3\nprocessor: one that codes at once\ncopies: 0\n" + "0\t" * 6 + "fp32 / none\n")
    free.flush()
    options = argparse.Namespace(**{**vars(options), "costs": free.name})
    for link, rate, latency in (("10gbit,0.1ms", 10e9, 1e-4), ("1gbit,20ms", 1e9, 20e-3), ("100mbit,1ms", 100e6, 1e-3)):
        arguments = with_cores(["--step-seconds", "1e-9", "--link", link, "--codecs", "fp32 @ dense"])
        plans = plan(options, "<gpt2>", arguments, [2, 4, 16, 64, 128])
        for one in plans:
            row = next(row for row in one["codecs"] if row["codec"] == "fp32 @ dense")
            seconds = row["seconds"]
            replayed = replay_seconds(options, one["ranks"], row["sent_bytes"], rate, latency)
            lines.append(f"| {link} | {one['ranks']} | {seconds:.3f} | {replayed:.3f} | {seconds / replayed:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/thinwire"))
    parser.add_argument("--costs", help="file of codecs' costs, as for thinwire plan")
    parser.add_argument("--counted", metavar="RECIPE", help="whose bytes are also counted in runs on threads")
    parser.add_argument("--replay", metavar="PROGRAM", help="made from tools/replay_messages.cc")
    parser.add_argument("--page", type=pathlib.Path)
    options = parser.parse_args()
    plot = ROOT / "docs/results/plots/plan-scale.svg"
    sections, tables = [], []
    for title, subject, chosen in CASES:
        arguments = with_cores(chosen)
        plans = plan(options, subject, arguments, ranks_of(arguments, RANKS))
        table = by_codec(plans)
        tables.append((title, table))
        sections += [f"## {title}", "", f"`thinwire plan ... {shlex.join(arguments)}`", "", "Seconds per step:", "",
                     *table_of(table, lambda row: f"{row['seconds']:.3g}"), "",
                     "Bytes per step, of the rank that sends most:", "",
                     *table_of(table, lambda row: ("" if row["bytes_exact"] else "~") + bytes_text(row["sent_bytes"])), ""]
    if options.counted:
        sections += [f"## Bytes beside those that runs of {options.counted} count", "", *counted_table(options), ""]
    if options.replay:
        sections += ["## Times beside SimGrid's", "", *replay_table(options), ""]
    text = "\n".join(sections)
    print(text)
    if options.page:
        draw(tables, plot)
        head = options.page.read_text().split("<!-- tables -->")[0] if options.page.exists() else "# Predicted scaling\n\n"
        options.page.write_text(f"{head}<!-- tables -->\n\n![Curves](plots/{plot.name})\n\n{text}")


if __name__ == "__main__":
    main()
