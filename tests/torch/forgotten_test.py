"""Optimisers that go on from a state whose link was forgotten, where SGD's own state says nothing of its steps.
SPDX-License-Identifier: Apache-2.0"""
import io
import pathlib
import tempfile
import unittest
import warnings

import torch
from torch.nn.parallel import DistributedDataParallel

import nets
from nets import make_net, train
from ranks import error_of, on_ranks

SIDCO = "sidco:density=0.01"


def made(momentum=0.9):
    model = DistributedDataParallel(make_net())
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)


def said_in_steps(model, optimizer, rank):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(model, optimizer, rank, 3)
    return sum("link begins with empty memories" in str(one.message) and one.filename == nets.__file__ for one in said)


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def resumed(rank, size):
    """How often it is said, by runs that differ in one thing."""
    import thinwire.torch as tw

    def run(steps=3, momentum=0.9, loads_optimizer=True, loads_link=False, loads_before=True, own=False):
        model, optimizer = made(momentum)
        link = tw.compress(model, SIDCO, optimizer=optimizer)
        train(model, optimizer, rank, steps)
        assert optimizer.state_dict()["state"] == {}
        assert all("thinwire" not in group for group in optimizer.param_groups)
        state, kept = through_a_file(optimizer.state_dict()), link.state_dict()
        model, optimizer = made(momentum)
        if loads_optimizer and loads_before:
            optimizer.load_state_dict(state)
        link = tw.compress(model, SIDCO, optimizer=optimizer)
        if loads_optimizer and not loads_before:
            optimizer.load_state_dict(optimizer.state_dict() if own else state)
        if loads_link:
            link.load_state_dict(kept)
        said = said_in_steps(model, optimizer, rank)
        assert all("thinwire" not in group for group in optimizer.param_groups)
        return said

    return {"forgotten": run(), "after compress": run(loads_before=False), "no momentum": run(momentum=0.0),
            "loaded": run(loads_link=True), "loaded after": run(loads_link=True, loads_before=False),
            "new": run(loads_optimizer=False), "of no steps": run(steps=0),
            "its own": run(loads_before=False, own=True)}


def resumed_from_dcp(rank, size, folder):
    import thinwire.torch as tw
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    def compressed():
        model, optimizer = made()
        return model, optimizer, tw.compress(model, SIDCO, optimizer=optimizer)

    model, optimizer, link = compressed()
    train(model, optimizer, rank, 3)
    dcp.save({"optimizer": get_optimizer_state_dict(model, optimizer), "link": link}, checkpoint_id=folder)
    found = []
    for loads_link in (False, True):
        model, optimizer, link = compressed()
        state = {"optimizer": get_optimizer_state_dict(model, optimizer), **({"link": link} if loads_link else {})}
        dcp.load(state, checkpoint_id=folder)
        set_optimizer_state_dict(model, optimizer, state["optimizer"])
        found.append(said_in_steps(model, optimizer, rank))
    return found


def loaded_into_the_same_run(rank, size, folder):
    """What an error says where a run loads what it saved before its first exchange, and whether Adam's state has a mark."""
    import thinwire.torch as tw
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model, _ = made()
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    tw.compress(model, SIDCO, optimizer=adam)
    dcp.save({"optimizer": get_optimizer_state_dict(model, adam)}, checkpoint_id=folder)
    train(model, adam, rank, 2)
    said = error_of(lambda: dcp.load({"optimizer": get_optimizer_state_dict(model, adam)}, checkpoint_id=folder))
    return said, "thinwire" in adam.state_dict()["param_groups"][0]


def without_thinwire(rank, size):
    """A marked state in a plain optimiser, which trains as one that loaded the state without the mark."""
    import thinwire.torch as tw
    model, optimizer = made()
    tw.compress(model, SIDCO, optimizer=optimizer)
    train(model, optimizer, rank, 3)
    state = through_a_file(optimizer.state_dict())
    marked = [group.pop("thinwire", 0) for group in state["param_groups"]]
    ends = []
    for mark in (True, False):
        model, optimizer = made()
        groups = [{**group, "thinwire": 1} if mark else group for group in state["param_groups"]]
        optimizer.load_state_dict({**state, "param_groups": groups})
        said = said_in_steps(model, optimizer, rank)
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return marked, said, torch.equal(*ends)


class CountsForEach(torch.optim.Optimizer):
    """Has a number of steps for each value."""

    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            steps = self.state[parameter].setdefault("step", torch.zeros_like(parameter))
            steps.add_(parameter.grad != 0)


def counting_for_each(rank, size):
    import thinwire.torch as tw
    model, _ = made()
    tw.compress(model, SIDCO)
    optimizer = CountsForEach(model.parameters(), {})
    optimizer.state[next(model.parameters())]["step"] = torch.zeros_like(next(model.parameters()))
    train(model, optimizer, rank, 2)
    return len(optimizer.state)


class Forgotten(unittest.TestCase):
    def test_steps_may_be_counted_for_each_value(self):
        self.assertTrue(all(on_ranks(2, counting_for_each)))

    def test_links_are_noticed_where_sgd_saves_nothing(self):
        for said in on_ranks(2, resumed):
            self.assertEqual(said, {"forgotten": 1, "after compress": 1, "no momentum": 1, "loaded": 0, "loaded after": 0,
                                    "new": 0, "of no steps": 0, "its own": 0})

    def test_links_are_noticed_behind_distributed_checkpoints(self):
        with tempfile.TemporaryDirectory() as folder:
            for said in on_ranks(2, resumed_from_dcp, str(pathlib.Path(folder) / "saved")):
                self.assertEqual(said, [1, 0])

    def test_states_that_count_steps_have_no_mark(self):
        with tempfile.TemporaryDirectory() as folder:
            for found in on_ranks(2, loaded_into_the_same_run, str(pathlib.Path(folder) / "saved")):
                self.assertEqual(found, ("nothing", False))

    def test_states_load_into_plain_optimisers(self):
        for found in on_ranks(2, without_thinwire):
            self.assertEqual(found, ([1], 0, True))


if __name__ == "__main__":
    unittest.main()
