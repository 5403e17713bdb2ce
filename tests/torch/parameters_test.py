"""Every kind of parameter that docs/pytorch.md lists, beside plain DistributedDataParallel.
SPDX-License-Identifier: Apache-2.0"""
import time
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.errors
from ranks import on_ranks

STEPS = 4


class Net(nn.Module):
    """A layer of some kind between two plain ones."""

    def __init__(self, middle):
        super().__init__()
        torch.manual_seed(3)
        self.front = nn.Linear(6, 8)
        self.middle = middle()
        self.back = nn.Linear(8, 4)

    def forward(self, images):
        return self.back(self.middle(torch.relu(self.front(images))))


class Converting(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.inner = nn.Linear(8, 8).to(dtype)

    def forward(self, images):
        return self.inner(images.to(self.inner.weight.dtype)).to(images.dtype)


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8, bias=False, dtype=torch.complex64)

    def forward(self, images):
        turned = self.inner(images.to(torch.complex64))
        return turned.real + 2 * turned.imag


class Bag(nn.Module):
    """Looks up rows of a table by the signs of what comes in."""

    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(20, 8, sparse=True)

    def forward(self, images):
        rows = (images.detach() * 1000).long().remainder(10)[:, :3]
        return images + self.table(rows)


class Scalar(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(0.5))
        self.shift = nn.Parameter(torch.tensor([0.1]))

    def forward(self, images):
        return images * self.gain + self.shift


class Empty(nn.Module):
    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(0, 8))

    def forward(self, images):
        return images + self.nothing.sum()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.other.weight = self.one.weight

    def forward(self, images):
        return self.other(torch.tanh(self.one(images)))


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.one.requires_grad_(False)

    def forward(self, images):
        return self.other(self.one(images))


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, images):
        return self.used(images)


MIDDLES = {
    "float16": lambda: Converting(torch.float16),
    "bfloat16": lambda: Converting(torch.bfloat16),
    "complex": Complex,
    "sparse": Bag,
    "scalar": Scalar,
    "empty": Empty,
    "tied": Tied,
    "frozen": Frozen,
    "unused": Unused,
    "plain": lambda: nn.Linear(8, 8),
}


# Weights of two programs that round in other places, after STEPS steps; of float16 and bfloat16 in units of their own.
CLOSE = {"float16": 2e-3, "bfloat16": 2e-2}


def wrap(name, **settings):
    return DistributedDataParallel(Net(MIDDLES[name]), find_unused_parameters=name == "unused",
                                   bucket_cap_mb=0.0001, **settings)


