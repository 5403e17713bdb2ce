"""The small GPT of gpt.py, sharded by fully_shard; the lines of thinwire are marked.

    torchrun --nproc-per-node 4 sharded.py --replicas 2     # two replicas of two shards, SIDCo between them
    torchrun --nproc-per-node 4 sharded.py --replicas 1     # four shards, int4 gradients, int8 weights

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import gzip

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import thinwire.torch as tw  # thinwire
from gpt import TEXT, Gpt


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1)  # the same on all ranks: fully_shard hands no values out
    text = gzip.decompress(TEXT.read_bytes()).decode()
    places = {symbol: i for i, symbol in enumerate(sorted(set(text)))}
    symbols = torch.tensor([places[symbol] for symbol in text])
    model = Gpt(len(places), options.context, options.width, options.layers, 4)
    mesh = init_device_mesh("cpu", (options.replicas, dist.get_world_size() // options.replicas),
                            mesh_dim_names=("replicate", "shard"))
    for block in model.blocks:
        fully_shard(block, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if options.replicas > 1:
        link = tw.compress(model, "sidco:density=0.01", replicate=mesh["replicate"], optimizer=optimizer)  # thinwire
    else:
        link = tw.compress(model, "int4", feedback="loco", weights="int8")  # thinwire
    draws = torch.Generator().manual_seed(dist.get_rank())
    for step in range(options.steps):
        begins = torch.randint(len(symbols) - options.context - 1, (16,), generator=draws)
        batch = torch.stack([symbols[b : b + options.context + 1] for b in begins])
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and (step + 1) % max(1, options.steps // 10) == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}, {link.metrics()['wire_ratio']:.0f} times fewer bytes")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
