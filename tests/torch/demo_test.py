"""DeMo, as docs/pytorch.md has it: codec, memory and a hook of SGD, against its formula in double.
SPDX-License-Identifier: Apache-2.0"""
import io
import math
import pathlib
import re
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import batch_of, weights_of
from ranks import on_ranks

CHUNK, DENSITY, RATE, DECAY, STEPS = 8, 0.1, 0.002, 0.1, 6
CODEC = f"demo:chunk={CHUNK},density={DENSITY}"
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pytorch.md"


def make_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 4))


def hook_of_page():
    """The lines below @optimizer.register_step_pre_hook, as a function."""
    text = re.search(r"^@optimizer.register_step_pre_hook\n(.*?)^```", PAGE.read_text(), re.M | re.S)[1]
    names = {}
    exec(compile(text, str(PAGE), "exec"), names)
    return names["by_signs"]


class Run:
    def __init__(self):
        import thinwire.torch as tw
        self.model = DistributedDataParallel(make_net())
        self.link = tw.compress(self.model, CODEC)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE, weight_decay=DECAY)
        self.optimizer.register_step_pre_hook(hook_of_page())

    def steps(self, rank, first, last):
        for step in range(first, last):
            self.optimizer.zero_grad()
            loss_of(self.model, step, rank).backward()
            self.optimizer.step()
        return self


def loss_of(model, step, rank):
    images, labels = batch_of(step, rank)
    return nn.functional.cross_entropy(model(images), labels)


def basis(n):
    u, x = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n, dtype=torch.float64)
    rows = torch.cos(math.pi * (2 * x + 1) * u / (2 * n)) * math.sqrt(2 / n)
    rows[0] = math.sqrt(1 / n)
    return rows


def extracted(momentum):
    """What the codec sends of a matrix."""
    sent = torch.zeros_like(momentum)
    for top in range(0, momentum.shape[0], CHUNK):
        for left in range(0, momentum.shape[1], CHUNK):
            tile = momentum[top:top + CHUNK, left:left + CHUNK]
            down, across = basis(tile.shape[0]), basis(tile.shape[1])
            coefficients = down @ tile @ across.T
            kept = max(1, math.floor(DENSITY * tile.numel() + 0.5))
            least = coefficients.abs().flatten().sort(descending=True)[0][kept - 1]
            coefficients[coefficients.abs() < least] = 0
            sent[top:top + CHUNK, left:left + CHUNK] = down.T @ coefficients @ across
    return sent


def by_formula(size):
    """The weights after all steps, computed by one process for all ranks."""
    model = make_net().double()
    momenta = [[torch.zeros_like(p) for p in model.parameters()] for _ in range(size)]
    for step in range(STEPS):
        sent = []
        for rank in range(size):
            images, labels = batch_of(step, rank)
            model.zero_grad()
            nn.functional.cross_entropy(model(images.double()), labels).backward()
            parts = []
            for parameter, momentum in zip(model.parameters(), momenta[rank]):
                if parameter.dim() < 2:  # biases are sent as they are
                    parts.append(parameter.grad.clone())
                    continue
                momentum.mul_(0.999).add_(parameter.grad)
                parts.append(extracted(momentum))
                momentum.sub_(parts[-1])
            sent.append(parts)
        with torch.no_grad():
            for parameter, *parts in zip(model.parameters(), *sent):
                parameter -= RATE * ((sum(parts) / size).sign() + DECAY * parameter)
    return weights_of(model)


def trained(rank, size):
    return weights_of(Run().steps(rank, 0, STEPS).model)


def resumed(rank, size):
    whole = Run().steps(rank, 0, STEPS)
    first = Run().steps(rank, 0, 3)
    saved = io.BytesIO()
    torch.save({"model": first.model.state_dict(), "link": first.link.state_dict()}, saved)
    saved.seek(0)
    state = torch.load(saved, weights_only=False)
    second = Run()
    second.model.load_state_dict(state["model"])
    second.link.load_state_dict(state["link"])
    second.steps(rank, 3, STEPS)
    forgotten = Run()
    forgotten.model.load_state_dict(state["model"])
    forgotten.steps(rank, 3, STEPS)
    return (weights_of(whole.model).equal(weights_of(second.model)),
            weights_of(whole.model).equal(weights_of(forgotten.model)))


class Demo(unittest.TestCase):
    def test_follows_its_formula(self):
        first, second = on_ranks(2, trained)
        self.assertTrue(first.equal(second))
        away = (first.double() - by_formula(2)).abs()
        # A mean near 0 may have another sign in float: few values, which are then 2 RATE away.
        self.assertGreater((away < 1e-5).double().mean().item(), 0.98)
        self.assertLess(away.max().item(), 2 * RATE * STEPS + 1e-5)

    def test_a_saved_momentum_goes_on_bit_for_bit(self):
        for same, without in on_ranks(2, resumed):
            self.assertTrue(same)
            self.assertFalse(without)


if __name__ == "__main__":
    unittest.main()
