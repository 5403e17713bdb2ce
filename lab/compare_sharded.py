#!/usr/bin/env python3
"""Measures steps of sharded models (FSDP2, HSDP) over slow links between machines, with torch's collectives and thinwire's.

    sudo lab/compare_sharded.py --rates none,1gbit,100mbit --page sharded.md

Two hosts of thin_links.py stand for two machines, with two ranks each; ranks on the same host reach each other over its
loopback device, which has no limit. All train the same GPT (--width, --layers) on --tokens random symbols a
rank by SGD. hsdp is fully_shard on a mesh of 2 x 2: shards inside a host, gradients averaged between hosts.
fsdp is fully_shard over all four ranks. Every other method compresses one of these two. Methods take turns in rounds, so
that all see the same machine; the first steps of each round are not counted. The time is the median of a step on
rank 0, all ranks beginning it together. The bytes are those that a host's card sent, headers of all layers included.
thinwire.torch must be importable. Four ranks share the cores: run it on a quiet machine.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import pathlib
import statistics
import sys
import time
import warnings

import host_ranks

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOSTS, RANKS_PER_HOST = 2, 2
SYMBOLS, HEADS = 64, 4
SENT = pathlib.Path("/sys/class/net/net0/statistics/tx_bytes")
# Of a method: what it is compared with, and what tw.compress is called with; None: torch's own collectives.
METHODS = {
    "hsdp": ("hsdp", None),
    "hsdp, fp16": ("hsdp", {"codec": "fp16"}),
    "hsdp, int8": ("hsdp", {"codec": "int8"}),
    "hsdp, powersgd:rank=4": ("hsdp", {"codec": "powersgd:rank=4"}),
    "hsdp, sidco:density=0.01": ("hsdp", {"codec": "sidco:density=0.01"}),
    "hsdp, sidco:density=0.001": ("hsdp", {"codec": "sidco:density=0.001"}),
    "fsdp": ("fsdp", None),
    "fsdp, fp32, weights fp32": ("fsdp", {"codec": "fp32", "weights": "fp32"}),
    "fsdp, int8, weights bf16": ("fsdp", {"codec": "int8", "feedback": "loco", "weights": "bf16"}),
    "fsdp, int4, weights int8": ("fsdp", {"codec": "int4", "feedback": "loco", "weights": "int8"}),
}


def build(method, options, methods=METHODS):
    """The sharded model of a method and its optimiser. Options may have a `seed` and a learning `rate`, and the number of `symbols`."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import thinwire.torch as tw
    sys.path.append(str(ROOT / "examples/pytorch"))
    from gpt import Gpt

    base, settings = methods[method]
    torch.manual_seed(getattr(options, "seed", 1))
    model = Gpt(getattr(options, "symbols", SYMBOLS), options.tokens, options.width, options.layers, HEADS)
    mesh = init_device_mesh("cpu", (HOSTS, RANKS_PER_HOST), mesh_dim_names=("replicate", "shard"))
    whole = mesh if method == "hsdp" else mesh["shard"] if base == "hsdp" else \
        init_device_mesh("cpu", (HOSTS * RANKS_PER_HOST,))
    for block in model.blocks:
        fully_shard(block, mesh=whole, reshard_after_forward=options.reshard)
    fully_shard(model, mesh=whole, reshard_after_forward=options.reshard)
    optimizer = torch.optim.SGD(model.parameters(), lr=getattr(options, "rate", 0.01), momentum=0.9)
    if settings is not None:
        named = dict(settings)
        if base == "hsdp":
            named |= {"replicate": mesh["replicate"], "optimizer": optimizer}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the memory of loco covers the unsharded model
            tw.compress(model, named.pop("codec"), **named)
    return model, optimizer


