"""States of links of HSDP: saved, loaded, by other numbers of replicas and of shards. SPDX-License-Identifier: Apache-2.0"""
import math
import tempfile
import unittest
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from gpts import make_gpt, mesh_of, sharded, shards_of, train
from ranks import on_ranks
from replicas_runs import TOPK, linked, sgd


def resumed(rank, size, folder):
    """Through a checkpoint of torch.distributed.checkpoint: model and link, into a new model."""
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    mesh = mesh_of(2, 2)
    whole, _ = linked(TOPK, mesh)
    train(whole, sgd(whole), rank, 6)
    model, link = linked(TOPK, mesh)
    train(model, sgd(model), rank, 3)
    dcp.save({"model": get_model_state_dict(model), "link": link}, checkpoint_id=folder)
    again, other = linked(TOPK, mesh)
    dcp.load({"model": get_model_state_dict(again), "link": other}, checkpoint_id=folder)
    train(again, sgd(again), rank, 3, first=3)
    forgotten, _ = linked(TOPK, mesh)
    dcp.load({"model": get_model_state_dict(forgotten)}, checkpoint_id=folder)
    train(forgotten, sgd(forgotten), rank, 3, first=3)
    return torch.equal(shards_of(again), shards_of(whole)), torch.equal(shards_of(forgotten), shards_of(whole))


