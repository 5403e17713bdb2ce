"""Groups of ranks (inside=2): means, bytes of each level, saved states, momentum and mistakes.
SPDX-License-Identifier: Apache-2.0"""
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import make_net, train, weights_of
from ranks import on_ranks

TOPK = "topk:density=0.05"


def linked(codec, **settings):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net())
    return model, tw.compress(model, codec, inside=2, **settings)


def sgd(model, momentum=0.0):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)


def mean_of_two_levels(rank, size):
    import thinwire.torch as tw
    model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    link = tw.compress(model, "fp32", inside=2)
    model(torch.full((1, 1), 10.0 ** rank)).sum().backward()
    return model.module.weight.grad.item(), link.metrics()


def resumed(rank, size):
    whole, _ = linked(TOPK)
    train(whole, sgd(whole), rank, 5)
    model, link = linked(TOPK)
    train(model, sgd(model), rank, 3)
    state, weights = link.state_dict(), model.module.state_dict()
    again, other = linked(TOPK)
    again.module.load_state_dict(weights)
    other.load_state_dict(state)
    train(again, sgd(again), rank, 2, first=3)
    return torch.equal(weights_of(again), weights_of(whole))


def mistakes(rank, size):
    import thinwire
    import thinwire.torch as tw
    found = []
    for settings in ({"inside": 3}, {"inside": 0}, {"inside": 2, "weighted": True}):
        try:
            tw.compress(DistributedDataParallel(make_net()), "fp32", **settings)
        except thinwire.Error as error:
            found.append(str(error))
    model, link = linked(TOPK)
    train(model, sgd(model), rank, 1)
    state = link.state_dict()
    flat = tw.compress(DistributedDataParallel(make_net()), TOPK)
    try:
        flat.load_state_dict(state)
    except thinwire.Error as error:
        found.append(str(error))
    return found


def released(rank, size):
    """The momentum of every parameter goes back to the optimiser, on ranks that did not hold it,
    too; and that of a run without a link."""
    import thinwire.torch as tw
    found = []
    for compressed in (True, False):
        model = DistributedDataParallel(make_net())
        optimizer = sgd(model, momentum=0.9)
        link = compressed and tw.compress(model, "topk:density=1", inside=2, optimizer=optimizer, momentum="memory")
        train(model, optimizer, rank, 2)
        if link:
            link.release_optimizer()
        found.append([optimizer.state[one]["momentum_buffer"].clone() for one in model.parameters()])
    return found


class Levels(unittest.TestCase):
    def test_the_mean_is_that_of_all_ranks_and_bytes_are_of_two_levels(self):
        for mean, metrics in on_ranks(4, mean_of_two_levels):
            self.assertEqual(mean, 1111 / 4)
            self.assertEqual(metrics["participants"], 4)
            self.assertGreater(metrics["inside_bytes"], 0)
            self.assertGreater(metrics["between_bytes"], 0)
            self.assertEqual(metrics["inside_bytes"] + metrics["between_bytes"], metrics["sent_bytes"])

    def test_a_saved_link_goes_on_to_the_bit(self):
        self.assertEqual(on_ranks(4, resumed), [True] * 4)

    def test_mistakes_are_named(self):
        for found in on_ranks(4, mistakes):
            self.assertEqual(len(found), 4, found)
            self.assertIn("do not make up 4 ranks; choose one of 1, 2, 4", found[0])
            self.assertIn("inside is 0, must be a whole number from 1 to", found[1])
            self.assertIn("weighted = false", found[2])
            self.assertIn("inside=2 does not go on with inside=1", found[3])

    def test_momentum_goes_back_on_all_ranks(self):
        (first, plain), *others = on_ranks(4, released)
        for one, usual in zip(first, plain):
            torch.testing.assert_close(one, usual, rtol=1e-4, atol=1e-6)
        for other, _ in others:
            for one, same in zip(first, other):
                self.assertTrue(torch.equal(one, same))


if __name__ == "__main__":
    unittest.main()
