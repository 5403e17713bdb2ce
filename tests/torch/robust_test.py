"""Rules that combine gradients of ranks of which some are wrong, and their mistakes.
SPDX-License-Identifier: Apache-2.0"""
import math
import os
import signal
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import on_ranks

RULES = ("trimmed_mean:f=1", "median", "multi_krum:f=1", "geometric_median")


def with_one_wrong_rank(rank, size):
    """The gradient that arrives where rank r gives r, and the last rank -1000."""
    import thinwire.torch as tw
    found = {}
    for rule in ("mean", *RULES):
        model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
        link = tw.compress(model, "fp32", combine=rule)
        given = -1000.0 if rank == size - 1 else float(rank)
        model(torch.full((1, 1), given)).sum().backward()
        found[rule] = model.module.weight.grad.item()
        link.change(codec="bf16")
        model.zero_grad()
        model(torch.full((1, 1), given)).sum().backward()
        found[rule, "bf16"] = model.module.weight.grad.item()
    return found


def who_was_left_out(rank, size):
    """Of three steps each: the last rank is far away, has a NaN, is like the others."""
    import thinwire.torch as tw
    found = []
    for method, rule in (("auto", "multi_krum:f=1"), ("gather", "multi_krum:f=1"), ("gather", "median")):
        model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
        link = tw.compress(model, "fp32", method=method, combine=rule)
        for step in range(3):
            given = [-1000.0, float("nan"), 4.0][step] if rank == size - 1 else float(rank)
            model.zero_grad()
            model(torch.full((1, 1), given)).sum().backward()
            metrics, mean = link.metrics(), model.module.weight.grad.item()
            found.append((metrics["skipped"], metrics["left_out"], metrics["unchosen"], metrics["participants"],
                          "nan" if math.isnan(mean) else mean))
    return found


def with_killed_ranks(rank, size, rule, killed):
    """Some ranks are killed in the backward pass of step 2, when the gradients of later layers are on their way."""
    import thinwire.torch as tw
    torch.manual_seed(5)
    net = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(40, 40), nn.Tanh())))
    model = DistributedDataParallel(net)
    link = tw.compress(model, "int8", method="gather", combine=rule, bucket_kb=4, deadline_seconds=30)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    left_out = []
    for step in range(6):
        if rank in killed and step == 2:
            first = next(model.parameters())  # the last to be ready
            first.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))
        torch.manual_seed(100 * step + rank)
        optimizer.zero_grad()
        model(torch.randn(8, 40)).square().sum().backward()
        optimizer.step()
        metrics = link.metrics()
        left_out.append((metrics["skipped"], metrics["participants"], metrics["left_out"]))
    return left_out, [parameter.detach().clone() for parameter in model.parameters()]


def mistakes(rank, size):
    import thinwire
    import thinwire.torch as tw
    found = []
    for combine in ("medain", "trimmed_mean:f=9", 3, "trimmed_mean:f=1"):
        try:
            tw.compress(DistributedDataParallel(nn.Linear(1, 1)), "fp32", combine=combine,
                        method="dense" if combine == "trimmed_mean:f=1" else "auto")
        except thinwire.Error as error:
            found.append(str(error))
    return found


class Robust(unittest.TestCase):
    def test_a_wrong_rank_decides_the_mean_alone(self):
        for found in on_ranks(5, with_one_wrong_rank):
            self.assertAlmostEqual(found["mean"], (0 + 1 + 2 + 3 - 1000) / 5, places=3)
            self.assertEqual(found["trimmed_mean:f=1"], 1)
            self.assertEqual(found["median"], 1)
            self.assertEqual(found["multi_krum:f=1"], 1.5)
            for rule in RULES:
                for key in (rule, (rule, "bf16")):
                    self.assertTrue(0 <= found[key] <= 3, (key, found))

    def test_metrics_name_the_ranks_that_were_left_out(self):
        nan = [(4, "non-finite values")]
        # Ranks 0 and 4 are equally far out in the third steps, and the lower one is chosen.
        expected = [
            (False, [], [4], 5, 1.5), (True, [], [], 5, "nan"), (False, [], [4], 5, 1.5),
            (False, [], [4], 5, 1.5), (False, nan, [], 4, 1.5), (False, [], [4], 5, 1.5),
            (False, [], [], 5, 1.0), (False, nan, [], 4, 1.5), (False, [], [], 5, 2.0)]
        for found in on_ranks(5, who_was_left_out):
            self.assertEqual(found, expected)

    def test_ranks_that_are_killed_in_mid_step_are_among_the_faulty_ones(self):
        for rule, size, killed in (("median", 4, {3}), ("trimmed_mean:f=1", 3, {0}), ("multi_krum:f=2", 7, {4, 6})):
            with self.subTest(rule=rule):
                found = on_ranks(size, with_killed_ranks, rule, killed, lost=killed)
                silent = [(rank, "silence") for rank in sorted(killed)]
                for left_out, weights in found:
                    self.assertEqual(left_out[:2], [(False, size, [])] * 2)
                    self.assertEqual(left_out[2:], [(False, size - len(killed), silent)] * 4)
                    for own, first in zip(weights, found[0][1]):
                        self.assertTrue(torch.equal(own, first))
                        self.assertTrue(torch.isfinite(own).all())

    def test_mistakes_are_named(self):
        for found in on_ranks(3, mistakes):
            self.assertEqual(len(found), 4, found)
            self.assertIn("did you mean 'median'?", found[0])
            self.assertIn("needs 2 f + 1 = 19 ranks at least, and the group has 3", found[1])
            self.assertIn("combine is 3, must be a text", found[2])
            self.assertIn("method dense combines contributions by mean alone", found[3])


if __name__ == "__main__":
    unittest.main()
