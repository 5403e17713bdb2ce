#!/usr/bin/env python3
"""Starts compressed DistributedDataParallel training again and again, and counts the starts that succeed.

    lab/torch_starts.py --starts 100 --json starts.jsonl     # every codec by every method that carries it; resumes
    lab/torch_starts.py --starts 100 --codecs "int8;sidco" --methods auto --ranks 4
    lab/torch_starts.py --starts 5 --torchrun                # by torchrun itself, which takes seconds to start

A start is a group of new processes on gloo, with a store of their own, that train for 30 steps. It ends well when
every rank comes to its end in time and all have the same weights, to the bit, after every step. Without --torchrun
processes are forked from one that has imported what they will. thinwire.torch must be importable.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import hashlib
import json
import multiprocessing
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import results_page  # noqa: E402

# The first of them that carries a codec is what "auto" takes.
METHODS = ("low-rank", "shared-index", "dense", "scatter-reduce", "gather", "sparse-reduce", "library")
# What makes a start one of its kind. A line of the results has these and what came of it.
KEY = ("codec", "method", "ranks", "steps", "launcher")


def train(codec, method, steps, seed):
    """What a rank does: the hash of its weights after every step."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import thinwire.torch as tw

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    model = DistributedDataParallel(net, bucket_cap_mb=0.05)
    tw.compress(model, codec, method=method)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batches = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    digest = hashlib.sha256()
    for _ in range(steps):
        images = torch.randn(16, 784, generator=batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), images[:, :10].argmax(1)).backward()
        optimizer.step()
        for parameter in model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def under_torchrun(codec, method, steps, seed, folder):
    found = train(codec, method, steps, seed)
    (pathlib.Path(folder) / os.environ["RANK"]).write_text(found)


def main_of_rank(rank, size, port, *work):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    under_torchrun(*work)
    import torch.distributed as dist
    from thinwire.torch import _native
    _native._engine.close()  # a forked process ends without what an interpreter does at its end
    dist.destroy_process_group()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start_by_torchrun(options, work):
    """Why the start did not end well; empty when it did."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(options.ranks),
               "--master-port", str(free_port()), __file__, "--as-rank", *map(str, work)]
    try:
        ended = subprocess.run(command, timeout=options.limit, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return "hangs"
    return f"ends with {ended.returncode}: {ended.stderr.strip()[-300:]}" if ended.returncode else ""


def start_by_fork(context, options, work):
    port = free_port()
    ranks = [context.Process(target=main_of_rank, args=(rank, options.ranks, port, *work))
             for rank in range(options.ranks)]
    for process in ranks:
        process.start()
    until = time.monotonic() + options.limit
    for process in ranks:
        process.join(max(0.1, until - time.monotonic()))
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
        process.join()
    if None in codes:
        return "hangs"
    return f"ends with {codes}" if any(codes) else ""


def start(context, options, codec, method, seed):
    with tempfile.TemporaryDirectory() as folder:
        work = (codec, method, options.steps, seed, folder)
        fault = start_by_torchrun(options, work) if options.torchrun else start_by_fork(context, options, work)
        if fault:
            return fault
        hashes = {(pathlib.Path(folder) / str(rank)).read_text() for rank in range(options.ranks)}
        return "" if len(hashes) == 1 else "ranks have other bits"


def count_starts(context, options, key):
    row = {**key, "starts": options.starts, "good": 0, "faults": []}
    times = []
    for seed in range(options.starts):
        began = time.monotonic()
        fault = start(context, options, key["codec"], key["method"], seed)
        times.append(time.monotonic() - began)
        if fault:
            row["faults"].append(f"start {seed}: {fault}")
            print(f"{key['codec']} by {key['method']}, start {seed}: {fault}", file=sys.stderr, flush=True)
        else:
            row["good"] += 1
    row["median_seconds"] = round(statistics.median(times), 2)
    return row


def pairs(options):
    """Codecs and the methods that carry each: first all by their first method, then by their
    second, ..."""
    import numpy

    import thinwire
    codecs = options.codecs.split(";") if options.codecs else [codec.name for codec in thinwire.codecs()]
    found = []
    for codec in codecs:
        place = 0
        for method in METHODS if options.methods in ("", "auto") else options.methods.split(";"):
            try:
                thinwire.all_reduce([numpy.ones(8, numpy.float32)] * 2, codec, method)
            except thinwire.UnsupportedError:
                continue
            found.append((place, codec, method))
            place += 1
    return [(codec, method) for place, codec, method in sorted(found, key=lambda one: one[0])
            if place == 0 or options.methods != "auto"]


def machine():
    """What the page says of where it was measured."""
    return {"processor": results_page.processor(), "cores": results_page.cores(), "commit": results_page.commit()}


def section(rows):
    """Starts that ended well, a row for each codec and launcher, a column for each method."""
    lines = ["| codec | " + " | ".join(METHODS) + " | started by | seconds |",
             "| --- |" + " ---: |" * len(METHODS) + " --- | ---: |"]
    table = {}
    for row in rows:  # the last of a kind counts
        table.setdefault((row["launcher"], row["codec"]), {})[row["method"]] = row
    for (launcher, codec), found in table.items():
        cells = [f"{found[m]['good']} of {found[m]['starts']}" if m in found else "" for m in METHODS]
        seconds = statistics.median(row["median_seconds"] for row in found.values())
        lines.append(f"| `{codec}` | {' | '.join(cells)} | {launcher} | {seconds:.2f} |")
    return "\n".join(lines) + "\n"


def write_page(page, rows):
    """Puts the table where the page's section of starts has its figures, up to the next heading."""
    before, marker, after = page.read_text().partition("<!-- starts -->\n")
    if not marker:
        sys.exit(f"torch_starts: {page} has no line <!-- starts -->")
    rest = after[after.index("\n## "):] if "\n## " in after else ""
    page.write_text(before + marker + "\n" + section(rows) + rest)