def forgotten_behind_dcp(rank, size):
    """How often links without their state are said to lack it, where DCP made the optimiser's state and loaded it or not."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
    found = []
    for make in (torch.optim.AdamW, torch.optim.Adagrad, sgd):
        mesh = mesh_of(2, 1)
        options = {} if make is sgd else {"lr": 0.01}
        first, _ = linked(TOPK, mesh)
        trained_one = make(first.parameters(), **options) if options else sgd(first, 0.9)
        train(first, trained_one, rank, 3)
        state = get_optimizer_state_dict(first, trained_one)
        for loads in (True, False):
            model, _ = linked(TOPK, mesh)
            optimizer = make(model.parameters(), **options) if options else sgd(model, 0.9)
            if loads:
                set_optimizer_state_dict(model, optimizer, state)
            else:
                get_optimizer_state_dict(model, optimizer)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                train(model, optimizer, rank, 2)
            found.append(sum("the link begins with empty memories" in str(one.message) for one in said))
    return found


def saved_shapes(rank, size):
    model, link = linked(TOPK, mesh_of(2, 2))
    train(model, sgd(model), rank, 1)
    (state,) = link.state_dict()[f"rank {rank}"]
    local = {name: list(one.to_local().shape) for name, one in model.named_parameters()}
    return state["tensors"], local, state["column"], state["columns"]


def saved(rank, size, replicas, shards):
    model, link = linked(TOPK, mesh_of(replicas, shards))
    train(model, sgd(model), rank, 3)
    everywhere = [None] * size
    dist.all_gather_object(everywhere, link.state_dict())
    return everywhere


def owed(state):
    """The sum of what memories of a stream hold, by name."""
    from thinwire.torch._saved import from_tensor
    return {name: torch.frombuffer(bytearray(data), dtype=torch.float32).clone()
            for name, _, _, _, data in from_tensor(0, state["state"]) if name.endswith("/feedback/residual")}


def loaded(rank, size, states):
    """By more replicas of as many shards."""
    import thinwire
    _, link = linked(TOPK, mesh_of(size // 2, 2))
    link.load_state_dict(states)
    (state,) = link.state_dict()[f"rank {rank}"]
    _, other = linked(TOPK, mesh_of(size, 1))
    errors = []
    for given in (states[:3], states[(rank + 1) % 2]):
        try:
            (link if len(given) == 1 else other).load_state_dict(given)
        except thinwire.Error as error:
            errors.append(str(error))
    return owed(state), errors


def held(states, replica, columns, keys=("residual", "velocity")):
    """Of each parameter, as if it were not sharded, what the memories of a replica hold of it."""
    from thinwire.torch._saved import from_tensor
    found = {}
    for column in range(columns):
        (state,) = states[replica * columns + column].values()
        state = state[0]
        assert (state["rank"], state["column"]) == (replica, column)
        shapes = {name: shape for codec in state["tensors"].values() for name, shape in codec.items()}
        for name, _, _, _, data in from_tensor(0, state["state"]):
            stream, part, key = name.rsplit("/", 2)
            if part == "feedback" and key in keys:
                values = torch.frombuffer(bytearray(data), dtype=torch.float32) if data else torch.empty(0)
                found.setdefault((stream, key), []).append(values.view(shapes[stream]))
    return {at: torch.cat(parts) for at, parts in found.items()}


def owners_owe(states, replicas, columns):
    """The same of what the owners of all replicas owe, which counts in the mean as it stands."""
    from thinwire.torch._saved import from_tensor
    found = {}
    for column in range(columns):
        parts = {}
        for replica in range(replicas):
            (state,) = states[replica * columns + column].values()
            shapes = {name: shape for codec in state[0]["tensors"].values() for name, shape in codec.items()}
            arrays = {name: data for name, *_, data in from_tensor(0, state[0]["state"])}
            for name in arrays:
                stream, part, key = name.rsplit("/", 2)
                if part != "owner" or key != "pieces" or not arrays[f"{stream}/owner/residual"]:
                    continue
                whole, at = torch.zeros(math.prod(shapes[stream])), 0
                rest = torch.frombuffer(bytearray(arrays[f"{stream}/owner/residual"]), dtype=torch.float32)
                for begin, count, _ in torch.frombuffer(bytearray(arrays[name]), dtype=torch.int64).view(-1, 3).tolist():
                    whole[begin:begin + count] += rest[at:at + count]
                    at += count
                parts[stream] = parts.get(stream, 0) + whole.view(shapes[stream])
        for stream, values in parts.items():
            found.setdefault(stream, []).append(values)
    return {stream: torch.cat(values) for stream, values in found.items()}


def with_feedback(feedback, replicas, shards):
    import thinwire.torch as tw
    mesh = mesh_of(replicas, shards)
    model = sharded(make_gpt(), mesh["shard"])
    codec, _, feedback = feedback.partition(" ")
    return model, tw.compress(model, codec, feedback=feedback, replicate=mesh["replicate"])


def saved_by(rank, size, folder, feedback, replicas, shards):
    model, link = with_feedback(feedback, replicas, shards)
    train(model, sgd(model), rank, 3)
    dcp.save({"link": link}, checkpoint_id=folder)
    everywhere = [None] * size
    dist.all_gather_object(everywhere, link.state_dict())
    return everywhere


def in_other_shards(rank, size, folder, feedback, replicas, shards, old_size, old_shards):
    import thinwire.torch as tw
    model, link = with_feedback(feedback, replicas, shards)
    dcp.load({"link": tw.Checkpoint(link, world_size=old_size, shards=old_shards)}, checkpoint_id=folder)
    everywhere = [None] * size
    dist.all_gather_object(everywhere, link.state_dict())
    losses = train(model, sgd(model), rank, 2, first=3)
    return everywhere, losses


class SavedReplicas(unittest.TestCase):
    def test_a_forgotten_link_is_told_behind_distributed_checkpoints(self):
        for found in on_ranks(2, forgotten_behind_dcp):
            self.assertEqual(found, [1, 0] * 3)

    def test_a_checkpoint_goes_on_to_the_bit(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(on_ranks(4, resumed, folder), [(True, False)] * 4)

    def test_memories_have_the_shapes_of_shards_and_the_names_of_parameters(self):
        for rank, (tensors, local, column, columns) in enumerate(on_ranks(4, saved_shapes)):
            self.assertEqual(tensors[TOPK], local)
            self.assertEqual((column, columns), (rank % 2, 2))

    def test_other_numbers_of_replicas_owe_the_same(self):
        states = on_ranks(4, saved, 2, 2)[0]
        self.assertEqual(len(states), 4)
        loaded_by = on_ranks(2, loaded, states)
        for column, (own, errors) in enumerate(loaded_by):
            old = [owed(states[column + 2 * replica][f"rank {column + 2 * replica}"][0]) for replica in range(2)]
            self.assertTrue(any(one.any() for one in own.values()))
            for name, values in own.items():
                torch.testing.assert_close(values, (old[0][name] + old[1][name]) / 2, rtol=1e-5, atol=1e-6)
            self.assertIn("of a model in 2 shards, this one has 1: give the states of all 4 old ranks", errors[0])
            self.assertIn("this rank has shard", errors[1])

    def test_other_numbers_of_shards_owe_the_same(self):
        for feedback, old, cases in ((f"{TOPK} residual", (2, 2), ((4, 1), (1, 4), (2, 1))),
                                     (f"{TOPK} dgc:momentum=0.9", (1, 4), ((2, 2),)), (f"{TOPK} loco", (2, 2), ((1, 3),)),
                                     ("onebit residual", (2, 2), ((2, 1), (1, 3)))):
            with tempfile.TemporaryDirectory() as folder:
                states = on_ranks(4, saved_by, folder, feedback, *old)[0]
                before = [held(states, replica, old[1]) for replica in range(old[0])]
                owners = owners_owe(states, *old)
                self.assertEqual(any(values.any() for values in owners.values()), feedback.startswith("onebit"))
                for replicas, shards in cases:
                    found = on_ranks(replicas * shards, in_other_shards, folder, feedback, replicas, shards, 4, old[1])
                    for replica in range(replicas):
                        own = held(found[0][0], replica, shards)
                        self.assertEqual({*own}, {*before[0]})
                        for at, values in own.items():
                            mean = before[replica][at] if replicas == old[0] else sum(one[at] for one in before) / len(before)
                            if at[1] == "residual":
                                mean = mean + owners.get(at[0], 0)
                            self.assertTrue(mean.any(), at)
                            tolerance = 1e-6 if not feedback.endswith("loco") else 0.02 * mean.abs().max().item()
                            torch.testing.assert_close(values, mean, rtol=0, atol=tolerance)
                    self.assertTrue(all(math.isfinite(loss) for _, losses in found for loss in losses))


if __name__ == "__main__":
    unittest.main()
