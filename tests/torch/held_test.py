"""Tests of optimisers with other parameters than the model's. SPDX-License-Identifier: Apache-2.0"""
import copy
import io
import unittest

import torch
from torch import nn

import thinwire.errors
import thinwire.torch as tw
from nets import batch_of, make_net, weights_of
from ranks import on_ranks


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05)


def said_by(action):
    try:
        action()
    except thinwire.errors.Error as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def train(model, optimizer, rank, steps):
    for step in range(steps):
        images, labels = batch_of(step, rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step(loss=loss)


def strangers(rank, size):
    model, other = make_net(), make_net()
    own = list(model.parameters())
    found = [said_by(lambda: getattr(tw, kind)(sgd(other.parameters()), model))
             for kind in ("LeaderSGD", "PeriodicAveraging", "ElasticAveraging", "DiLoCo")]
    scale = nn.Parameter(torch.ones(3, 2))
    found.append(said_by(lambda: tw.DiLoCo(sgd([{"params": own}, {"params": [scale]}]), model)))
    early = sgd(own)
    model[6].weight = nn.Parameter(torch.zeros(4, 32))  # a new head, after the optimiser was built
    found.append(said_by(lambda: tw.DiLoCo(early, model)))
    return found


def frozen(rank, size):
    """The optimiser holds all, of which some are frozen; one is unfrozen later."""
    model = make_net()
    model[0].requires_grad_(False)
    optimizer = tw.PeriodicAveraging(sgd(model.parameters()), model, tau=1)
    train(model, optimizer, rank, 2)
    weights = weights_of(model)
    model[0].bias.requires_grad_(True)
    return weights, said_by(lambda: train(model, optimizer, rank, 1))


def assigned(rank, size):
    """The model's parameters are replaced after the local method was built."""
    model = make_net()
    optimizer = tw.PeriodicAveraging(sgd(model.parameters()), model, tau=1)
    train(model, optimizer, rank, 1)
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    return said_by(lambda: train(model, optimizer, rank, 1))


def wrapped(rank, size):
    """Layers are wrapped in their place after the local method was built: their parameters are the same under other names."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    model = make_net()
    optimizer = tw.PeriodicAveraging(sgd(model.parameters()), model, tau=1)
    model[0], model[4] = torch.compile(model[0], backend="eager"), checkpoint_wrapper(model[4])
    return said_by(lambda: train(model, optimizer, rank, 2)), weights_of(model)


def copied(rank, size):
    """What copies of a local optimiser and of a model with a boundary say, and what saving them whole says."""
    model = make_net()
    local = tw.PeriodicAveraging(sgd(model.parameters()), model, tau=1)
    cut = nn.Sequential(nn.Linear(4, 4), tw.Boundary([4], samples=2), nn.Linear(4, 4))
    return [said_by(lambda: way(one)) for one in (local, cut)
            for way in (copy.deepcopy, lambda one: torch.save(one, io.BytesIO()))]


def in_part(rank, size):
    """Two optimisers share a model, and workers talk about all of it."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 4))
    head = sgd(model[2].parameters())
    optimizer = tw.PeriodicAveraging(sgd(model[1].parameters()), model, tau=2)
    for step in range(4):
        images, labels = batch_of(step, rank)
        model.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        head.step()
        optimizer.step()
    return weights_of(model)


class Held(unittest.TestCase):
    def test_parameters_of_another_model_are_refused(self):
        for found in on_ranks(2, strangers):
            for text in found[:4]:
                self.assertRegex(text, r"8 of the optimiser's 8 parameters are not the model's, the first is "
                                       r"parameter 0 of group 0, of shape \[6, 1, 3, 3\]")
            self.assertRegex(found[4], r"1 of the optimiser's 9 .* parameter 0 of group 1, of shape \[3, 2\]")
            self.assertRegex(found[5], r"1 of the optimiser's 8 .* parameter 6 of group 0, of shape \[4, 32\]")

    def test_frozen_ones_may_be_there_until_they_are_trained(self):
        (weights, said), (other, its) = on_ranks(2, frozen)
        self.assertTrue(torch.equal(weights, other))
        for text in (said, its):
            self.assertIn("parameter '0.bias' was frozen when the local method was built", text)

    def test_a_model_with_other_parameters_by_now_is_refused(self):
        for text in on_ranks(2, assigned):
            self.assertIn("parameter '0.weight' is not the one that the model had when the local method was built", text)

    def test_a_model_whose_layers_were_wrapped_meanwhile_is_taken(self):
        (said, weights), (other, its) = on_ranks(2, wrapped)
        self.assertEqual((said, other), ("nothing", "nothing"))
        self.assertTrue(torch.equal(weights, its))

    def test_copies_are_refused(self):
        for found in on_ranks(2, copied):
            for text, owner in zip(found, ("PeriodicAveraging", "PeriodicAveraging", "Boundary", "Boundary"), strict=True):
                self.assertRegex(text, f"UnsupportedError: {owner}: it cannot be copied or saved whole, .* state_dict")

    def test_an_optimiser_of_a_part_of_the_model_is_taken(self):
        first, second = on_ranks(2, in_part)
        self.assertTrue(torch.equal(first, second))


if __name__ == "__main__":
    unittest.main()
