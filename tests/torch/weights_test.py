"""Ranks that weigh differently in a mean, and ranks that sit a step out.
SPDX-License-Identifier: Apache-2.0"""
import math
import unittest

import torch
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from ranks import on_ranks


def linear(codec="fp32", **settings):
    import thinwire.torch as tw
    model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    return model, tw.compress(model, codec, weighted=True, **settings)


def mean(model, gradient):
    """What a step makes of a rank's gradient."""
    model.zero_grad()
    model(torch.full((1, 1), float(gradient))).sum().backward()
    return model.module.weight.grad.item()


def weighted(rank, size):
    model, link = linear()
    link.set_weight(rank + 1)
    found = [mean(model, 12 * (rank + 1)), mean(model, 12 * (rank + 1))]
    link.change("fp32", method="gather")  # which keeps weights
    found.append(mean(model, 12 * (rank + 1)))
    if rank == 0:
        link.abstain()
        found.append(mean(model, math.nan))
    else:
        found.append(mean(model, 12 * (rank + 1)))
    found.append(link.metrics()["participants"])
    link.set_weight(1)
    found.append(mean(model, 12 * (rank + 1)))
    return found


def nobody(rank, size):
    model, link = linear(max_skipped=1)
    found = []
    for _ in range(3):
        link.abstain()
        found.append(mean(model, math.nan))
        found.append(link.metrics()["skipped"])
    return found + [link.metrics()["fault"], mean(model, 4.0)]


def skipped(rank, size):
    """Steps of a codec that leaves values out. Rank 1 asks for the second to be skipped, whatever it has."""
    import thinwire.torch as tw
    found = []
    for skips in (True, False):
        model = DistributedDataParallel(nn.Linear(4, 1, bias=False))
        link = tw.compress(model, "topk:density=0.25", max_skipped=1)
        means = []
        for step in range(4):
            if step == 1 and not skips:
                continue
            if step == 1 and rank == 1:
                link.skip_step()
            model.zero_grad()
            spoilt = math.nan if step == 1 and rank == 1 else 1.0
            model(torch.arange(1.0, 5.0)[None] * spoilt).sum().backward()
            means.append(model.module.weight.grad[0].tolist())
            if step == 1:
                found.append((link.metrics()["skipped"], link.metrics()["fault"], link.metrics()["participants"]))
        found.append(means)
    return found


def spoilt(rank, size):
    """A NaN of a rank that takes part is a fault as ever."""
    model, link = linear()
    return mean(model, math.nan if rank == 1 else 1.0), link.metrics()["fault"]


def refused(rank, size):
    import thinwire.torch as tw
    errors = []
    for settings, call in (({}, lambda link: link.abstain()), ({}, lambda link: link.set_weight(2)),
                           ({"weighted": True}, lambda link: link.set_weight(0)),
                           ({"weighted": True}, lambda link: link.set_weight("2"))):
        model = DistributedDataParallel(nn.Linear(1, 1))
        try:
            call(tw.compress(model, "fp32", **settings))
            errors.append("nothing")
        except Exception as error:
            errors.append(str(error))
    try:
        tw.compress(DistributedDataParallel(nn.Linear(1, 1)), "topk", feedback="ef21", weighted=True)
    except Exception as error:
        errors.append(str(error))
    return errors


def joined(rank, size):
    """What rank 0 owes when its input ends stays with it, at 1/n, and is sent when it has input again."""
    import thinwire.torch as tw
    model = DistributedDataParallel(nn.Linear(8, 1, bias=False))
    link = tw.compress(model, "topk:density=0.125")
    sums = torch.zeros(8)

    def step(values):
        model.zero_grad()
        model(values[None]).sum().backward()
        sums.add_(model.module.weight.grad[0])

    ahead = torch.arange(8.0)
    with Join([model], divide_by_initial_world_size=False):
        for _ in range(1 + 2 * rank):
            step(ahead if rank == 0 else torch.zeros(8))
    link.change("fp32")
    step(torch.zeros(8))
    return sums.tolist() if rank == 1 else None


class Weights(unittest.TestCase):
    def test_the_mean_is_weighted(self):
        for size in (2, 3):
            for found in on_ranks(size, weighted):
                total, squares = sum(range(1, size + 1)), sum(r * r for r in range(1, size + 1))
                of_all = 12 * squares / total
                without = 12 * (squares - 1) / (total - 1)
                for value, wanted in zip(found, [of_all, of_all, of_all, without, size - 1, 12 * total / size]):
                    self.assertAlmostEqual(value, wanted, 5)

    def test_a_step_of_nobody_is_skipped_with_zeros(self):
        for found in on_ranks(2, nobody):
            self.assertEqual(found, [0.0, True] * 3 + ["no rank took part", 4.0])

    def test_one_rank_has_a_step_skipped_for_all(self):
        for told, skipping, straight in on_ranks(2, skipped):
            self.assertEqual(told, (True, "rank 1 asked to skip the step", 2))
            self.assertEqual(skipping[1], [0.0] * 4)
            self.assertEqual([skipping[0], *skipping[2:]], straight)  # memories went on as if it had never been

    def test_a_nan_is_a_fault_as_ever(self):
        for gradient, fault in on_ranks(2, spoilt):
            self.assertTrue(math.isnan(gradient))
            self.assertIn("of rank 1 has a NaN or Inf", fault)

    def test_mistakes_are_explained(self):
        for found in on_ranks(2, refused):
            self.assertIn("abstain: needs compress(..., weighted=True)", found[0])
            self.assertIn("set_weight: needs compress(..., weighted=True)", found[1])
            self.assertIn("weight is 0, must be a number above 0", found[2])
            self.assertIn("weight is '2', must be a number above 0", found[3])
            self.assertIn("memory ef21 follows the mean", found[4])

    def test_what_a_joined_rank_owes_is_kept(self):
        sums = on_ranks(2, joined)[1]
        for value, given in zip(sums, range(8)):
            self.assertAlmostEqual(value, given / 2, 6)


if __name__ == "__main__":
    unittest.main()