def backward(model, step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    images = torch.randn(8, 6, generator=generator)
    model.zero_grad()
    nn.functional.cross_entropy(model(images), images[:, :4].argmax(1)).backward()


def floats(tensors):
    """All values in one vector; zeros where there is no gradient."""
    parts = []
    for parameter, tensor in tensors:
        tensor = torch.zeros_like(parameter) if tensor is None else tensor.detach().to_dense()
        parts.append((torch.view_as_real(tensor) if tensor.is_complex() else tensor).float().flatten())
    return torch.cat(parts)


def gradients_of(model):
    return floats((parameter, parameter.grad) for parameter in model.parameters())


def weights_of(model):
    return floats((parameter, parameter) for parameter in model.parameters())


def beside_plain(rank, size, name):
    """Weights after some steps, without thinwire, with a codec that loses nothing and with one that does."""
    import thinwire.torch as tw
    found = []
    for codec in (None, "fp32", "topk:density=0.1"):
        model = wrap(name)
        if codec is not None:
            tw.compress(model, codec)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            backward(model, step, rank)
            optimizer.step()
        found.append(weights_of(model))
    return found


def all_that_is_owed(rank, size, name):
    """Mean gradients at fixed weights, added up: without thinwire, and with a codec that leaves most out until one
    that loses nothing sends the rest."""
    import thinwire.torch as tw
    plain, ours = wrap(name), wrap(name)
    link = tw.compress(ours, "topk:density=0.1")
    sums = [0, 0]
    for step in range(STEPS):
        if step == STEPS - 1:
            link.change("fp32")
        for i, model in enumerate((plain, ours)):
            backward(model, step, rank)
            sums[i] = sums[i] + gradients_of(model)
    return sums


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


def owed_to_frozen(rank, size):
    """What is owed to a layer when it is frozen does not move it."""
    import thinwire.torch as tw
    model = DistributedDataParallel(Turns(), find_unused_parameters=True)
    tw.compress(model, "topk:density=0.1")
    found = []
    for step, turn in enumerate((0, 3, 3)):
        model.module.turn = turn
        model.module.heads[0].requires_grad_(step != 1)
        model.zero_grad()
        model(torch.ones(2, 6)).square().sum().backward()
        found.append(model.module.heads[0].weight.grad is not None)
    return found


def kinds_of_gradients(rank, size, name):
    import thinwire.torch as tw
    found = []
    for codec in (None, "fp32"):
        model = wrap(name)
        if codec is not None:
            tw.compress(model, codec)
        backward(model, 0, rank)
        found.append([p.grad is not None and (p.grad.dtype, p.grad.layout, p.grad.shape)
                      for p in model.parameters()])
    return found


class Overflowing(nn.Module):
    """Every gradient is the largest float16 there is."""

    def __init__(self):
        super().__init__()
        self.values = nn.Parameter(torch.zeros(64, dtype=torch.float16))

    def forward(self, scale):
        return (self.values * torch.tensor(scale, dtype=torch.float16)).sum()


def beyond_float16(rank, size):
    """What topk left out of the first step comes besides the second's own."""
    import thinwire.torch as tw
    model = DistributedDataParallel(Overflowing())
    link = tw.compress(model, "topk:density=0.5")
    for step in range(2):
        if step:
            link.change("fp32")
        model.zero_grad()
        model(65504.0).backward()
    large = model.module.values.grad.clone()
    link.change("fp32")
    model.zero_grad()
    model(float("nan") if rank else 1.0).backward()
    return large, bool(model.module.values.grad.isnan().all())


def spoilt_sparse(rank, size):
    """One rank has a NaN elsewhere, which another codec carries: every row of the table is NaN on both."""
    import thinwire.torch as tw
    model = wrap("sparse")
    tw.compress(model, "topk:density=0.1", rules={"back.weight": "fp16"})
    if rank:
        model.module.back.weight.register_hook(lambda gradient: gradient * float("nan"))
    backward(model, 0, rank)
    return bool(gradients_of(model).isnan().all())


def scaled_sparse(rank, size):
    """A gradient scaler's scale goes out before and in again behind."""
    import thinwire.torch as tw
    found = []
    for scale in (None, 1024.0):
        scaler = scale and torch.amp.GradScaler("cpu", init_scale=scale)
        model = wrap("sparse")
        tw.compress(model, "topk:density=0.2", scaler=scaler or None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            generator = torch.Generator().manual_seed(1000 * step + rank)
            images = torch.randn(8, 6, generator=generator)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), images[:, :4].argmax(1))
            (scaler.scale(loss) if scaler else loss).backward()
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
        found.append(weights_of(model))
    return found


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
    """As many layers were frozen as unfrozen since: what DistributedDataParallel averages shows in the first step."""
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
        self.assertEqual(on_ranks(2, owed_to_frozen), [[True, False, True]] * 2)

    def test_gradients_are_of_the_kind_that_torch_makes(self):
        for name in MIDDLES:
            with self.subTest(name):
                for plain, ours in on_ranks(2, kinds_of_gradients, name):
                    self.assertEqual(plain, ours)

    def test_float16_ends_at_its_largest_value_and_keeps_nan(self):
        for large, all_nan in on_ranks(2, beyond_float16):
            self.assertEqual(large.dtype, torch.float16)
            self.assertTrue((large == 65504).all(), large)
            self.assertTrue(all_nan)

    def test_a_skipped_step_reaches_every_row_of_a_sparse_gradient(self):
        self.assertEqual(on_ranks(2, spoilt_sparse), [True, True])

    def test_sparse_gradients_with_a_scaler(self):
        for without, scaled in on_ranks(2, scaled_sparse):
            self.assertLess((without - scaled).abs().max().item(), 1e-6)

    def test_what_ddp_is_told_to_ignore_stays_each_ranks_own(self):
        first, second = on_ranks(2, ignored)
        self.assertFalse(torch.equal(first[0], second[0]))
        self.assertTrue(torch.equal(first[1], second[1]))


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
