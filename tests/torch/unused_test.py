"""What memories owe to parameters that no rank uses in a step, and to frozen ones.
SPDX-License-Identifier: Apache-2.0"""
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kinds import MIDDLES, gradients_of
from ranks import on_ranks


class Turns(nn.Module):
    """Heads that take turns; layers of every type that may have a memory."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.trunk = nn.Linear(6, 8)
        self.heads = nn.ModuleList(MIDDLES[name]() for name in ("plain", "float16", "complex", "scalar"))
        self.turn = 0

    def forward(self, images):
        return self.heads[self.turn](torch.relu(self.trunk(images)))


def owed_to_unused(rank, size, to_none, settings):
    """The same where no rank uses a head in the steps that would bring the rest."""
    import thinwire.torch as tw
    models = [DistributedDataParallel(Turns(), find_unused_parameters=True, **settings) for _ in range(2)]
    link = tw.compress(models[1], "topk:density=0.1", rules={"*.gain": "int8"})
    sums, untouched = [0, 0], 0
    for step, turn in enumerate((0, 1, 2, 3, 0, 3, 3, 3)):
        if step == 5:
            link.change("fp32")
        for i, model in enumerate(models):
            model.module.turn = turn
            model.zero_grad(set_to_none=to_none)
            generator = torch.Generator().manual_seed(1000 * step + rank)
            nn.functional.cross_entropy(model(torch.randn(8, 6, generator=generator)),
                                        torch.arange(8)).backward()
            sums[i] = sums[i] + gradients_of(model)
    if to_none:
        untouched = sum(p.grad is None for p in models[1].parameters())
    frozen = models[1].module.heads[0].weight.grad
    return sums, untouched, frozen is None


def owed_to_frozen(rank, size):
    """What is owed to a layer when it is frozen does not move it."""
    import thinwire.torch as tw
    model = DistributedDataParallel(Turns(), find_unused_parameters=True)
    tw.compress(model, "topk:density=0.1")
    found = []
    for step, turn in enumerate((0, 3, 3)):
        model.module.turn = turn
        model.module.heads[0].requires_grad_(step != 1)
        model.zero_grad()
        model(torch.ones(2, 6)).square().sum().backward()
        found.append(model.module.heads[0].weight.grad is not None)
    return found


def owed_in_channels_last(rank, size):
    """How far what arrives of a gradient is from it, in the end."""
    import thinwire.torch as tw

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.first, self.second, self.turn = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), 0

        def forward(self, images):
            return (self.second if self.turn else self.first)(images)

    net = Two().to(memory_format=torch.channels_last)
    model = DistributedDataParallel(net, find_unused_parameters=True)
    link = tw.compress(model, "topk:density=0.1")
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(rank))
    sums = 0
    for step in range(2):
        net.turn = step
        model.zero_grad()
        model(images).square().sum().backward()
        sums = sums + net.first.weight.grad
        link.change("fp32")
    plain = DistributedDataParallel(Two(), find_unused_parameters=True)
    plain(images).square().sum().backward()
    return (sums - plain.module.first.weight.grad).abs().max().item(), sums.abs().max().item()


class Unused(unittest.TestCase):
    def test_what_is_owed_to_parameters_in_channels_last_arrives_in_its_place(self):
        for distance, largest in on_ranks(2, owed_in_channels_last):
            self.assertLess(distance, 1e-4 * largest)

    def test_what_is_owed_to_parameters_that_no_rank_uses_arrives(self):
        for to_none in (True, False):
            for settings in ({}, {"gradient_as_bucket_view": True}):
                for (plain, ours), untouched, is_none in on_ranks(2, owed_to_unused, to_none, settings):
                    self.assertGreater(plain.abs().max().item(), 1e-2)
                    self.assertLess((plain - ours).abs().max().item(), 2e-3)
                    if to_none:  # once nothing is owed any more
                        self.assertEqual(untouched, 5)
                        self.assertTrue(is_none)

    def test_what_is_owed_to_a_frozen_parameter_does_not(self):
        self.assertEqual(on_ranks(2, owed_to_frozen), [[True, False, True]] * 2)


if __name__ == "__main__":
    unittest.main()
