"""Leader SGD in the place of post-local SGD: workers step by themselves and are pulled to the best in rounds.

    torchrun --nproc-per-node 2 leader.py --tau 16

With torch alone the marked lines are PostLocalSGDOptimizer around the same optimiser.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import thinwire.torch as tw  # thinwire
from fashion import load


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tau", type=int, default=16)
    parser.add_argument("--codec", default="int8")
    parser.add_argument("--data", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=60000)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = tw.LeaderSGD(inner, model, tau=options.tau, codec=options.codec)  # thinwire
    train, test = load(options.data, "train", options.samples), load(options.data, "t10k", 2000)
    sampler = DistributedSampler(train)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(train, 64, sampler=sampler):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step(loss=loss)
        with torch.no_grad(), optimizer.centre():
            right = (model(test.tensors[0]).argmax(1) == test.tensors[1]).float().mean().item()
        if dist.get_rank() == 0:
            metrics = optimizer.metrics()
            print(f"epoch {epoch + 1}: {100 * right:.1f} % right, {metrics['rounds']} rounds, "
                  f"rank {metrics['leader']} led the last, {metrics['total_sent_bytes']} bytes sent")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
