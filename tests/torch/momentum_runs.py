"""Runs of a small net whose optimiser has momentum, for tests. SPDX-License-Identifier: Apache-2.0"""
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import batch_of, make_net, weights_of

STEPS = 8


def groups_of(model):
    """Three kinds of parameters with options of their own."""
    convolution, norm, _, _, hidden, _, output = model.module
    return [
        {"params": list(convolution.parameters()), "momentum": 0.9, "weight_decay": 0.05},
        {"params": list(hidden.parameters()), "momentum": 0.7, "nesterov": True, "weight_decay": 0.02},
        {"params": list(output.parameters()), "momentum": 0.8, "dampening": 0.25, "weight_decay": 0.05},
        {"params": list(norm.parameters()), "momentum": 0.0, "dampening": 0.5, "weight_decay": 0.01},
    ]


class Run:
    """A model, its optimiser and, unless codec is None, its link."""

    def __init__(self, codec, options=None, settings=None):
        import thinwire.torch as tw
        self.model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
        self.optimizer = torch.optim.SGD(groups_of(self.model), lr=0.05, **(options or {}))
        self.link = None
        if codec is not None:
            self.compress(tw, codec, settings)

    def compress(self, tw, codec, settings=None):
        self.link = tw.compress(self.model, codec, optimizer=self.optimizer, **(settings or {}))

    def steps(self, rank, first, last, poisoned=None):
        for step in range(first, last):
            for group in self.optimizer.param_groups:
                group["lr"] = 0.05 if step < 3 else 0.02
                if step == 5 and group["momentum"] != 0:
                    group["momentum"] = 0.6
            images, labels = batch_of(step, rank)
            if step == poisoned and rank == 1:
                images = images * float("nan")
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(images), labels)
            (-loss if self.optimizer.defaults["maximize"] else loss).backward()
            gradients = [p.grad for p in self.model.parameters()]
            if all(g.isfinite().all() for g in gradients):
                before = [g.clone() for g in gradients]
                self.optimizer.step()
                for parameter, gradient in zip(self.model.parameters(), before):
                    assert torch.equal(parameter.grad, gradient)  # they stay what the exchange brought
        return self


def away(one, other):
    return (weights_of(one.model) - weights_of(other.model)).abs().max().item()
