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


FORMS = [(to_none, views) for to_none in (True, False) for views in (False, True)]


def wrapped(net, views=False):
    return DistributedDataParallel(net, find_unused_parameters=True, gradient_as_bucket_view=views)


def owed_to_frozen(rank, size, to_none, views):
    """In which steps a layer that is frozen in the second one has a gradient other than zero."""
    import thinwire.torch as tw
    model = wrapped(Turns(), views)
    tw.compress(model, "topk:density=0.1")
    found = []
    for step, turn in enumerate((0, 3, 3)):
        model.module.turn = turn
        model.module.heads[0].requires_grad_(step != 1)
        model.zero_grad(set_to_none=to_none)
        model(torch.ones(2, 6)).square().sum().backward()
        gradient = model.module.heads[0].weight.grad
        found.append(gradient is not None and bool(gradient.any()))
    return found


def unused_in_a_skipped_step(rank, size, to_none, views):
    """Whether gradients of a head that a step with NaN does not use are finite, and whether those of the used one are."""
    import thinwire.torch as tw
    model = wrapped(Turns(), views)
    tw.compress(model, "topk:density=0.1")
    for step in range(3):
        model.module.turn = 3 * (step % 2)
        model.zero_grad(set_to_none=to_none)
        (model(torch.ones(2, 6)) * (torch.nan if step == 2 and rank else 1)).square().sum().backward()
    return [all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.module.heads[turn].parameters())
            for turn in (3, 0)]


def owed_to_sparse(rank, size):
    """How far what arrives of a sparse gradient is from it, in the end, and whether it stays sparse."""
    import thinwire.torch as tw
    found = []
    for codec in ("fp32", "topk:density=0.1"):
        net = nn.ModuleDict({"table": nn.Embedding(20, 8, sparse=True), "other": nn.Linear(8, 4)})
        net.forward = lambda rows: (net["table"](rows) if rows is not None else net["other"](torch.ones(8))).square().sum()
        nn.init.ones_(net["table"].weight)
        model = wrapped(net)
        link = tw.compress(model, codec)
        sums = 0
        for rows in (torch.arange(4) + rank, None, None):
            model.zero_grad(set_to_none=False)
            model(rows).backward()
            sums = sums + net["table"].weight.grad.to_dense()
            link.change("fp32")
        found.append(sums)
    return (found[0] - found[1]).abs().max().item(), found[0].any().item(), net["table"].weight.grad.is_sparse


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
        for to_none, views in FORMS:
            self.assertEqual(on_ranks(2, owed_to_frozen, to_none, views), [[True, False, True]] * 2)

    def test_gradients_that_no_rank_uses_stay_finite_in_a_skipped_step(self):
        for form in FORMS:
            self.assertEqual(on_ranks(2, unused_in_a_skipped_step, *form), [[True, False]] * 2)

    def test_what_is_owed_to_a_table_of_sparse_gradients_arrives(self):
        for distance, has_any, is_sparse in on_ranks(2, owed_to_sparse):
            self.assertLess(distance, 1e-5)
            self.assertTrue(has_any and is_sparse)


if __name__ == "__main__":
    unittest.main()