def time_steps(model, optimizer, options):
    """Seconds of the counted steps, and the bytes that this rank's host sent in them."""
    import torch
    import torch.distributed as dist
    from torch import nn

    draws = torch.Generator().manual_seed(dist.get_rank())
    times, sent = [], 0
    for step in range(options.warm_up + options.steps):
        text = torch.randint(SYMBOLS, (1, options.tokens + 1), generator=draws)
        dist.barrier()
        if step == options.warm_up:
            sent = int(SENT.read_text())
        began = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()
        dist.barrier()
        if step >= options.warm_up:
            times.append(time.perf_counter() - began)
    return times, int(SENT.read_text()) - sent


def be_rank(options):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    times = {method: [] for method in options.methods}
    sent = dict.fromkeys(options.methods, 0)
    # One model at a time, or the memories of all would have to fit.
    for _ in range(options.rounds):
        for method in options.methods:
            model, optimizer = build(method, options)
            taken, size = time_steps(model, optimizer, options)
            times[method] += taken
            sent[method] += size
            values = sum(parameter.numel() for parameter in model.parameters())
            del model, optimizer
    if dist.get_rank() == 0:
        steps = options.rounds * options.steps
        pathlib.Path(options.out).write_text(json.dumps({"values": values, "methods": {
            method: {"ms": 1e3 * statistics.median(times[method]), "least": 1e3 * min(times[method]),
                     "most": 1e3 * max(times[method]), "mb": sent[method] / steps / 1e6} for method in times}}))
    dist.barrier()
    dist.destroy_process_group()


def measure(options, rate):
    arguments = ["--methods", ";".join(options.methods), *["--reshard"] * options.reshard]
    for name in ("steps", "warm_up", "rounds", "width", "layers", "tokens"):
        arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return json.loads(host_ranks.measure(__file__, arguments, rate, HOSTS, RANKS_PER_HOST, options.timeout))


def page(results, options):
    """A table: a row for each method; ms and, in brackets, times faster than torch's own for each rate; MB and ratio."""
    rates = list(results)
    values = results[rates[0]]["values"]
    lines = [f"GPT of {values / 1e6:.1f} million parameters, {options.layers} blocks, {options.tokens} tokens a rank.", "",
             "| method | " + " | ".join(f"ms, {rate}" for rate in rates) + " | MB a step and machine | times fewer bytes |",
             "| --- |" + " ---: |" * (len(rates) + 2)]
    for method in options.methods:
        base = METHODS[method][0]
        cells = []
        for rate in rates:
            rows = results[rate]["methods"]
            faster = f" ({rows[base]['ms'] / rows[method]['ms']:.1f}x)" if base in rows and base != method else ""
            cells.append(f"{rows[method]['ms']:,.0f}{faster}")
        rows = results[rates[-1]]["methods"]
        fewer = f"{rows[base]['mb'] / rows[method]['mb']:.1f}" if base in rows and base != method else ""
        lines.append(f"| {method} | {' | '.join(cells)} | {rows[method]['mb']:.3f} | {fewer} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rates", default="none,1gbit,100mbit", help="as tc writes them; none: no limit")
    parser.add_argument("--steps", type=int, default=5, help="counted, in each round")
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32, help="of a step, on each rank")
    parser.add_argument("--reshard", action="store_true", help="reshard_after_forward=True")
    parser.add_argument("--methods", default=";".join(METHODS), help="with ';' between them")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds, for each rate")
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--page", help="file for the table")
    parser.add_argument("--out", help=argparse.SUPPRESS)  # given to ranks
    options = parser.parse_args()
    options.methods = options.methods.split(";")
    unknown = [method for method in options.methods if method not in METHODS]
    if unknown:
        parser.error(f"--methods has {', '.join(unknown)}; choices: {'; '.join(METHODS)}")
    if options.out:
        return be_rank(options)
    if os.geteuid() != 0:
        sys.exit("compare_sharded: needs root, to make network namespaces")
    results = {rate: measure(options, rate) for rate in options.rates.split(",")}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"options": vars(options), "results": results}, indent=1))
    table = page(results, options)
    if options.page:
        pathlib.Path(options.page).write_text(table)
    print(table, end="")
    return None


if __name__ == "__main__":
    main()
