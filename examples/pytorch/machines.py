"""The small GPT of gpt.py on several machines with GPUs: NCCL inside each machine, thinwire between them. On each machine:

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint FIRST_MACHINE:29400 machines.py

fully_shard divides the model among the GPUs of a machine, by NCCL over NVLink or PCIe; the machines hold replicas, whose
gradients thinwire averages over the network between them. Without GPUs the same script runs on gloo; then
--per-machine says how many ranks play one machine. The lines of thinwire are marked.

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import gzip
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import thinwire.torch as tw  # thinwire
from gpt import TEXT, Gpt


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--codec", default="sidco:density=0.01")
    parser.add_argument("--per-machine", type=int, default=int(os.environ["LOCAL_WORLD_SIZE"]))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()

    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(1)  # the same on all ranks: fully_shard hands no values out
    text = gzip.decompress(TEXT.read_bytes()).decode()
    places = {symbol: i for i, symbol in enumerate(sorted(set(text)))}
    symbols = torch.tensor([places[symbol] for symbol in text])
    model = Gpt(len(places), options.context, options.width, options.layers, 4).to(device)
    machines = dist.get_world_size() // options.per_machine
    mesh = init_device_mesh(device.type, (machines, options.per_machine), mesh_dim_names=("replicate", "shard"))
    for block in model.blocks:
        fully_shard(block, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    link = tw.compress(model, options.codec, replicate=mesh["replicate"], optimizer=optimizer)  # thinwire
    draws = torch.Generator().manual_seed(dist.get_rank())
    for step in range(options.steps):
        begins = torch.randint(len(symbols) - options.context - 1, (16,), generator=draws)
        batch = torch.stack([symbols[b : b + options.context + 1] for b in begins]).to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and (step + 1) % max(1, options.steps // 10) == 0:
            counters = link.metrics()
            on_gpu = sum(bool(stream["on_device"]) for stream in counters["streams"])
            print(f"step {step + 1}: loss {loss.item():.3f}, {counters['wire_ratio']:.0f} times fewer bytes between "
                  f"machines, {on_gpu} of {len(counters['streams'])} vectors compressed on the GPU")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
