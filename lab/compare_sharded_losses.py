#!/usr/bin/env python3
"""Trains a small GPT that is sharded by FSDP2 or HSDP, with torch's collectives and thinwire's, and compares losses.

    lab/compare_sharded_losses.py --page docs/results/sharded-losses.md

Four ranks on this machine train the GPT of examples/pytorch/gpt.py on Shakespeare's characters by SGD with momentum. hsdp and
fsdp, and the methods that compress them, are those of compare_sharded.py. Runs of one seed start with the same weights and draw
the same batches. The loss is measured after the last step on the last tenth of the text, which is not trained on. What was
measured is kept in --runs, a line of JSON for each run, and not measured again while it is there. thinwire.torch must
be importable by --python.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import compare_sharded
from compare_training import Kept

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))
import results_page  # noqa: E402

RANKS = compare_sharded.HOSTS * compare_sharded.RANKS_PER_HOST
METHODS = compare_sharded.METHODS | {
    "hsdp, fp32": ("hsdp", {"codec": "fp32"}),
    "hsdp, int4": ("hsdp", {"codec": "int4"}),
}
ORDER = ["hsdp", "hsdp, fp32", "hsdp, int8", "hsdp, int4", "hsdp, sidco:density=0.01", "hsdp, powersgd:rank=4",
         "fsdp", "fsdp, fp32, weights fp32", "fsdp, int8, weights bf16", "fsdp, int4, weights int8"]
WIDTH, LAYERS, TOKENS, BATCH, TEST_BATCHES = 64, 2, 64, 8, 16


def texts():
    """The symbols of the text in two parts, to train and to test, and the number of different ones."""
    import torch
    from gpt import TEXT
    text = gzip.decompress(TEXT.read_bytes()).decode()
    places = {symbol: i for i, symbol in enumerate(sorted(set(text)))}
    symbols = torch.tensor([places[symbol] for symbol in text])
    return *symbols.split([len(symbols) * 9 // 10, len(symbols) - len(symbols) * 9 // 10]), len(places)


def loss_of(model, symbols, draws):
    import torch
    from torch import nn
    begins = torch.randint(len(symbols) - TOKENS - 1, (BATCH,), generator=draws)
    batch = torch.stack([symbols[begin : begin + TOKENS + 1] for begin in begins])
    return nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def be_rank(options):
    import torch
    import torch.distributed as dist
    sys.path.append(str(ROOT / "examples/pytorch"))

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train, test, symbols = texts()
    settings = argparse.Namespace(tokens=TOKENS, width=WIDTH, layers=LAYERS, reshard=False, seed=options.seed,
                                  symbols=symbols, rate=options.rate)
    model, optimizer = compare_sharded.build(options.method, settings, METHODS)
    draws = torch.Generator().manual_seed(1000 * options.seed + dist.get_rank())
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss_of(model, train, draws).backward()
        optimizer.step()
    judged = torch.Generator().manual_seed(0)  # the same batches on all ranks
    with torch.no_grad():
        losses = [loss_of(model, test, judged).item() for _ in range(TEST_BATCHES)]
    if dist.get_rank() == 0:
        pathlib.Path(options.out).write_text(json.dumps({"loss": statistics.mean(losses)}))
    dist.destroy_process_group()


def measure(method, seed, options):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = [options.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), __file__,
                   "--method", method, "--seed", str(seed), "--steps", str(options.steps), "--rate", str(options.rate),
                   "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return json.loads(out.read_text())


def table(kept, steps, rate):
    """A row for each method: its loss, and its distance to torch's own collectives, in percent of their loss, seed by seed."""
    found = {}
    for (method, seed, length, of_rate), run in kept.rows.items():
        if (length, of_rate) == (steps, rate):
            found.setdefault(method, {})[seed] = run["loss"]
    lines = ["| method | seeds | test loss | difference, % |", "| --- | ---: | ---: | ---: |"]
    for method in (one for one in ORDER if one in found):
        base = METHODS[method][0]
        pairs = [100 * (loss / found[base][seed] - 1) for seed, loss in found[method].items()
                 if seed in found.get(base, {})]
        spread = (lambda values, form: f"{statistics.mean(values):{form}}"
                  + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""))
        lines.append(f"| {method} | {len(found[method])} | {spread(list(found[method].values()), '.3f')} | "
                     f"{spread(pairs, '+.2f') if pairs and method != base else ''} |")
    return lines


def page(kept, options):
    return [
        "# Losses of sharded models", "",
        f"The GPT of `examples/pytorch/gpt.py` ({LAYERS} blocks of width {WIDTH}) on Shakespeare's characters, four ranks, {options.steps}",
        f"steps of {BATCH} sequences of {TOKENS} characters on each rank, SGD with a learning rate of {options.rate} and momentum 0.9. `hsdp` has two replicas",
        "of two shards, `fsdp` four shards. Rows without a codec are torch's own collectives. Memories are the defaults; `fsdp` with a codec",
        "has the memory `loco`, but with fp32. The loss is that of the last tenth of the text, which is not trained on, after the last step.",
        "Figures are means and standard deviations over seeds; differences are to torch's own collectives, seed by seed. A positive",
        f"difference is a loss of accuracy. {options.steps} steps are the beginning of a training: the differences do not show",
        "where a whole one ends.", "",
        f"Command: `lab/compare_sharded_losses.py --steps {options.steps} --rate {options.rate} --seeds "
        f"{','.join(map(str, options.seeds))}`. Processor: {results_page.processor()}, {results_page.cores()} cores. "
        f"{results_page.commits(list(kept.rows.values()))}.", "",
        *table(kept, options.steps, options.rate)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default=[1, 2, 3], type=lambda text: [int(seed) for seed in text.split(",")])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--methods", default=";".join(ORDER), help="with ';' between them")
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"))
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "docs/results/runs/sharded-losses.jsonl")
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--method", help=argparse.SUPPRESS)  # these three are given to ranks
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.out:
        return be_rank(options)
    methods = options.methods.split(";")
    if unknown := [method for method in methods if method not in METHODS]:
        parser.error(f"--methods has {', '.join(unknown)}; choices: {'; '.join(METHODS)}")
    kept = Kept(options.runs)
    for seed in options.seeds:
        for method in methods:
            of = (method, seed, options.steps, options.rate)
            if not kept.get(*of):
                kept.put(*of, **measure(method, seed, options), commit=results_page.commit())
                print(kept.get(*of), flush=True)
    if options.page:
        results_page.write(options.page, page(kept, options))
    return None


if __name__ == "__main__":
    main()
