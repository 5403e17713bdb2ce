"""Two pipeline stages on two ranks, with 4-bit activations and 8-bit gradients between them.

    torchrun --nproc-per-node 2 pipeline.py

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import pathlib

import torch
import torch.distributed as dist
from torch import nn

import thinwire.torch as tw
from fashion import load

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
    first = dist.get_rank() == 0
    stage = (nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)) if first else
             nn.Sequential(nn.Flatten(), nn.Linear(16 * 13 * 13, 128), nn.ReLU(), nn.Linear(128, 10)))
    boundary = tw.Boundary([16, 13, 13], SAMPLES, micro_batches=MICRO_BATCHES, codec=options.codec,
                           gradient_codec=options.gradient_codec, per_sample=True,
                           **({"to_rank": 1} if first else {"from_rank": 0}))
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.05, momentum=0.9)
    train = load(options.data, "train", options.samples)
    for epoch in range(options.epochs):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(MICRO_BATCHES * SAMPLES):
            if len(batch) < MICRO_BATCHES * SAMPLES:
                continue
            optimizer.zero_grad()
            ends = []
            for part in batch.split(SAMPLES):  # all forward, then all backward
                images, labels = train[part]
                if first:
                    ends.append(boundary.send(stage(images)))
                else:
                    logits = stage(boundary.receive())
                    ends.append(nn.functional.cross_entropy(logits, labels) / MICRO_BATCHES)
            for end in ends:
                end.backward()
            optimizer.step()
            boundary.step()
        if not first:
            print(f"epoch {epoch + 1}: loss {sum(end.item() for end in ends):.3f}")
    print(f"stage {dist.get_rank()}: {boundary.metrics()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
