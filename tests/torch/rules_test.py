"""Rules: parameters by name that have a codec, a memory, a method and a grouping of their own.
SPDX-License-Identifier: Apache-2.0"""
import contextlib
import os
import pathlib
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.errors
from nets import make_net, step, weights_of
from ranks import on_ranks
from states import content

TOPK = "topk:density=0.1"
THREE = {"0.*": "sidco:density=0.2", "4.*": "int8", "6.weight": "powersgd:rank=2"}
OWN = {"4.*": {"codec": "int8", "feedback": "ef21", "method": "gather"},
       "[06].weight": {"codec": "topk:density=0.3", "grouping": "model"}}


def linked(codec=TOPK, **settings):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
    return model, tw.compress(model, codec, **settings)


def exchange_threads():
    """How many exchanges run: each has one thread of this name."""
    names = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended since
            names.append(pathlib.Path("/proc/self/task", task, "comm").read_text().strip())
    return names.count("tw-exchange")


def exchanges_started(rank, size):
    """How many exchanges a link starts: without rules, with three, and when it was changed to three."""
    links, found = [], []
    for rules, change in ((None, None), (THREE, None), (None, THREE)):
        before = exchange_threads()
        model, link = linked(rules=rules)
        if change:
            link.change(TOPK, rules=change)
        links.append((model, link))
        found.append(exchange_threads() - before)
    return found


def names_saved(link):
    state = content(link.state_dict())["state"]
    return {array[0] for array in thinwire._state.read_state("", state.numpy().tobytes())}


def settings_of_a_rule(rank, size):
    model, link = linked(rules=OWN)
    step(model, 0, rank)
    kept = {stream["name"]: stream["kept"] for stream in link.metrics()["streams"]}
    return names_saved(link), kept


def resumed(rank, size):
    straight, link = linked(rules=OWN)
    for number in range(3):
        step(straight, number, rank)
    saved = link.state_dict()
    model, new = linked(rules=OWN)
    model.load_state_dict(straight.state_dict())
    new.load_state_dict(saved)
    for number in range(3, 6):
        step(straight, number, rank)
        step(model, number, rank)
    errors = []
    for other in ({**OWN, "[06].weight": {"codec": "topk:density=0.3"}}, {**OWN, "4.*": {"codec": "int8"}},
                  {"[06].weight": OWN["[06].weight"], "[06].bias": OWN["[06].weight"], "4.*": OWN["4.*"]}):
        try:
            linked(rules=other)[1].load_state_dict(saved)
            errors.append("nothing")
        except thinwire.errors.Error as error:
            errors.append(str(error))
    return torch.equal(weights_of(straight), weights_of(model)), errors


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self._orig_mod = module

    def forward(self, x):
        return self._orig_mod(x)


def by_the_names_of_wrappers(rank, size):
    """Which parameters int8 carries, of rules by names with and without what a wrapper adds."""
    import thinwire.torch as tw
    found = []
    for patterns in (["4.weight"], ["_orig_mod.4.weight"], ["_orig_mod.[46].*", "6.*"], ["*.4.*", "*weight"]):
        model = DistributedDataParallel(Wrapped(make_net()))
        rules = {pattern: "int8" if i == 0 else "fp32" for i, pattern in enumerate(patterns)}
        try:
            link = tw.compress(model, "fp16", rules=rules)
            found.append([*content(link.state_dict())["tensors"]["int8"]])
        except thinwire.errors.Error as error:
            found.append(str(error))
    return found


class Rules(unittest.TestCase):
    def test_one_exchange_serves_them_all(self):
        for found in on_ranks(2, exchanges_started):
            self.assertEqual(found, [1, 1, 1])

    def test_a_rule_has_a_memory_a_method_and_a_grouping(self):
        for names, kept in on_ranks(2, settings_of_a_rule):
            memories = {name for name in names if "/feedback/" in name}
            self.assertIn("4.weight/feedback/mean_estimate", memories)
            self.assertIn("model:0.weight/feedback/residual", memories)
            self.assertFalse([name for name in memories if name.startswith(("0.weight", "6.weight"))])
            self.assertFalse([name for name in names if name.startswith("4.weight/owner")])  # of scatter-reduce
            self.assertEqual(kept["model:0.weight"], round(0.3 * (6 * 9 + 32 * 4)))
            self.assertEqual(kept["4.weight"], 6912)

    def test_is_resumed_bit_for_bit_and_refuses_states_of_other_rules(self):
        for same, (apart, other, more) in on_ranks(2, resumed):
            self.assertTrue(same)
            self.assertIn("'model:0.weight' is shared by other tensors, or in another order: 0.weight, 6.weight in the "
                          "state, none here", apart)
            self.assertIn("memory '4.weight/feedback/residual': none in the state, [6912] here", other)
            self.assertIn("unexpected in the state", more)

    def test_patterns_fit_names_with_and_without_what_wrappers_add(self):
        for found in on_ranks(2, by_the_names_of_wrappers):
            self.assertEqual(found[:2], [["4.weight"], ["4.weight"]])
            self.assertIn("rule '6.*': rules before it decide for all tensors that are named so", found[2])
            self.assertEqual(found[3], ["4.weight", "4.bias"])


if __name__ == "__main__":
    unittest.main()
