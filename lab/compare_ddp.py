#!/usr/bin/env python3
"""Measures steps of DistributedDataParallel over slow links, with torch's own exchange and hook and with thinwire's.

    sudo lab/compare_ddp.py --rates none,1gbit,100mbit --ranks 2 --json ddp.json --page ddp.md
    sudo lab/compare_ddp.py --rates 100mbit --ranks 4

Ranks are processes on hosts of thin_links.py, one each, with one thread. Every rank trains the same MLP
(784-2048-2048-2048-10, 10 M parameters, batches of --batch, SGD) with one method after another, in rounds, so that all see the same
machine; the first steps of each round are not counted. The time is the median of a step on rank 0, all ranks
beginning it together; the bytes are what the host's card sent, headers of all layers included, and what thinwire says
that it sent. "alone" has no DistributedDataParallel, "ddp-nothing" one whose hook leaves gradients as they are, "ddp-hook" one with torch's hook
in Python that all-reduces them. A codec
"auto" first trains --settle steps by itself; what it decided in the end takes part in the rounds, and is in the table.

    sudo lab/compare_ddp.py --rates none,1gbit,100mbit --methods "ddp;auto:loss=small;auto:loss=any;fp16;int8" --rounds 5
thinwire.torch must be importable.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import host_ranks

METHODS = ("alone", "ddp-nothing", "ddp", "ddp-fp16", "fp16", "int8", "int4", "sign", "signum",
           "topk:density=0.01", "sidco:density=0.001", "powersgd:rank=1", "powersgd:rank=4")
SENT = pathlib.Path("/sys/class/net/net0/statistics/tx_bytes")


def build(method, width, bucket_kb):
    """The model of a method, whose backward pass leaves the mean gradient (or its own), and its link or None."""
    import torch
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    import thinwire.torch as tw

    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    if method == "alone":
        return net, None
    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    if method == "ddp-fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif method == "ddp-hook":
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    elif method == "ddp-nothing":
        model.register_comm_hook(None, leave_as_it_is)
    elif method != "ddp":
        codec, _, exchange = method.partition(" @ ")
        return model, tw.compress(model, codec, method=exchange or "auto", bucket_kb=bucket_kb)
    return model, None


def settled(auto, number, options):
    """A codec that follows what this "auto" decides last in --settle steps; the decision."""
    import torch.distributed as dist

    model, link = build(auto, options.width, options.bucket_kb)
    time_steps(model, options.batch, 0, options.settle)
    last = link.decisions()[-1]
    fields = [last["codec"], *(field for name, codec in last["others"].items() for field in (codec, name))]
    plan = pathlib.Path(f"{options.out}.{number}.txt")  # the same on all ranks, as their codecs' texts must be
    if dist.get_rank() == 0:
        plan.write_text("thinwire decisions 1\n" + "\t".join(["0", *fields]) + "\n")
    dist.barrier()
    loss = auto.partition("loss=")[2] or "small"
    exceptions = f", others for {len(last['others'])} tensors" if last["others"] else ""
    return f"auto:loss={loss},plan={plan}", f"{last['codec']}{exceptions}, decided in step {last['step']} of {options.settle}"


def leave_as_it_is(state, bucket):
    import torch
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def time_steps(model, batch, steps, warm_up):
    import torch
    import torch.distributed as dist
    from torch import nn

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = torch.Generator().manual_seed(dist.get_rank())
    times, sent = [], 0
    for step in range(warm_up + steps):
        images = torch.randn(batch, 784, generator=batches)
        labels = images[:, :10].argmax(1)
        dist.barrier()
        if step == warm_up:
            sent = int(SENT.read_text())
        began = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if step >= warm_up:
            times.append(time.perf_counter() - began)
    dist.barrier()
    return times, int(SENT.read_text()) - sent


def counted(metrics):
    """What thinwire says of a step: MB that it sent, ms by phase."""
    phases = ("compress", "wire", "decompress")
    return {"own_mb": metrics["sent_bytes"] / 1e6} | {f"{p}_ms": 1e3 * metrics[f"{p}_seconds"] for p in phases}


def be_rank(options):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    times = {method: [] for method in options.methods}
    sent = dict.fromkeys(options.methods, 0)
    fixed, decided = {method: method for method in options.methods}, {}
    for number, method in enumerate(options.methods):
        if method.startswith("auto"):
            fixed[method], decided[method] = settled(method, number, options)
    models = {method: build(fixed[method], options.width, options.bucket_kb) for method in options.methods}
    for _ in range(options.rounds):
        for method, (model, _link) in models.items():
            taken, size = time_steps(model, options.batch, options.steps, options.warm_up)
            times[method] += taken
            sent[method] += size
    if dist.get_rank() == 0:
        steps = options.rounds * options.steps
        rows = {m: {"ms": 1e3 * statistics.median(times[m]), "mb": sent[m] / steps / 1e6} for m in times}
        for method, text in decided.items():
            rows[method]["decided"] = text
        for method, (_, link) in models.items():
            if link is not None:
                rows[method] |= counted(link.metrics())
        pathlib.Path(options.out).write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def measure(options, rate):
    """ms and MB a step of each method over links of this rate."""
    arguments = ["--methods", ";".join(options.methods)]
    for name in ("ranks", "steps", "warm_up", "rounds", "settle", "width", "batch", "bucket_kb"):
        arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return json.loads(host_ranks.measure(__file__, arguments, rate, options.ranks, timeout=options.timeout))


def predict(options, rate):
    """ms of a step by method, as tw.plan says on this machine without a link; "ddp" and codecs."""
    import torch
    from torch import nn

    import thinwire.torch as tw

    torch.set_num_threads(1)
    net, _ = build("alone", options.width, options.bucket_kb)
    images = torch.randn(options.batch, 784)
    batch = images, images[:, :10].argmax(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    nn.functional.cross_entropy(net(batch[0]), batch[1]).backward()
    times = []
    for _ in range(7):
        began = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - began)
    codecs = [m for m in options.methods if m != "alone" and not m.startswith(("ddp", "auto"))]
    plan = tw.plan(net, batch, link=rate, ranks=options.ranks, codecs=codecs, steps=9,
                   optimizer_seconds=statistics.median(times))
    return {"ddp" if step.codec == plan.baseline else step.codec: 1e3 * step.seconds for step in plan}


def page(results, options):
    """A table: a row for each method, ms and times computation alone for each rate, and MB sent."""
    rates = list(results)
    lines = ["| method | " + " | ".join(f"ms, {rate}" for rate in rates) + " | MB by the card | MB by thinwire |",
             "| --- |" + " ---: |" * (len(rates) + 2)]
    for method in options.methods:
        cells = []
        for rate in rates:
            ms, alone = results[rate][method]["ms"], results[rate].get("alone", {}).get("ms")
            predicted = results[rate][method].get("predicted")
            cells.append(f"{ms:.0f}" + (f" ({ms / alone:.1f}x)" if alone else "") +
                         (f", predicted {predicted:.0f}" if predicted else "") +
                         (f": {results[rate][method]['decided']}" if "decided" in results[rate][method] else ""))
        last = results[rates[-1]][method]
        own = f"{last['own_mb']:.3f}" if "own_mb" in last else ""
        lines.append(f"| {method} | {' | '.join(cells)} | {last['mb']:.3f} | {own} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rates", default="none,1gbit,100mbit", help="as tc writes them; none: no limit")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="counted, in each round")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settle", type=int, default=120, help="steps in which a codec auto decides")
    parser.add_argument("--width", type=int, default=2048, help="of the hidden layers")
    parser.add_argument("--batch", type=int, default=32, help="images of a step")
    parser.add_argument("--bucket-kb", type=int, default=2048, help="of thinwire's methods")
    parser.add_argument("--methods", default=";".join(METHODS), help="with ';' between them")
    parser.add_argument("--predict", action="store_true", help="also what tw.plan says, before each rate is measured")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds, for each rate")
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--page", help="file for the table")
    parser.add_argument("--out", help=argparse.SUPPRESS)  # given to ranks
    options = parser.parse_args()
    options.methods = options.methods.split(";")
    if options.out:
        return be_rank(options)
    if os.geteuid() != 0:
        sys.exit("compare_ddp: needs root, to make network namespaces")
    results = {}
    for rate in options.rates.split(","):
        predicted = predict(options, rate) if options.predict else {}
        results[rate] = measure(options, rate)
        for method in set(predicted) & set(results[rate]):
            results[rate][method]["predicted"] = predicted[method]
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {"ranks": options.ranks, "width": options.width, "results": results}, indent=1))
    table = page(results, options)
    if options.page:
        pathlib.Path(options.page).write_text(table)
    print(table, end="")
    return None


if __name__ == "__main__":
    main()
