"""Another optimiser than the one whose momentum a link has taken over. SPDX-License-Identifier: Apache-2.0"""
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import backward, make_net, train, weights_of
from ranks import error_of, on_ranks


def sgd(parameters, momentum=0.9):
    return torch.optim.SGD(parameters, lr=0.02, momentum=momentum)


def adam(parameters, beta1=0.9):
    return torch.optim.Adam(parameters, lr=0.01, betas=(beta1, 0.99))


def refused(rank, size):
    """What the first steps of another optimiser are told, and whether they have left the weights as they were."""
    import thinwire.torch as tw
    found = {}
    for name, codec, first, second in (
        ("sgd", "topk:density=0.1", sgd, sgd), ("dense", "fp32", sgd, sgd), ("adam", "topk:density=0.1", adam, adam),
        ("adam behind sgd", "topk:density=0.1", sgd, adam), ("sgd behind adam", "topk:density=0.1", adam, sgd),
        ("deleted", "topk:density=0.1", adam, adam),
        ("rmsprop", "topk:density=0.1", sgd, lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9)),
    ):
        model = DistributedDataParallel(make_net())
        optimizer = first(model.parameters())
        link = tw.compress(model, codec, optimizer=optimizer, momentum="memory" if name == "dense" else "auto")
        train(model, optimizer, rank, 2)
        if name == "deleted":
            optimizer = None
        optimizer, before = second(model.parameters()), weights_of(model)
        said = [error_of(lambda: train(model, optimizer, rank, 1, first=2 + number)) for number in range(2)]
        found[name] = (said, torch.equal(before, weights_of(model)))
        del link
    return found


class Sharing(torch.optim.Optimizer):
    """Has the parameter groups of an optimiser, whose steps it makes."""

    def __init__(self, optimizer):
        super().__init__(optimizer.param_groups, {})
        self.inner = optimizer

    def step(self, closure=None):
        return self.inner.step(closure)


class Holding(Sharing):
    """Has parameter groups of its own."""

    def __init__(self, optimizer):
        torch.optim.Optimizer.__init__(self, [dict(group) for group in optimizer.param_groups], {})
        self.inner = self.optimizer = optimizer


def replaced(model, first, second, rank):
    """The optimiser `second` makes steps behind those of `first`."""
    train(model, first, rank, 2)
    return error_of(lambda: train(model, second, rank, 2, first=2))


def accepted(rank, size):
    """What steps are told in which no momentum acts twice."""
    import thinwire.torch as tw
    found = {}

    def linked(name, codec="topk:density=0.1", make=sgd, **settings):
        model = DistributedDataParallel(make_net())
        optimizer = make(model.parameters())
        return name, model, optimizer, tw.compress(model, codec, optimizer=optimizer, **settings)

    name, model, optimizer, link = linked("none")
    found[name] = replaced(model, optimizer, sgd(model.parameters(), 0.0), rank)
    for wrapper in (Sharing, Holding):
        name, model, optimizer, link = linked(wrapper.__name__)
        found[name] = replaced(model, optimizer, wrapper(optimizer), rank)
    name, model, optimizer, link = linked("acts", "fp32", adam)
    found[name] = replaced(model, optimizer, adam(model.parameters()), rank)
    name, model, optimizer, link = linked("elsewhere", momentum="optimizer")
    found[name] = replaced(model, optimizer, sgd(model.parameters()), rank)
    name, model, optimizer, link = linked("released", "fp32", momentum="memory")
    train(model, optimizer, rank, 1)
    link.release_optimizer()
    found[name] = replaced(model, optimizer, sgd(model.parameters()), rank)
    for momentum in ("auto", "optimizer"):
        name, model, optimizer, link = linked(f"named, {momentum}")
        train(model, optimizer, rank, 2)
        optimizer.zero_grad()
        backward(model, 2, rank)  # an exchange of the old link without a step
        again, other = DistributedDataParallel(model.module), sgd(model.parameters())
        links = link, tw.compress(again, "topk:density=0.1", optimizer=other, momentum=momentum)
        found[name] = replaced(again, other, other, rank)
        del links
    name, model, optimizer, link = linked("without the link")
    train(model, optimizer, rank, 2)
    found[name] = error_of(lambda: train(model.module, sgd(model.parameters()), rank, 2, first=2))
    model = DistributedDataParallel(make_net())
    *body, weight, bias = model.parameters()
    first, second = sgd(body), adam([weight, bias])
    link = tw.compress(model, "topk:density=0.1", optimizer=first)

    def both():
        for number in range(3):
            model.zero_grad()
            backward(model, number, rank)
            second.step()
            first.step()
            sgd([nn.Parameter(torch.ones(1))]).step()

    found["of other parameters"] = error_of(both)
    del link
    return found


class ReplacedOptimizer(unittest.TestCase):
    def test_with_momentum_is_refused(self):
        for found in on_ranks(2, refused):
            for name, (said, is_left) in found.items():
                for text in said:
                    self.assertRegex(text, "compress was given another optimizer, whose .* call link.release_optimizer", name)
                self.assertTrue(is_left, name)
            self.assertIn("SGD.step: compress was given another optimizer, whose momentum is in the memories, and the momentum "
                          "of this one, 0.9, would act on the mean", found["sgd"][0][0])
            self.assertIn("whose first moment is left out", found["adam"][0][0])

    def test_whose_momentum_acts_once_takes_its_steps(self):
        for found in on_ranks(2, accepted):
            self.assertEqual(found, dict.fromkeys(found, "nothing"))


if __name__ == "__main__":
    unittest.main()
