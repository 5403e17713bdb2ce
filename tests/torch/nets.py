"""A small network and its batches. SPDX-License-Identifier: Apache-2.0"""
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


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])
