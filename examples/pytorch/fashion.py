"""Image classification on Fashion-MNIST with DistributedDataParallel; the lines of thinwire are marked.

    torchrun --nproc-per-node 2 fashion.py --codec sidco:density=0.01

`--codec none` leaves DistributedDataParallel as it is, to compare with.
The data are Debian's package dataset-fashion-mnist, or four files of that name in --data.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import gzip
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import thinwire.torch as tw  # thinwire


def load(folder, part, count):
    images = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:]
    pixels = torch.frombuffer(bytearray(images), dtype=torch.uint8).view(-1, 1, 28, 28)[:count]
    classes = torch.frombuffer(bytearray(labels), dtype=torch.uint8)[:count]
    return TensorDataset(pixels.float() / 255 - 0.5, classes.long())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--codec", default="sidco:density=0.01")
    parser.add_argument("--feedback", default="auto", help="memory of the codec")
    parser.add_argument("--momentum", default="auto", help="where the optimiser's momentum acts")
    parser.add_argument("--data", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=60000)
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    parser.add_argument("--beta1", type=float, default=0.9, help="of AdamW")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", help="folder for this rank's state")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(options.seed)
    net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(),
                        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
    model = DistributedDataParallel(net)
    if options.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, betas=(options.beta1, 0.999))
    train, test = load(options.data, "train", options.samples), load(options.data, "t10k", 10000)
    sampler = DistributedSampler(train, seed=options.seed)
    batches = DataLoader(train, 64, sampler=sampler)
    link = None
    if options.codec != "none":
        link = tw.compress(model, options.codec, feedback=options.feedback, optimizer=optimizer,  # thinwire
                           momentum=options.momentum, steps_per_epoch=batches)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = (net(test.tensors[0]).argmax(1) == test.tensors[1]).float().mean().item()
        if dist.get_rank() == 0:
            metrics = link.metrics() if link else {}
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}, {100 * right:.2f} % right" +
                  (f", {metrics['sent_bytes']} bytes sent in the last step, "
                   f"{metrics['wire_ratio']:.0f} times fewer than dense" if link else ""))
    if options.checkpoint:
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(),
                    "link": link.state_dict() if link else None}, f"{options.checkpoint}/rank{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
