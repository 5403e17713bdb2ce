"""Every kind of parameter that docs/pytorch.md lists, beside plain DistributedDataParallel.
SPDX-License-Identifier: Apache-2.0"""
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kinds import CLOSE, MIDDLES, STEPS, Net, backward, gradients_of, weights_of, wrap, wrap_for_torch
from ranks import on_ranks


def beside_plain(rank, size, name):
    """Weights after some steps, without thinwire, with a codec that loses nothing and with one that
    does."""
    import thinwire.torch as tw
    found = []
    for codec in (None, "fp32", "topk:density=0.1"):
        model = wrap(name) if codec else wrap_for_torch(name)
        if codec:
            tw.compress(model, codec)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            backward(model, step, rank)
            optimizer.step()
        found.append(weights_of(model))
    return found


def all_that_is_owed(rank, size, name):
    """Mean gradients at fixed weights, added up: without thinwire, and with a codec that leaves
    most out until one that loses nothing sends the rest."""
    import thinwire.torch as tw
    plain, ours = wrap_for_torch(name), wrap(name)
    link = tw.compress(ours, "topk:density=0.1")
    sums = [0, 0]
    for step in range(STEPS):
        if step == STEPS - 1:
            link.change("fp32")
        for i, model in enumerate((plain, ours)):
            backward(model, step, rank)
            sums[i] = sums[i] + gradients_of(model)
    return sums


def kinds_of_gradients(rank, size, name):
    """On one rank alone, and of thinwire."""
    import thinwire.torch as tw
    found = []
    ours = wrap(name)
    tw.compress(ours, "fp32")
    for model in (Net(MIDDLES[name]), ours):
        backward(model, 0, rank)
        found.append([p.grad is not None and (p.grad.dtype, p.grad.layout, p.grad.shape)
                      for p in model.parameters()])
    return found


def ignored(rank, size):
    """DistributedDataParallel was told to leave a layer alone; it goes its own way on each rank."""
    import thinwire.torch as tw
    net = Net(MIDDLES["plain"])
    net.shift = nn.Parameter(torch.zeros(1))  # of the outermost module, whose name torch puts a dot before
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
        net, ["middle.weight", "middle.bias", "shift", ".shift"])
    model = DistributedDataParallel(net)
    tw.compress(model, "fp32")
    backward(model, 0, rank)
    return net.middle.weight.grad, net.back.weight.grad


class EveryKind(unittest.TestCase):
    def test_each_is_averaged_as_without_thinwire(self):
        for name in MIDDLES:
            with self.subTest(name):
                first, second = on_ranks(2, beside_plain, name)
                for (plain, exact, lossy), other in zip((first, second), (second, first)):
                    self.assertLess((plain - exact).abs().max().item(), CLOSE.get(name, 1e-6))
                    self.assertTrue(torch.equal(exact, other[1]))
                    self.assertTrue(torch.equal(lossy, other[2]))
                    self.assertFalse(torch.equal(exact, lossy))

    def test_nothing_that_is_left_out_is_lost(self):
        for name in MIDDLES:
            with self.subTest(name):
                for plain, ours in on_ranks(2, all_that_is_owed, name):
                    self.assertGreater(plain.abs().max().item(), 1e-2)
                    self.assertLess((plain - ours).abs().max().item(), CLOSE.get(name, 1e-6))

    def test_gradients_are_of_the_kind_that_torch_makes(self):
        for name in MIDDLES:
            with self.subTest(name):
                for plain, ours in on_ranks(2, kinds_of_gradients, name):
                    self.assertEqual(plain, ours)

    def test_what_ddp_is_told_to_ignore_stays_each_ranks_own(self):
        first, second = on_ranks(2, ignored)
        self.assertFalse(torch.equal(first[0], second[0]))
        self.assertTrue(torch.equal(first[1], second[1]))


if __name__ == "__main__":
    unittest.main()
