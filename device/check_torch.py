#!/usr/bin/env python3
"""Checks and times DistributedDataParallel with thinwire on a GPU. device/check_gpu.py runs it.

    device/check_torch.py bits OUT     every codec: two ranks on GPU 0, against the same ranks on the processor
    device/check_torch.py models OUT   optimisers, local methods, boundaries and HSDP, against the processor
    device/check_torch.py steps OUT    steps of a GPT of 100 million parameters, beside DistributedDataParallel in bf16

Ranks are processes, joined by gloo. Gradients of `bits` are drawn, not computed, so that the processor's are the same. The
steps run over links of thin_links.py where these can be made, else over the loopback, and the row says which. Each mode writes
lines of JSON to OUT. It ends with 3 if bits differ on any rank.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RANKS = 2
STEPS = 4
WARM_UP = 2  # steps that are not timed
DIFFER = 3  # exit status; Python itself ends with 1
METHODS = ("auto", "gather")
RATES = ("1gbit", "10gbit")
GPT = {"symbols": 32000, "context": 512, "width": 640, "layers": 12, "heads": 10}  # 100 million parameters


def gradient_model(device):
    """A model whose gradients are what a batch says: the loss is its product with the parameters."""
    import torch
    from torch import nn

    class Given(nn.Module):
        def __init__(self):
            super().__init__()
            shapes = {"convolution": (16, 8, 3, 3), "matrix": (300, 257), "odd": (4099,), "one": (1,)}
            self.values = nn.ParameterDict({name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()})

        def forward(self, batch):
            return sum((self.values[name] * batch[name]).sum() for name in self.values)

    return Given().to(device)


def batch_of(model, step, rank):
    import torch
    draws = torch.Generator().manual_seed(1000 * step + rank)
    return {name: torch.randn(value.shape, generator=draws) ** 3 for name, value in model.module.values.items()}


def means(codec, method, device, rank):
    """What the exchange makes of the gradients of some steps, on the processor, and counters of the last."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    import thinwire.torch as tw

    model = DistributedDataParallel(gradient_model(device))
    link = tw.compress(model, codec, method=method)
    found = []
    for step in range(STEPS):
        model.zero_grad()
        model({name: values.to(device) for name, values in batch_of(model, step, rank).items()}).backward()
        found.append(torch.cat([one.grad.detach().flatten().cpu() for one in model.parameters()]))
    return torch.stack(found), link.metrics()


def on_all_ranks(flags):
    """Which of these flags are set on every rank; all ranks learn the same."""
    import torch
    import torch.distributed as dist
    found = torch.tensor([int(flag) for flag in flags.values()])
    dist.all_reduce(found, op=dist.ReduceOp.MIN)
    return dict(zip(flags, map(bool, found.tolist())))


def compared(here, there, same_bytes):
    """Flags that speak for all ranks: each compares with the processor, and with what rank 0 has."""
    import torch
    import torch.distributed as dist
    first = there.clone()
    dist.broadcast(first, 0)
    bits, bits_there = here.view(torch.int32), there.view(torch.int32)
    return on_all_ranks({"equal": torch.equal(bits, bits_there),
                         "same_on_all_ranks": torch.equal(first.view(torch.int32), bits_there),
                         "same_bytes": same_bytes})


def name_of_gpu(device):
    """Empty for the processor."""
    import torch
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


def codec_names():
    import thinwire
    return sorted(one.name for one in thinwire.codecs())


def check_bits(out, rank, device, codecs):
    """Whether all was equal, on all ranks."""
    import torch

    from thinwire.errors import Error

    good = True
    for codec in codecs or codec_names():
        for method in METHODS:
            row = {"codec": codec, "method": method, "gpu": name_of_gpu(device)}
            try:
                here, counters = means(codec, method, torch.device("cpu"), rank)
            except Error as error:  # all ranks alike: it takes options, or another method
                row["refused"] = str(error).splitlines()[0]
            else:
                there, counters_there = means(codec, method, device, rank)
                flags = compared(here, there, counters["sent_bytes"] == counters_there["sent_bytes"])
                good = good and all(flags.values())
                row.update(flags, on_device=sum(bool(stream["on_device"]) for stream in counters_there["streams"]),
                           streams=len(counters_there["streams"]),
                           values=sum(stream["values"] for stream in counters_there["streams"]),
                           to_host=counters_there["device_to_host_bytes"],
                           from_host=counters_there["host_to_device_bytes"])
            if rank == 0:
                out.write(json.dumps(row) + "\n")
                out.flush()
    return good


def gpt(device, small):
    sys.path.insert(0, str(ROOT / "examples" / "pytorch"))
    from gpt import Gpt
    sizes = {"symbols": 64, "context": 16, "width": 32, "layers": 1, "heads": 2} if small else GPT
    return Gpt(sizes["symbols"], sizes["context"], sizes["width"], sizes["layers"], sizes["heads"]).to(device), sizes


