"""Replicas of a sharded model: FSDP2 inside, a link between. Means, memories, saved states, momentum, mistakes.
SPDX-License-Identifier: Apache-2.0"""
import functools
import math
import tempfile
import unittest
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

from gpts import (
    FROM_2_13, gradients_of, loss_of, make_gpt, mesh_of, sharded, shards_of, train, with_and_without_scaler)
from ranks import on_ranks

SIDCO = "sidco:density=0.05"
TOPK = "topk:density=0.05"


def linked(codec, mesh, model=None, **settings):
    import thinwire.torch as tw
    model = sharded(make_gpt() if model is None else model, mesh["shard"])
    return model, tw.compress(model, codec, replicate=mesh["replicate"], **settings)


def sgd(model, momentum=0.0, rate=0.1):
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)


def trained(rank, model, optimizer, steps=5):
    losses = train(model, optimizer, rank, steps)
    return losses, shards_of(model)


def beside_plain(rank, size):
    """A link that loses nothing, and HSDP as torch has it."""
    mesh = mesh_of(2, 2)
    plain = sharded(make_gpt(), mesh)
    expected = trained(rank, plain, sgd(plain, 0.9))
    model, link = linked("fp32", mesh)
    found = trained(rank, model, sgd(model, 0.9))
    return found, expected, link.metrics()


def one_replica_and_one_shard(rank, size):
    found = []
    for replicas, shards in ((1, 2), (2, 1)):
        mesh = mesh_of(replicas, shards)
        plain = sharded(make_gpt(), mesh)
        model, _ = linked("fp32", mesh)
        found.append((trained(rank, model, sgd(model)), trained(rank, plain, sgd(plain))))
    return found


def learns(rank, size, codec, settings):
    mesh = mesh_of(2, 2)
    model, link = linked(codec, mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, **settings)
    losses = train(model, optimizer, rank, 60)
    mine = torch.tensor(sum(losses[-5:]) / 5)
    dist.all_reduce(mine)
    others = [torch.empty_like(shards_of(model)) for _ in range(2)]
    dist.all_gather(others, shards_of(model), group=mesh["replicate"].get_group())
    metrics = link.metrics()
    return losses[0], mine.item() / size, torch.equal(*others), metrics["codec_ratio"]


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


def frozen_later(rank, size):
    """Whether a layer that is frozen while its memory owes stays where it is."""
    model, _ = linked("topk:density=0.1", mesh_of(2, 1))
    optimizer = sgd(model, 0.9)
    train(model, optimizer, rank, 2)
    frozen = [*model.blocks[0].down.parameters()]
    for one in frozen:
        one.requires_grad_(False)
    before = [one.detach().to_local().clone() for one in frozen]
    train(model, optimizer, rank, 3, first=2)
    return all(torch.equal(one.detach().to_local(), was) for one, was in zip(frozen, before)), [one.grad for one in frozen]


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


def thrown_away(rank, size):
    """How often it is said that gradients are, which are zeroed before the optimiser's step, or added to behind it."""
    found = []
    for zeroes in (True, False, None):
        model, _ = linked(TOPK, mesh_of(2, 1))
        optimizer = sgd(model)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for step in range(3):
                optimizer.zero_grad()
                loss_of(model, step, rank).backward()
                optimizer.step()
                if zeroes is None:
                    continue
                if zeroes:
                    optimizer.zero_grad()
                loss_of(model, step, rank).backward()
        found.append(sum("were exchanged and thrown away" in str(one.message) for one in said))
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


