"""States that thinwire saved when each codec had an exchange of its own, and the bits that it then made of the same
gradients: earlier_states.json. SPDX-License-Identifier: Apache-2.0"""
import base64
import hashlib
import json
import pathlib
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import on_ranks

BEFORE, STEPS = 4, 8  # steps before the state was saved, and in all

# Codec, what compress is given besides, and what is changed after two steps. No codec draws random
# numbers for several tensors at once: draws depend on what their stream is named, and that name
# depends on the rules.
RUNS = {
    "one codec": ("sidco:density=0.1", {}, None),
    "rules": ("sidco:density=0.2", {"rules": {"0.*": "sidco:density=0.4", "1.weight": "int8"}}, None),
    "owners": ("topk:density=0.1", {"method": "sparse-reduce", "rules": {"1.*": "randomk:density=0.3"}}, None),
    "changed": ("topk:density=0.1", {}, {"codec": "int8", "rules": {"2.*": "topk:density=0.3", "0.*": "fp16"}}),
    "changed as one": ("sidco:density=0.2", {}, {"codec": "int8"}),
    "momentum": ("topk:density=0.1", {"feedback": "dgc", "rules": {"1.*": "fp32", "2.*": "sidco:density=0.2"}}, None),
}


def numbers(shape, *seeds):
    """The same on every machine, and exact in float32."""
    first, second, third = seeds
    index = torch.arange(shape.numel(), dtype=torch.int64)
    return (((index + 7 * first) ** 2 * 37 + 1001 * second + 53 * third) % 127 - 63).float().view(shape) / 64


class Net(nn.Sequential):
    """Its gradients are given numbers."""

    def forward(self, step, rank):
        return sum((p * numbers(p.shape, i, step, rank)).sum() for i, p in enumerate(self.parameters()))


class Run:
    def __init__(self, name):
        import thinwire.torch as tw
        codec, settings, self._change = RUNS[name]
        self._model = DistributedDataParallel(Net(nn.Linear(12, 8), nn.Linear(8, 6), nn.Linear(6, 4)))
        if name == "momentum":
            settings = {**settings, "optimizer": torch.optim.SGD(self._model.parameters(), lr=0.1, momentum=0.5)}
        self.link = tw.compress(self._model, codec, **settings)

    def steps(self, rank, first, last):
        """A digest of all means."""
        means = hashlib.sha256()
        for step in range(first, last):
            if step == 2 and self._change:
                self.link.change(**self._change)
            self._model.zero_grad()
            self._model(step, rank).backward()
            for parameter in self._model.parameters():
                means.update(parameter.grad.numpy().tobytes())
        return means.hexdigest()


def begun_anew(rank, size):
    """Digests of the steps before the state was saved, and of those after."""
    found = {}
    for name in RUNS:
        run = Run(name)
        found[name] = run.steps(rank, 0, BEFORE), run.steps(rank, BEFORE, STEPS)
    return found


def went_on(rank, size, states):
    """Digests of the steps after a state was loaded: a recorded one, and what a link saves that
    loaded it."""
    found = {}
    for name, of_ranks in states.items():
        first, second = Run(name), Run(name)
        first.link.load_state_dict(of_ranks)
        second.link.load_state_dict(first.link.state_dict())
        found[name] = first.steps(rank, BEFORE, STEPS), second.steps(rank, BEFORE, STEPS)
    return found


def from_json(state):
    """A rank's state; JSON has no bytes."""
    return {**state, "states": {codec: torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
                                for codec, text in state["states"].items()}}


class EarlierVersions(unittest.TestCase):
    def setUp(self):
        self.recorded = json.loads(pathlib.Path(__file__).with_name("earlier_states.json").read_text())
        self.states = {name: [from_json(state) for state in one["states"]] for name, one in self.recorded.items()}

    def test_there_is_one_of_every_run(self):
        self.assertEqual([*self.recorded], [*RUNS])
        for of_ranks in self.states.values():
            self.assertEqual([(one["rank"], one["world_size"], one["steps"]) for one in of_ranks],
                             [(0, 2, BEFORE), (1, 2, BEFORE)])

    def test_means_are_the_same_bits(self):
        for found in on_ranks(2, begun_anew):
            for name, one in self.recorded.items():
                self.assertEqual(found[name], (one["before"], one["behind"]), name)

    def test_states_load_and_go_on_with_the_same_bits(self):
        for found in on_ranks(2, went_on, self.states):
            for name, one in self.recorded.items():
                self.assertEqual(found[name], (one["behind"], one["behind"]), name)

    def test_another_number_of_ranks_goes_on_with_the_same_bits(self):
        for found in on_ranks(3, went_on, self.states):
            for name, one in self.recorded.items():
                self.assertEqual(found[name], (one["by three"], one["by three"]), name)


if __name__ == "__main__":
    unittest.main()
