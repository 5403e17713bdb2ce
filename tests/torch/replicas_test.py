"""Replicas of a sharded model: FSDP2 inside, a link between. Means, memories, momentum, mistakes.
SPDX-License-Identifier: Apache-2.0"""
import functools
import math
import unittest
import warnings

import torch
import torch.distributed as dist
from torch import nn

from gpts import (
    FROM_2_13, FallingScaler, gradients_of, loss_of, make_gpt, mesh_of, sharded, shards_of, train,
    with_and_without_scaler)
from kinds import Tiny
from ranks import on_ranks
from replicas_runs import TOPK, linked, sgd

SIDCO = "sidco:density=0.05"


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


def tiny_in_float16(rank, size):
    from torch.distributed.fsdp import fully_shard
    import thinwire.torch as tw
    mesh, scaler = mesh_of(2, 1), FallingScaler()
    model = fully_shard(Tiny(), mesh=mesh["shard"])
    tw.compress(model, "fp32", replicate=mesh["replicate"], scaler=scaler)
    (model() * scaler.scale).backward()
    return model.values.grad.to_local().float() / scaler.scale


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

    def in_complex_numbers():
        model = make_gpt()
        model.head = nn.Linear(model.head.in_features, model.head.out_features, dtype=torch.complex64)
        return sharded(model, inner)

    found = []
    for call in (*([of(in_two_dimensions)] if FROM_2_13 else []),  # torch before refuses that mesh itself
                 of(lambda: sharded(make_gpt(), mesh)), of(half), of(hooked),
                 of(usual, weights="int8"), of(usual, replicate=mesh), of(usual, replicate="replicate"),
                 of(usual, replicate=inner),
                 of(usual, weighted=True), of(usual, inside=2), of(lambda: sharded(make_gpt(rank // 2), inner)),
                 of(twice), of(lambda: DistributedDataParallel(make_gpt())), of(on_meta),
                 of(lambda: sharded(make_gpt().double(), inner)), of(in_complex_numbers), of(make_gpt),
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
    ("UnsupportedError", "of type torch.complex64; it may be one of float32, bfloat16, float16"),
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

    def test_gradients_that_need_their_scale_in_float16_keep_it(self):
        for found in on_ranks(2, tiny_in_float16):
            torch.testing.assert_close(found, torch.full((8, 4), 1e-8), rtol=1e-2, atol=0)

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
