"""Parameters that DistributedDataParallel does not average: compress and later steps name them.
SPDX-License-Identifier: Apache-2.0"""
import time
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.errors
from kinds import MIDDLES, Bag, Net, backward, weights_of
from ranks import on_ranks


def refused(rank, size):
    """What compress says of models that it does not take."""
    import thinwire.torch as tw

    def made(net, change=lambda net: None, **settings):
        model = DistributedDataParallel(net, **settings)
        change(model.module)
        return model

    def frozen_first(net, layer):
        getattr(net, layer).requires_grad_(False)
        return net

    def assign(net):
        net.load_state_dict({k: v.clone() for k, v in net.state_dict().items()}, assign=True)

    def plain():
        return Net(MIDDLES["plain"])

    cases = {
        "float64": lambda: made(plain().double()),
        "unfrozen": lambda: made(frozen_first(plain(), "middle"), lambda net: net.requires_grad_(True)),
        "unfrozen beside a sparse one": lambda: made(
            frozen_first(Net(Bag), "front"), lambda net: net.front.weight.requires_grad_(True)),
        "replaced": lambda: made(plain(), lambda net: setattr(net, "back", nn.Linear(8, 4))),
        "assigned": lambda: made(plain(), assign),
        "added": lambda: made(plain(), lambda net: setattr(net, "more", nn.Linear(2, 2))),
        "removed": lambda: made(plain(), lambda net: setattr(net, "back", None)),
    }
    found = {}
    for name, make in cases.items():
        began = time.monotonic()
        try:
            tw.compress(make(), "topk:density=0.1", deadline_seconds=8)
            found[name] = "nothing"
        except thinwire.errors.Error as error:
            found[name] = f"{type(error).__name__}: {error}"
        assert time.monotonic() - began < 8, name
    return found


def frozen_beside_sparse(rank, size):
    """As many layers were frozen as unfrozen since: what DistributedDataParallel averages shows in
    the first step."""
    import thinwire.torch as tw
    net = Net(Bag)
    net.front.requires_grad_(False)
    model = DistributedDataParallel(net, find_unused_parameters=True)
    net.front.requires_grad_(True)
    net.back.requires_grad_(False)
    tw.compress(model, "topk:density=0.1", deadline_seconds=8)
    began = time.monotonic()
    try:
        backward(model, 0, rank)
    except thinwire.errors.ContractError as error:
        return str(error), time.monotonic() - began
    return "nothing", 0.0


def changed_later(rank, size, what):
    """The error of a step after the model was changed between two, and how long it took."""
    import thinwire.torch as tw
    net = Net(MIDDLES["plain"])
    if what == "unfrozen":
        net.middle.requires_grad_(False)
    model = DistributedDataParallel(net, find_unused_parameters=True)
    tw.compress(model, "topk:density=0.1", deadline_seconds=8)
    backward(model, 0, rank)
    if what == "unfrozen":
        net.middle.requires_grad_(True)
    elif what == "replaced":
        net.middle = nn.Linear(8, 8)
    elif what == "assigned":
        net.load_state_dict({k: v.clone() for k, v in net.state_dict().items()}, assign=True)
    elif what == "without parameters":
        net.middle = nn.Sequential(net.middle, nn.Dropout(0.0))
    began = time.monotonic()
    try:
        backward(model, 1, rank)
        return "nothing", time.monotonic() - began
    except Exception as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - began


def gradually(rank, size, frozen_at):
    """Layers that are frozen from the start, or from the second step, until the fourth."""
    import thinwire.torch as tw
    found = []
    for codec in (None, "fp32", "topk:density=0.1"):
        model = DistributedDataParallel(Net(MIDDLES["plain"]), find_unused_parameters=True)
        if frozen_at == 0:
            model.module.front.requires_grad_(False)
        if codec is not None:
            tw.compress(model, codec)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            if step in (frozen_at, 4):
                model.module.front.requires_grad_(step == 4)
            before = model.module.front.weight.clone()
            backward(model, step, rank)
            optimizer.step()
            if frozen_at <= step < 4:
                assert torch.equal(before, model.module.front.weight)
        found.append(weights_of(model))
    return found


class Refused(unittest.TestCase):
    def test_compress_names_what_it_does_not_take(self):
        expected = {
            "float64": "UnsupportedError: .*'front.weight' is of type torch.float64; .*float16, complex64",
            "unfrozen": "ContractError: .*does not average 'middle.weight', 'middle.bias': .*freeze after",
            "unfrozen beside a sparse one": "ContractError: .*averages 3 parameters, and 4 are trained.*sparse",
            "replaced": "ContractError: .*does not average 'back.weight', 'back.bias':",
            "assigned": "ContractError: .*does not average 'front.weight', .* and 2 more:",
            "added": "ContractError: .*does not average 'more.weight', 'more.bias':",
            "removed": "ContractError: .*2 parameters were replaced",
        }
        for found in on_ranks(2, refused):
            self.assertEqual(found.keys(), expected.keys())
            for name, error in found.items():
                self.assertRegex(error, expected[name])

    def test_what_is_frozen_beside_sparse_gradients_is_no_wait(self):
        for error, seconds in on_ranks(2, frozen_beside_sparse):
            self.assertRegex(error, "averages a parameter of shape .*freeze it after compress")
            self.assertLess(seconds, 8)


class ChangedLater(unittest.TestCase):
    def test_what_ddp_does_not_know_is_named_by_the_next_step(self):
        for what, names in (("unfrozen", "'middle.weight', 'middle.bias'"),
                            ("replaced", "'middle.weight', 'middle.bias'"),
                            ("assigned", "'front.weight', .* and 2 more")):
            for error, seconds in on_ranks(2, changed_later, what):
                self.assertRegex(error, f"ContractError: .*does not average {names}:")
                self.assertLess(seconds, 8)

    def test_modules_may_change_around_the_same_parameters(self):
        for error, _ in on_ranks(2, changed_later, "without parameters"):
            self.assertEqual(error, "nothing")

    def test_gradual_unfreezing(self):
        for frozen_at in (0, 2):
            first, second = on_ranks(2, gradually, frozen_at)
            for (plain, exact, lossy), other in zip((first, second), (second, first)):
                self.assertLess((plain - exact).abs().max().item(), 1e-6)
                self.assertTrue(torch.equal(lossy, other[2]))


if __name__ == "__main__":
    unittest.main()
