"""Tests of clipping after one batch with a large gradient. SPDX-License-Identifier: Apache-2.0"""
import unittest
import warnings

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw
from nets import batch_of, make_net
from ranks import on_ranks

SPIKE = 12  # the step
CODEC = "topk:density=0.05"


def norms(rank, size, settings):
    """Of the means at fixed weights; rank 0 has one gradient that is 50 times as large."""
    model = DistributedDataParallel(make_net())
    if settings is not None:
        tw.compress(model, **settings)
    found = []
    for step in range(30):
        images, labels = batch_of(0, rank)
        model.zero_grad()
        factor = 50 if step == SPIKE and rank == 0 else 1
        (factor * nn.functional.cross_entropy(model(images), labels)).backward()
        found.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1e9)))
    return found


def long_after(found):
    """Steps behind that batch with more than twice the usual norm, and that of the batch itself in usual ones."""
    usual = sorted(found[:SPIKE])[SPIKE // 2]
    return sum(norm > 2 * usual for norm in found[SPIKE + 1:]), found[SPIKE] / usual


def said_of_clipping(rank, size):
    """Warnings of eight steps of scripts that clip, or do something else to gradients."""
    def steps(bound=1e9, scale=None, given=False, momentum=0.9, factor=lambda step: 1, **settings):
        model = DistributedDataParallel(make_net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1, growth_interval=1, enabled=scale is not None)
        tw.compress(model, CODEC, optimizer=optimizer, **({"scaler": scaler} if given else {}), **settings)
        with warnings.catch_warnings(record=True) as texts:
            warnings.simplefilter("always")
            for step in range(8):
                images, labels = batch_of(step, rank)
                optimizer.zero_grad()
                scaler.scale(nn.functional.cross_entropy(model(images), labels)).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), bound)
                for parameter in model.parameters():
                    parameter.grad.mul_(factor(step))
                scaler.step(optimizer)
                scaler.update()
        return [str(one.message) for one in texts if "scaled down" in str(one.message)]

    return {"low": steps(0.01), "scaled": steps(0.01, 1024.0), "given": steps(0.01, 1024.0, given=True),
            "high": steps(), "high, scaled": steps(scale=1024.0), "divided": steps(factor=lambda step: 1 / 3),
            "raised": steps(factor=lambda step: step + 1.3),
            "at the optimizer": steps(0.01, momentum=0.9, feedback="residual"),
            "none": steps(0.01, momentum=0.0)}


class Clipping(unittest.TestCase):
    def test_clipping_a_mean_of_velocities_is_warned_of_once(self):
        for found in on_ranks(2, said_of_clipping):
            for name in ("low", "scaled", "given"):
                self.assertEqual(len(found[name]), 1, name)
                self.assertIn("about 10 times that of a gradient", found[name][0])
                self.assertIn('feedback="ahead:clip=C"', found[name][0])
            for name in ("high", "high, scaled", "divided", "raised", "at the optimizer", "none"):
                self.assertEqual(found[name], [], name)

    def test_a_memory_spreads_a_large_gradient_over_steps_unless_it_is_clipped_before(self):
        plain, _ = on_ranks(2, norms, None)
        dense, _ = on_ranks(2, norms, {"codec": "int8"})
        burst, _ = on_ranks(2, norms, {"codec": CODEC})
        clipped, other = on_ranks(2, norms, {"codec": CODEC, "grouping": "model",
                                             "feedback": f"dgc:clip={2 * max(plain[:SPIKE])},momentum=0"})
        self.assertEqual(clipped, other)
        self.assertEqual((long_after(plain)[0], long_after(dense)[0]), (0, 0))
        self.assertGreater(long_after(burst)[0], 3)
        self.assertEqual(long_after(clipped)[0], 0)
        self.assertGreater(long_after(burst)[1], 2 * long_after(clipped)[1])


if __name__ == "__main__":
    unittest.main()