def momentum(rank, size):
    """In the memory, with a codec that loses nothing, against plain HSDP with the optimiser's own; then released."""
    mesh = mesh_of(2, 2)
    found = []
    for settings in ({"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}):
        plain = sharded(make_gpt(), mesh)
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, **settings)
        train(plain, optimizer, rank, 6)
        model = sharded(make_gpt(), mesh["shard"])
        own = torch.optim.SGD(model.parameters(), lr=0.1, **settings)
        import thinwire.torch as tw
        link = tw.compress(model, "topk:density=1", replicate=mesh["replicate"], optimizer=own)
        train(model, own, rank, 3)
        taken_over = sum(name.endswith("/feedback/velocity") for name in link._exchange.remembered_shapes())
        link.release_optimizer()
        train(model, own, rank, 3, first=3)
        found.append((shards_of(model), shards_of(plain), taken_over))
    return found


def adam(rank, size):
    import thinwire.torch as tw
    mesh = mesh_of(2, 2)
    model = sharded(make_gpt(), mesh["shard"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    tw.compress(model, SIDCO, replicate=mesh["replicate"], optimizer=optimizer)
    losses = train(model, optimizer, rank, 40)
    return losses[0], losses[-1], sum(one["exp_avg"].to_local().abs().sum().item() for one in optimizer.state.values())


def skipped(rank, size):
    """A NaN in the gradient of one rank: all skip, and memories are as before."""
    mesh = mesh_of(2, 2)
    model, link = linked(TOPK, mesh)
    optimizer = sgd(model)
    train(model, optimizer, rank, 2)
    (before,) = link.state_dict()[f"rank {rank}"]
    optimizer.zero_grad()
    loss = loss_of(model, 2, rank)
    (loss * math.nan if rank == 3 else loss).backward()
    values = [bool(one.isnan().all()) for one in gradients_of(model).values()]
    metrics = link.metrics()
    (after,) = link.state_dict()[f"rank {rank}"]
    model.zero_grad()
    if rank == 1:
        link.skip_step()
    loss_of(model, 3, rank).backward()
    zeros = all(not one.any() for one in gradients_of(model).values())
    return values, metrics["skipped"], metrics["fault"], torch.equal(before["state"], after["state"]), zeros, \
        link.metrics()["fault"]


def scaled(rank, size):
    return with_and_without_scaler(functools.partial(linked, TOPK, mesh_of(2, 2)), rank)


def accumulated_with_momentum(rank, size):
    """What an earlier backward pass left in the gradients is not given to the memory once more."""
    import thinwire.torch as tw
    mesh = mesh_of(2, 2)
    model = sharded(make_gpt(), mesh["shard"])
    tw.compress(model, "topk:density=1", replicate=mesh["replicate"], optimizer=sgd(model, 0.9))
    plain = sharded(make_gpt(), mesh)
    means = []
    for step in range(2):
        loss_of(model, step, rank).backward()
        plain.zero_grad()
        loss_of(plain, step, rank).backward()
        means.append(gradients_of(plain))
    expected = {name: one + 0.9 * one + means[1][name] for name, one in means[0].items()}
    return gradients_of(model), expected


def rules(rank, size):
    model, link = linked("fp32", mesh_of(2, 2), rules={"blocks.*.up.weight": TOPK})
    train(model, sgd(model), rank, 1)
    link.change("fp16", rules={"blocks.*.up.weight": "fp32"})
    train(model, sgd(model), rank, 1)
    return sorted(link._exchange.remembered_shapes())


def mistakes(rank, size):
    import thinwire
    import thinwire.torch as tw
    from torch.nn.parallel import DistributedDataParallel
    mesh = mesh_of(2, 2)
    inner, outer = mesh["shard"], mesh["replicate"]

    def half():
        model = make_gpt()
        from torch.distributed.fsdp import fully_shard
        fully_shard(model.blocks[0], mesh=inner)
        return model

    def hooked():
        model = sharded(make_gpt(), inner)
        next(model.parameters()).register_post_accumulate_grad_hook(lambda _: None)
        return model

    def of(model, replicate=outer, **settings):
        return lambda: tw.compress(model(), "fp32", replicate=replicate, **settings)

    def usual():
        return sharded(make_gpt(), inner)

    def twice():
        model = usual()
        tw.compress(model, "fp32", replicate=outer)
        return model

    def on_meta():
        with torch.device("meta"):
            model = make_gpt()
        return sharded(model, inner)

    def in_two_dimensions():
        from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
        model = parallelize_module(make_gpt(), outer, {"head": ColwiseParallel()})
        return sharded(model, inner)

    found = []
    for call in (*([of(in_two_dimensions)] if FROM_2_13 else []),  # torch before refuses that mesh itself
                 of(lambda: sharded(make_gpt(), mesh)), of(half), of(hooked),
                 of(usual, weights="int8"), of(usual, replicate=mesh), of(usual, replicate="replicate"),
                 of(usual, replicate=inner),
                 of(usual, weighted=True), of(usual, inside=2), of(lambda: sharded(make_gpt(rank // 2), inner)),
                 of(twice), of(lambda: DistributedDataParallel(make_gpt())), of(on_meta),
                 of(lambda: sharded(make_gpt().double(), inner)), of(make_gpt),
                 of(lambda: sharded(make_gpt(), outer), replicate=inner)):
        try:
            call()
            found.append("none")
        except thinwire.Error as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


MISTAKES = (
    ("UnsupportedError", "parameter 'head.weight' has the placements"),
    ("UnsupportedError", "sharded on a mesh of two dimensions"),
    ("ContractError", "'embedding.weight', 'blocks.1.norm.weight', 'blocks.1.norm.bias'"),
    ("UnsupportedError", "has a hook that runs after its gradient is accumulated"),
    ("UnsupportedError", "weights is not for replicate="),
    ("ContractError", "replicate has 2 dimensions"),
    ("ContractError", "replicate is a str"),
    ("ContractError", "a link needs replica after replica"),
    ("UnsupportedError", "weighted=True is not for a sharded model"),
    ("UnsupportedError", "inside=2 is not for a sharded model"),
    ("MismatchError", "'embedding.weight' of rank 2 is not that of rank 0"),
    ("ContractError", "has a link already"),
    ("ContractError", "replicate is for a model that fully_shard has sharded"),
    ("ContractError", "on the device 'meta'"),
    ("UnsupportedError", "of type torch.float64"),
    ("ContractError", "replicate is for a model that fully_shard has sharded"),
    ("ContractError", "a link needs replica after replica"),
)


def with_a_leaf(rank, size):
    """The hooks of thinwire's that passes leave at a leaf which the model returns beside its outputs."""
    class Returning(nn.Module):
        def __init__(self):
            super().__init__()
            self.gpt, self.leaf = make_gpt(), torch.ones(1, requires_grad=True)

        def forward(self, tokens):
            return self.gpt(tokens), self.leaf

    from torch.distributed.fsdp import fully_shard
    import thinwire.torch as tw
    mesh = mesh_of(2, 1)
    model = fully_shard(Returning(), mesh=mesh["shard"])
    tw.compress(model, "fp32", replicate=mesh["replicate"])
    for step in range(3):
        model(torch.zeros(2, 3, dtype=torch.int64))[0].sum().backward()
    return sum(hook.__module__.startswith("thinwire") for hook in (model.leaf._backward_hooks or {}).values())


class Replicas(unittest.TestCase):
    def test_leaves_that_a_model_returns_keep_no_hooks(self):
        self.assertEqual(on_ranks(2, with_a_leaf), [0, 0])

    def test_offloaded_shards_need_torch_2_13(self):
        from types import SimpleNamespace as Some
        from unittest import mock
        from thinwire.torch._sharded import require_no_offload
        shard = Some(name="head", tensor=Some(device=torch.device("cpu"), device_mesh=Some(device_type="cuda")))
        with mock.patch.object(torch, "__version__", "2.9.1+cpu"), self.assertRaisesRegex(Exception, "'head' is on cpu, and its mesh on cuda"):
            require_no_offload([shard])
        with mock.patch.object(torch, "__version__", "2.13.0"):
            require_no_offload([shard])

    def test_a_layer_that_is_frozen_later_stays_where_it_is(self):
        self.assertEqual(on_ranks(2, frozen_later), [(True, [None])] * 2)

    def test_a_forgotten_link_is_told_behind_distributed_checkpoints(self):
        for found in on_ranks(2, forgotten_behind_dcp):
            self.assertEqual(found, [1, 0] * 3)

    def assert_close(self, one, other, rtol=1e-5, atol=1e-6):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)

    def test_fp32_is_plain_hsdp_to_rounding(self):
        for (losses, weights), (plain_losses, plain), metrics in on_ranks(4, beside_plain):
            self.assert_close(losses, plain_losses)
            self.assert_close(weights, plain)
            self.assertEqual(metrics["participants"], 2)
            self.assertEqual(metrics["inside_bytes"], 0)
            self.assertEqual(metrics["step"], 5)

    def test_a_mesh_may_have_one_replica_or_one_shard(self):
        for found in on_ranks(2, one_replica_and_one_shard):
            for (losses, weights), (plain_losses, plain) in found:
                self.assert_close(losses, plain_losses)
                self.assert_close(weights, plain)

    def test_codecs_with_memories_learn_and_replicas_stay_equal(self):
        for codec, ratio in ((SIDCO, 4), ("int8", 3), ("powersgd:rank=2", 2)):
            for first, last, equal, found in on_ranks(4, learns, codec, {}):
                self.assertLess(last, 0.6 * first, codec)
                self.assertTrue(equal, codec)
                self.assertGreater(found, ratio, codec)

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
                self.assert_close(values, (old[0][name] + old[1][name]) / 2)
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

    def test_momentum_in_the_memory_is_that_of_sgd(self):
        for found in on_ranks(4, momentum):
            for weights, plain, taken_over in found:
                self.assertGreater(taken_over, 0)
                self.assert_close(weights, plain, rtol=1e-4, atol=1e-5)

    def test_adam_has_no_first_moment(self):
        for first, last, _ in on_ranks(4, adam):
            self.assertLess(last, 0.8 * first)

    def test_a_fault_of_one_rank_skips_the_step_everywhere(self):
        for values, skips, fault, same, zeros, asked in on_ranks(4, skipped):
            self.assertEqual(values, [True] * len(values))
            self.assertTrue(skips)
            self.assertRegex(fault, r"of rank [23] has a NaN")  # FSDP2 has spread it in the replica
            self.assertTrue(same)
            self.assertTrue(zeros)
            self.assertEqual(asked, "rank 1 asked to skip the step")

    def test_memories_are_kept_without_the_scale_of_a_scaler(self):
        for plain, scaled_back in on_ranks(4, scaled):
            for name, one in plain.items():
                self.assert_close(scaled_back[name], one)

    def test_gradients_that_are_there_are_not_given_to_memories_again(self):
        for found, expected in on_ranks(4, accumulated_with_momentum):
            for name, one in found.items():
                self.assert_close(one, expected[name])

    def test_gradients_that_are_thrown_away_are_told(self):
        self.assertEqual(on_ranks(2, thrown_away), [[1, 1, 0]] * 2)

    def test_rules_are_by_the_names_of_parameters(self):
        for names in on_ranks(4, rules):
            self.assertEqual(names, [f"blocks.{i}.up.weight/feedback/residual" for i in range(2)])

    def test_mistakes_are_named_on_all_ranks(self):
        for found in on_ranks(4, mistakes):
            for text, (kind, part) in zip(found, MISTAKES[0 if FROM_2_13 else 1:], strict=True):
                self.assertTrue(text.startswith(kind + ":"), text)
                self.assertIn(part, text)


if __name__ == "__main__":
    unittest.main()
