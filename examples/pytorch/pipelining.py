"""torch.distributed.pipelining on two ranks, 1F1B, with 4-bit activations and 8-bit gradients between the stages; the lines of
thinwire are marked.

    torchrun --nproc-per-node 2 pipelining.py

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import Schedule1F1B

import thinwire.torch as tw  # thinwire
from fashion import load
from thinwire.torch.pipelining import PipelineStage  # thinwire, instead of torch's

MICRO_BATCHES, SAMPLES = 4, 16


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--codec", default="uniform:bits=4,block=tensor")
    parser.add_argument("--gradient-codec", default="uniform:bits=8,block=tensor")
    parser.add_argument("--data", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=60000)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1)
    rank = dist.get_rank()
    module = (nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)) if rank == 0 else
              nn.Sequential(nn.Flatten(), nn.Linear(16 * 13 * 13, 128), nn.ReLU(), nn.Linear(128, 10)))
    boundary = tw.Boundary([16, 13, 13], SAMPLES, micro_batches=MICRO_BATCHES, codec=options.codec,  # thinwire
                           gradient_codec=options.gradient_codec, per_sample=True,
                           **({"to_rank": 1} if rank == 0 else {"from_rank": 0}))
    stage = PipelineStage(module, rank, 2, torch.device("cpu"),
                          **({"after": boundary} if rank == 0 else {"before": boundary}))  # thinwire
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=nn.functional.cross_entropy)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    train = load(options.data, "train", options.samples)
    for epoch in range(options.epochs):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(MICRO_BATCHES * SAMPLES):
            if len(batch) < MICRO_BATCHES * SAMPLES:
                continue
            images, labels = train[batch]
            optimizer.zero_grad()
            losses = []
            if rank == 0:
                schedule.step(images)
            else:
                schedule.step(target=labels, losses=losses)
            optimizer.step()
            boundary.step()  # thinwire
        if rank == 1:
            print(f"epoch {epoch + 1}: loss {sum(losses).item() / MICRO_BATCHES:.3f}")
    print(f"stage {rank}: {boundary.metrics()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
