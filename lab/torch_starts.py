#!/usr/bin/env python3
"""Starts compressed DistributedDataParallel training again and again, and counts the starts that end well.

    lab/torch_starts.py --starts 100                      # every codec
    lab/torch_starts.py --starts 100 --codecs "int8;sidco" --ranks 4
    lab/torch_starts.py --starts 5 --torchrun             # by torchrun itself, which takes seconds to start

A start is a group of processes on gloo that train for 30 steps. It ends well when every rank comes to its end in
time and all have the same weights, to the bit, after every step. thinwire.torch must be importable.
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


def train(codec, steps, seed):
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
    tw.compress(model, codec)
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


def main_of_rank(rank, size, port, codec, steps, seed, place):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    under_torchrun(codec, steps, seed, place)
    import torch.distributed as dist
    from thinwire.torch import _native
    _native._engine.close()  # a forked process ends without what an interpreter does at its end
    dist.destroy_process_group()


def under_torchrun(codec, steps, seed, folder):
    found = train(codec, steps, seed)
    (pathlib.Path(folder) / os.environ["RANK"]).write_text(found)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(context, options, codec, seed, folder):
    """Why the start did not end well; empty when it did."""
    if options.torchrun:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(options.ranks),
                   "--master-port", str(free_port()), __file__, "--as-rank", codec, str(options.steps),
                   str(seed), folder]
        try:
            ended = subprocess.run(command, timeout=options.limit, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            return "hangs"
        if ended.returncode != 0:
            return f"ends with {ended.returncode}: {ended.stderr.strip()[-300:]}"
    else:
        port = free_port()
        ranks = [context.Process(target=main_of_rank, args=(rank, options.ranks, port, codec, options.steps,
                                                           seed, folder))
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
        if any(codes):
            return f"ends with {codes}"
    hashes = {(pathlib.Path(folder) / str(rank)).read_text() for rank in range(options.ranks)}
    return "" if len(hashes) == 1 else "ranks have other bits"


def count_starts(context, options, codec):
    row = {"codec": codec, "ranks": options.ranks, "steps": options.steps, "starts": options.starts,
           "good": 0, "faults": []}
    times = []
    for seed in range(options.starts):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            fault = start(context, options, codec, seed, folder)
        times.append(time.monotonic() - began)
        if fault:
            row["faults"].append(fault)
            print(f"{codec}, start {seed}: {fault}", file=sys.stderr, flush=True)
        else:
            row["good"] += 1
    row["median_seconds"] = round(statistics.median(times), 2)
    return row


def main():
    if sys.argv[1:2] == ["--as-rank"]:
        codec, steps, seed, folder = sys.argv[2:]
        return under_torchrun(codec, int(steps), int(seed), folder)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--codecs", default="", help="names or specs with ';' between them; all when absent")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a start hangs")
    parser.add_argument("--torchrun", action="store_true", help="start by torch.distributed.run")
    parser.add_argument("--json", help="file that gets a line for each codec")
    options = parser.parse_args()

    import thinwire
    codecs = options.codecs.split(";") if options.codecs else [codec.name for codec in thinwire.codecs()]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.nn.parallel", "thinwire.torch"])
    bad = 0
    for codec in codecs:
        row = count_starts(context, options, codec)
        bad += row["starts"] - row["good"]
        print(f"{codec}: {row['good']} of {row['starts']} starts, {row['median_seconds']} s each", flush=True)
        if options.json:
            with open(options.json, "a") as out:
                print(json.dumps(row), file=out)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