def main():
    if sys.argv[1:2] == ["--as-rank"]:
        codec, method, steps, seed, folder = sys.argv[2:]
        return under_torchrun(codec, method, int(steps), int(seed), folder)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--codecs", default="", help="names or specs with ';' between them; all when absent")
    parser.add_argument("--methods", default="",
                        help="with ';' between them; auto: the first that carries a codec; all when absent")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a start hangs")
    parser.add_argument("--torchrun", action="store_true", help="start by torch.distributed.run")
    parser.add_argument("--json", type=pathlib.Path,
                        help="file of a line for each pair; those that it has are not started again")
    parser.add_argument("--page", type=pathlib.Path, help="Markdown file that gets the table of --json")
    options = parser.parse_args()

    rows = []
    if options.json and options.json.exists():
        rows = [json.loads(line) for line in options.json.read_text().splitlines()]
    done = {tuple(row[name] for name in KEY) for row in rows if row["starts"] >= options.starts}
    context = multiprocessing.get_context("forkserver")
    # With what DistributedDataParallel imports when one is first made: seconds.
    context.set_forkserver_preload(["torch._dynamo", "torch.distributed._functional_collectives",
                                    "thinwire.torch"])
    bad = 0
    for codec, method in pairs(options):
        key = {"codec": codec, "method": method, "ranks": options.ranks, "steps": options.steps,
               "launcher": "torchrun" if options.torchrun else "fork"}
        if tuple(key.values()) in done:
            continue
        row = count_starts(context, options, key)
        rows.append(row)
        bad += row["starts"] - row["good"]
        print(f"{codec} by {method}: {row['good']} of {row['starts']} starts, {row['median_seconds']} s each",
              flush=True)
        if options.json:
            with open(options.json, "a") as out:
                print(json.dumps({**row, **machine()}), file=out)
    if options.page:
        write_page(options.page, rows)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