def in_bf16(state, bucket):
    """DistributedDataParallel's own hook, which it refuses by its name where there is no NCCL: for rehearsals."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    return default_hooks.bf16_compress_hook(state, bucket)


def time_steps(out, rank, device, rate, small):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import thinwire.torch as tw

    for method in ("ddp-bf16", "bf16", "int8", "sidco:density=0.01", "topk:density=0.01", "adacomp"):
        torch.manual_seed(1)
        net, sizes = gpt(device, small)
        model = DistributedDataParallel(net)
        link = None
        if method == "ddp-bf16":
            model.register_comm_hook(None, in_bf16)
        else:
            link = tw.compress(model, method)
        times = []
        for step in range(WARM_UP + (2 if small else 7)):
            text = torch.randint(sizes["symbols"], (2, sizes["context"] + 1), device=device)
            dist.barrier()
            began = time.perf_counter()
            model.zero_grad()
            with torch.autocast(device.type, torch.bfloat16):
                logits = model(text[:, :-1]).flatten(0, 1)
            nn.functional.cross_entropy(logits.float(), text[:, 1:].flatten()).backward()
            next(model.parameters()).grad.sum().item()  # the device has done it
            if step >= WARM_UP:
                times.append(time.perf_counter() - began)
        if rank == 0:
            counters = link.metrics() if link is not None else {}
            out.write(json.dumps({
                "method": method, "link": rate, "gpu": name_of_gpu(device), "ms": 1e3 * statistics.median(times),
                "parameters": sum(one.numel() for one in net.parameters()),
                "sent_mb": counters.get("sent_bytes", 0) / 1e6,
                "pcie_mb": (counters.get("device_to_host_bytes", 0) + counters.get("host_to_device_bytes", 0)) / 1e6}) + "\n")
            out.flush()
        del model, link, net


def be_rank(options):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    device = torch.device(options.device)
    from gpu_models import check_models
    dist.init_process_group("gloo")
    good = True
    with open(options.out, "a", encoding="utf-8") as out:
        if options.mode == "models":
            for row in check_models(rank, device):
                if rank == 0:
                    out.write(json.dumps(row) + "\n")
                    out.flush()
        elif options.mode == "bits":
            good = check_bits(out, rank, device, options.codecs.split(";") if options.codecs else [])
        else:
            time_steps(out, rank, device, options.link, options.small)
    dist.barrier()
    dist.destroy_process_group()
    return 0 if good else DIFFER


def start(options, link, prefixes, address, more):
    command = [sys.executable, __file__, options.mode, options.out, "--device", options.device, "--link", link]
    command += (["--small"] if options.small else []) + ["--codecs", options.codecs]
    ranks = [subprocess.Popen([*prefixes[rank], *command], env=dict(
        os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR=address, **more)) for rank in range(RANKS)]
    try:
        codes = [rank.wait(timeout=options.timeout) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if codes == [DIFFER] * RANKS:
        sys.exit(DIFFER)  # the rows say what differs
    if any(codes):
        sys.exit(f"check_torch.py: ranks end with {codes}")


def over_loopback(options, link):
    start(options, link, [[]] * RANKS, "127.0.0.1", {"MASTER_PORT": str(29500 + os.getpid() % 1000)})


def links():
    """The module that makes links; None where they cannot be made."""
    sys.path.insert(0, str(ROOT / "lab"))
    import thin_links
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc"))):
        return None
    lab = thin_links.Lab(RANKS, RATES[0], "256kb", "50ms")
    try:
        lab.set_up()
    except RuntimeError:  # a kernel without bridges or token buckets
        return None
    finally:
        lab.tear_down()
    return thin_links


def over_links(options, thin_links):
    for rate in RATES:
        lab = thin_links.Lab(RANKS, rate, "256kb", "50ms")
        try:
            lab.set_up()
            prefixes = [["ip", "netns", "exec", lab.namespace(host)] for host in lab.hosts]
            start(options, rate, prefixes, f"{thin_links.NET}.1", {"MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "net0"})
        finally:
            lab.tear_down()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("mode", choices=("bits", "models", "steps"))
    parser.add_argument("out")
    parser.add_argument("--device", default="cuda:0", help="cpu: a rehearsal, which shows that the script runs")
    parser.add_argument("--codecs", default="", help="of bits, with ';' between them; all if absent")
    parser.add_argument("--small", action="store_true", help="a GPT of no use, for rehearsals")
    parser.add_argument("--timeout", type=float, default=3600)
    parser.add_argument("--link", default="", help=argparse.SUPPRESS)  # given to ranks
    options = parser.parse_args()
    if "RANK" in os.environ:
        return be_rank(options)
    pathlib.Path(options.out).unlink(missing_ok=True)
    thin_links = links() if options.mode == "steps" and options.device != "cpu" else None
    if thin_links is not None:
        over_links(options, thin_links)
    else:
        over_loopback(options, "loopback")
    return 0


if __name__ == "__main__":
    sys.exit(main())
