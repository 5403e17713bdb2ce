#!/usr/bin/env python3
"""What FSDP2's collectives send, with and without a link, as the loopback device counts it.

    sudo unshare -n lab/fsdp_bytes.py --ranks 2,4

The network namespace has no traffic but that of the ranks. SPDX-License-Identifier: Apache-2.0"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

LAYERS, WIDTH = 4, 512
VARIANTS = {
    "torch's own": None,
    "`fp32`, weights `fp32`": {"codec": "fp32", "weights": "fp32"},
    "`int8` with `loco`, weights `bf16`": {"codec": "int8", "feedback": "loco", "weights": "bf16"},
    "`int4` with `loco`, weights `int8`": {"codec": "int4", "feedback": "loco", "weights": "int8"},
}


def received():
    """Bytes that the loopback device has received in this namespace."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0])
    sys.exit("fsdp_bytes: there is no loopback device")


def measure(settings, dist, torch):
    """Bytes of the all-gathers of a forward pass and the reduce-scatters of a backward pass, of all ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import thinwire.torch as tw
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh)
    if settings is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tw.compress(model, **settings)
    batch = torch.randn(4, WIDTH)
    model(batch).square().mean().backward()
    counts = []
    for part in range(3):
        dist.barrier()
        counts.append(received())
        dist.barrier()
        if part == 0:
            loss = model(batch).square().mean()
        elif part == 1:
            loss.backward()
    return counts[1] - counts[0], counts[2] - counts[1]


def rank_main(rank, ranks, store):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    size = LAYERS * WIDTH * WIDTH * 4 * ranks
    for name, settings in VARIANTS.items():
        gathered, reduced = measure(settings, dist, torch)
        if rank == 0:
            print(f"| {ranks} | {name} | {gathered / size:.3f} | {reduced / size:.3f} |", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks")
    parser.add_argument("--rank", nargs=3, help=argparse.SUPPRESS)  # of a process that this one starts
    arguments = parser.parse_args()
    if arguments.rank:
        rank, ranks, store = arguments.rank
        return rank_main(int(rank), int(ranks), store)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    print("| ranks | collectives | all-gather | reduce-scatter |\n| ---: | --- | ---: | ---: |")
    for ranks in arguments.ranks.split(","):
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            started = [subprocess.Popen([sys.executable, __file__, "--rank", str(rank), ranks, store])
                       for rank in range(int(ranks))]
            if any([one.wait() for one in started]):
                sys.exit("fsdp_bytes: a rank failed")


if __name__ == "__main__":
    main()
