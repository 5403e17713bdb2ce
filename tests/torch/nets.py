"""A small network, its batches and steps. SPDX-License-Identifier: Apache-2.0"""
import torch
from torch import nn


def make_net(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(),
                         nn.Linear(6 * 36, 32), nn.ReLU(), nn.Linear(32, 4))


def batch_of(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    images = torch.randn(8, 1, 8, 8, generator=generator)
    return images, images.flatten(1)[:, :4].argmax(1)


def backward(model, number, rank):
    images, labels = batch_of(number, rank)
    nn.functional.cross_entropy(model(images), labels).backward()


def step(model, number, rank):
    """Of plain SGD, which keeps nothing."""
    model.zero_grad()
    backward(model, number, rank)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.05 * parameter.grad


def train(model, optimizer, rank, steps, first=0):
    for number in range(first, first + steps):
        optimizer.zero_grad()
        backward(model, number, rank)
        optimizer.step()


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])
