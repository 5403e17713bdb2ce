"""torch.distributed.algorithms.join.Join: ranks that run out of input at different steps.
SPDX-License-Identifier: Apache-2.0"""
import os
import tempfile
import time
import unittest

import torch
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from nets import batch_of, make_net, weights_of
from ranks import on_ranks

BATCHES = (3, 6, 4)  # of each rank


def wrapped(codec, **settings):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
    return model, tw.compress(model, codec, **settings) if codec else None


def uneven(rank, size, codec, settings):
    """Weights in the end, and what a step after it, with input on all ranks, makes of them."""
    model, link = wrapped(codec)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(number):
        images, labels = batch_of(number, rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    with Join([model], **settings):
        for number in range(BATCHES[rank]):
            step(number)
    inside = weights_of(model)
    step(10)
    return inside, weights_of(model), link and link.metrics()["step"]


def owed(rank, size):
    """Means at fixed weights, added up by the rank that has input to the end, without thinwire and with a codec that
    leaves most out until one that loses nothing sends the rest."""
    plain, _ = wrapped(None)
    ours, link = wrapped("topk:density=0.05")
    sums = [0, 0]

    def step(number):
        images, labels = batch_of(number, rank)
        for i, model in enumerate((plain, ours)):
            model.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            sums[i] = sums[i] + torch.cat([p.grad.flatten() for p in model.parameters()])

    with Join([plain, ours]):
        for number in range(BATCHES[rank]):
            step(number)
    link.change("fp32")
    step(10)
    return sums


def of_those_with_input(rank, size):
    """One mean gradient of one value, while rank 0 has no more input."""
    import thinwire.torch as tw
    found = []
    for settings in ({}, {"divide_by_initial_world_size": False}):
        model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
        tw.compress(model, "fp32")
        means = []
        with Join([model], **settings):
            for number in range(1 + rank):
                model.zero_grad()
                model(torch.full((1, 1), 6.0 * (rank + 1))).sum().backward()
                means.append(model.module.weight.grad.item())
        found.append(means)
    return found


def ends_early(rank, size):
    model, _ = wrapped("int8")
    try:
        with Join([model], throw_on_early_termination=True):
            for number in range(BATCHES[rank]):
                images, labels = batch_of(number, rank)
                nn.functional.cross_entropy(model(images), labels).backward()
    except RuntimeError as error:
        return str(error)
    return "nothing"


def fails_while_joined(rank, size):
    """Two steps in a row that are not finite end training on the rank that has no more input too."""
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net())
    tw.compress(model, "int8", max_skipped=2, deadline_seconds=10)
    began = time.monotonic()
    try:
        with Join([model]):
            for number in range(BATCHES[rank]):
                images, labels = batch_of(number, rank)
                spoilt = images * (float("nan") if number >= 3 else 1.0)
                nn.functional.cross_entropy(model(spoilt), labels).backward()
    except Exception as error:
        return str(error), time.monotonic() - began
    return "nothing", 0.0


def left_to_torch(case):
    """A codec "auto" whose uncompressed steps torch's all-reduce sums."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.write("thinwire decisions 1\n0\tfp32\n")
    case.addCleanup(os.remove, file.name)
    return f"auto:plan={file.name}"


class UnevenInputs(unittest.TestCase):
    def test_is_plain_ddp_to_rounding(self):
        for size, settings in ((2, {}), (3, {}), (3, {"divide_by_initial_world_size": False})):
            plain = on_ranks(size, uneven, None, settings)
            for codec in ("fp32", left_to_torch(self)):
                ours = on_ranks(size, uneven, codec, settings)
                for one, other in zip(plain, ours):
                    self.assertLess((one[0] - other[0]).abs().max().item(), 1e-6, (codec, settings))
                    self.assertLess((one[1] - other[1]).abs().max().item(), 1e-6, (codec, settings))
                    self.assertEqual(other[2], max(BATCHES[:size]) + 1)

    def test_codecs_that_lose_something_keep_ranks_equal(self):
        for codec in ("topk:density=0.05", "int8"):
            ranks = on_ranks(3, uneven, codec, {})
            for one in ranks:
                self.assertTrue(torch.equal(one[1], ranks[0][1]), codec)

    def test_a_rank_without_input_goes_on_sending_what_it_left_out(self):
        plain, ours = on_ranks(2, owed)[1]
        self.assertGreater(plain.abs().max().item(), 1e-2)
        self.assertLess((plain - ours).abs().max().item(), 1e-6)

    def test_the_mean_is_of_all_ranks_or_of_those_with_input(self):
        self.assertEqual(on_ranks(2, of_those_with_input)[1], [[9.0, 6.0], [9.0, 12.0]])

    def test_throw_on_early_termination(self):
        first, second = on_ranks(2, ends_early)
        self.assertIn("exhausted all inputs", first)
        self.assertIn("exhausted inputs", second)

    def test_an_error_reaches_a_rank_without_input(self):
        for error, seconds in on_ranks(2, fails_while_joined):
            self.assertIn("2 steps in a row were skipped", error)
            self.assertLess(seconds, 10)


if __name__ == "__main__":
    unittest.main()
