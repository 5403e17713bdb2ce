"""States of links of sharded models, and what follows on a backward pass that failed.
SPDX-License-Identifier: Apache-2.0"""
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from gpts import loss_of, needs_2_13, shards_of, train
from ranks import on_ranks
from shards_runs import LOCO, error_of, linked, sgd


def resumed(rank, size, settings, folder):
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    whole, _ = linked(**settings)
    train(whole, sgd(whole, 0), rank, 6)
    model, link = linked(**settings)
    train(model, sgd(model, 0), rank, 3)
    dcp.save({"model": get_model_state_dict(model), "link": link}, checkpoint_id=folder)
    again, other = linked(**settings)
    dcp.load({"model": get_model_state_dict(again), "link": other}, checkpoint_id=folder)
    train(again, sgd(again, 0), rank, 3, first=3)
    forgotten, lacking = linked(**settings)
    dcp.load({"model": get_model_state_dict(forgotten)}, checkpoint_id=folder)
    train(forgotten, sgd(forgotten, 0), rank, 3, first=3)
    equal = [torch.equal(shards_of(one), shards_of(whole)) for one in (again, forgotten)]
    return equal, other.lacks_state(), lacking.lacks_state()


def states(rank, size):
    model, link = linked(**LOCO)
    train(model, sgd(model), rank, 1)
    everywhere = [None] * size
    dist.all_gather_object(everywhere, link.state_dict())
    found = [error_of(lambda: link.load_state_dict(given))
             for given in (everywhere[(rank + 1) % size], {"weights": 1})]
    return found, everywhere


def half_loaded(rank, size):
    """Whether memories are as they were, after a load that fails at the second module."""
    model, link = linked(**LOCO)
    train(model, sgd(model), rank, 2)
    older = link.state_dict()
    train(model, sgd(model), rank, 1, first=2)
    before = link.state_dict()
    second = [*link._reductions.values()][1]
    load, second.load = second.load, lambda saved, steps: 1 / 0
    error = error_of(lambda: link.load_state_dict(older))
    second.load = load
    after = link.state_dict()
    same = all(torch.equal(one["state"], after[key][0]["modules"][name]["state"]) and
               one["steps"] == after[key][0]["modules"][name]["steps"]
               for key, (state,) in before.items() for name, one in state["modules"].items())
    return error, same, link.decisions()


def other_number(rank, size, saved):
    """What is said of a part of the states; and, of all of them, what memories then hold."""
    _, link = linked(**LOCO)
    error = error_of(lambda: link.load_state_dict(saved[:1]))
    link.load_state_dict(saved)
    return error, link.state_dict()


def held(state):
    """Of each parameter, what a rank's memory holds of it for all ranks, as if it were not sharded; padded."""
    from thinwire.torch._saved import from_tensor
    (state,) = state.values()
    found = {}
    for module in state[0]["modules"].values():
        shapes = {name: shape for codec in module["tensors"].values() for name, shape in codec.items()}
        for name, _, _, _, data in from_tensor(0, module["state"]):
            if name.endswith("/feedback/residual"):
                parameter, _, rank = name.split("/")[0].rpartition("#")
                values = torch.frombuffer(bytearray(data), dtype=torch.float32).view(shapes[f"{parameter}#{rank}"])
                found.setdefault(parameter, {})[int(rank)] = values
    return {name: torch.cat([parts[rank] for rank in sorted(parts)]) for name, parts in found.items()}


def failing(rank, size, freezes):
    """What is said of three backward passes, the first of which ends with an error: the script's own, or the link's."""
    model, _ = linked("fp32")

    def fail(_):
        raise ValueError("of the script")

    if freezes:
        model.head.bias.requires_grad_(False)
    else:
        handle = model.blocks[0].register_forward_hook(lambda *those: those[2].register_hook(fail) and None)
    found = [error_of(lambda: loss_of(model, 0, rank).backward())]
    if not freezes:
        handle.remove()
    return found + [error_of(lambda: loss_of(model, step, rank).backward()) for step in (1, 2)]


class ShardsState(unittest.TestCase):
    def test_a_checkpoint_goes_on_to_the_bit(self):
        for settings in (LOCO, {**LOCO, "weights": "uniform:bits=8,rounding=random"}):
            with tempfile.TemporaryDirectory() as folder:
                self.assertEqual(on_ranks(2, resumed, settings, folder), [([True, False], False, True)] * 2)

    def test_states_that_are_not_the_right_ones(self):
        found = on_ranks(2, states)
        for errors, _ in found:
            self.assertIn("was given to rank", errors[0])
            self.assertIn("the state is of something else", errors[1])
        before = [held(state) for state in found[0][1]]
        for error, state in on_ranks(3, other_number, found[0][1]):
            self.assertIn("of a model in [2] shards, this one has 3: give the states of all old ranks, not of [0]", error)
            for name, values in held(state).items():
                mean = sum(one[name] for one in before) / 2
                rows = min(len(mean), len(values))  # without padding
                self.assertTrue(mean.any(), name)
                torch.testing.assert_close(values[:rows], mean[:rows], rtol=0, atol=0.02 * mean.abs().max().item())
                self.assertFalse(values[rows:].any() or mean[rows:].any())

    def test_a_load_that_fails_changes_nothing(self):
        for error, same, decisions in on_ranks(2, half_loaded):
            self.assertIn("division", error)
            self.assertTrue(same)
            self.assertEqual(decisions, [])

    @needs_2_13("cannot run the model again after a backward pass that failed")
    def test_no_step_follows_a_backward_pass_that_failed(self):
        for freezes, error in ((False, "ValueError: of the script"), (True, "UnsupportedError: FSDP2 reduces")):
            for first, *others in on_ranks(2, failing, freezes):
                self.assertIn(error, first)
                for one in others:
                    self.assertIn("ContractError: a backward pass ended with an error", one)


if __name__ == "__main__":
    unittest.main()
