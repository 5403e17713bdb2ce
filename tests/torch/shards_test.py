"""The collectives of a sharded model through thinwire: reduce-scatter of gradients, all-gather of weights.
SPDX-License-Identifier: Apache-2.0"""
import functools
import importlib
import math
import sys
import unittest
import warnings
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from gpts import (
    FROM_2_13, Gpt, gradients_of, loss_of, make_checkpointed, make_compiled, make_gpt, needs_2_13,
    sharded, shards_of, train, with_and_without_scaler, with_communication, without_communication)
from ranks import on_ranks
from shards_runs import LOCO, error_of, linked, mesh_of_all, sgd


def beside_plain(rank, size):
    plain = sharded(make_gpt(), mesh_of_all())
    expected = train(plain, sgd(plain), rank, 5), shards_of(plain)
    model, link = linked("fp32")
    return (train(model, sgd(model), rank, 5), shards_of(model)), expected, link.metrics()


def wide(rank, size, codec, feedback, weights):
    """Bytes of a step of two layers whose frames are small beside their values."""
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(256, 256, bias=False) for _ in range(2))
            self.head = nn.Linear(256, 256, bias=False)

        def forward(self, x):
            for block in self.blocks:
                x = torch.tanh(block(x))
            return self.head(x)

    torch.manual_seed(1)
    model, link = linked(codec, Layers(), feedback=feedback, weights=weights)
    model(torch.randn(4, 256)).square().mean().backward()
    return link.metrics()


def learns(rank, size, codec, feedback, weights):
    plain = sharded(make_gpt(), mesh_of_all())
    model, link = linked(codec, feedback=feedback, weights=weights)
    found = [train(one, sgd(one, rate=0.05), rank, 60) for one in (plain, model)]
    ends = torch.tensor([sum(losses[-5:]) / 5 for losses in found])
    dist.all_reduce(ends)
    return found[0][0], *(ends / size).tolist()


def gathered(rank, size, codec):
    """The same output on every rank, to the bit; and that of weights that are not compressed."""
    tokens = torch.arange(6).view(1, 6)
    plain = sharded(make_gpt(), mesh_of_all())
    model, link = linked("fp32", weights=codec)
    with torch.no_grad():
        found, expected = model(tokens), plain(tokens)
    loss_of(model, 0, rank).backward()
    return found, expected, link.metrics()["weights"]


def weights_not_finite(rank, size):
    """A weight of rank 1's shard that is not finite: every rank computes with NaN, and goes on with finite ones."""
    tokens = torch.arange(6).view(1, 6)
    model, _ = linked("fp32", weights="int8")
    weight = model.head.weight.to_local()
    found = []
    for value in (math.inf, 0.0):
        if rank == 1:
            with torch.no_grad():
                weight[0, 0] = value
        with torch.no_grad():
            found.append(model(tokens))
        model.reshard()
    return bool(found[0].isnan().all()), bool(found[1].isfinite().all())


class Linears(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def tiny_in_float16(rank, size):
    """Shares of gradients that are zero, where they need the scale of a scaler: of torch's own collectives, and of a link."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    class Fixed:
        def get_scale(self):
            return 65536.0

    shares = []
    for is_linked in (False, True):
        policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.float16)}
        model = linked("fp32", Linears(), policy, scaler=Fixed())[0] if is_linked else sharded(Linears(), mesh_of_all(), **policy)
        (model(torch.ones(4, 16)).float().square().mean() * 1e-6 * 65536).backward()
        found = torch.cat([one.flatten() for one in gradients_of(model).values()])
        assert found.isfinite().all()
        shares.append((found == 0).float().mean().item())
    return shares


def warned(rank, size):
    import thinwire.torch as tw
    found = []
    for codec, feedback in (("int8", "residual"), ("int8", "loco"), ("fp32", "auto")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = sharded(make_gpt(), mesh_of_all())
            tw.compress(model, codec, feedback=feedback)
        found.append([str(one.message) for one in caught if "on every rank" in str(one.message)
                      and one.filename == __file__])
    return found, sum(one.numel() for one in model.parameters())


def both(rank, passes, make=make_gpt, **sharding):
    """The gradients after `passes`(model) of FSDP2 without a link, and of one with a link that loses nothing."""
    plain = sharded(make(), mesh_of_all(), **sharding)
    model, link = linked("fp32", make(), sharding, weights="fp32")
    for one in (plain, model):
        passes(one, rank)
    return gradients_of(model), gradients_of(plain)


def once(model, rank):
    loss_of(model, 0, rank).backward()


def precisions(rank, size):
    from torch.distributed.fsdp import MixedPrecisionPolicy
    return [both(rank, once, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced))
            for reduced in (torch.float32, torch.bfloat16, torch.float16)]


def resharding(rank, size):
    def passes(model, rank):
        with torch.no_grad():
            loss_of(model, 7, rank)
        for step in range(2):
            model.zero_grad()
            loss_of(model, step, rank).backward()

    return [both(rank, passes, reshard_after_forward=after) for after in (True, False, 2)]


def accumulated(rank, size):
    return [both(rank, passes) for passes in (without_communication, with_communication)]


def checkpointed(rank, size):
    return [both(rank, once, make=functools.partial(make_checkpointed, reentrant)) for reentrant in (False, True)]


class Sparing(Gpt):
    """Has a layer that nobody uses, and a frozen one."""

    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(3, 5)
        self.blocks[0].up.weight.requires_grad_(False)


def unused(rank, size):
    def make():
        torch.manual_seed(1)
        return Sparing()
    return both(rank, once, make=make)


def compiled(rank, size):
    return both(rank, once, make=make_compiled)


def divided(rank, size):
    def passes(model, rank):
        for module in (model, *model.blocks):
            module.set_gradient_divide_factor(3.0)
            module.set_force_sum_reduction_for_comms(True)
        once(model, rank)
    return both(rank, passes)


def not_finite(rank, size):
    model, link = linked(**LOCO)
    loss = loss_of(model, 0, rank)
    (loss * math.nan if rank == 1 else loss).backward()
    return [bool(one.isnan().all()) for one in gradients_of(model).values() if one.numel()], link.metrics()["skipped"]


def scaled(rank, size):
    return with_and_without_scaler(functools.partial(linked, **LOCO), rank)


def by_rules(rank, size):
    _, link = linked("fp32", rules={"blocks.*.up.weight": {"codec": "int8", "feedback": "loco"}})
    (state,) = link.state_dict()[f"rank {rank}"]
    return {name: [*one["tensors"]] for name, one in state["modules"].items()}, repr(link)


def overlapping(rank, size):
    """What is said of second links of a model and its parts, in both orders, and of links of two parts."""
    import thinwire.torch as tw
    models = [sharded(make_gpt(), mesh_of_all()) for _ in range(3)]
    parts = [(model.blocks[0], model) for model in models]
    tw.compress(parts[0][0], "fp32")
    tw.compress(parts[1][1], "fp32")
    tw.compress(parts[2][0], "fp32")
    return [error_of(lambda: tw.compress(parts[0][1], "fp32")), error_of(lambda: tw.compress(parts[1][0], "fp32")),
            error_of(lambda: tw.compress(models[2].blocks[1], "fp32"))]


def mistakes(rank, size):
    import thinwire.torch as tw
    from torch.nn.parallel import DistributedDataParallel
    from thinwire.torch import _fsdp2

    def of(codec="fp32", **settings):
        return error_of(lambda: linked(codec, **settings))

    def undone(name, *given):
        _, link = linked("fp32")
        return error_of(lambda: getattr(link, name)(*given))

    def without_interfaces():
        with mock.patch.dict(sys.modules, {"torch.distributed.fsdp._fully_shard._fsdp_api": None}):
            return error_of(lambda: importlib.reload(_fsdp2))

    def unsuited():
        model, link = linked("fp32")
        values = torch.zeros(size * 3)
        reduction = next(iter(link._reductions.values()))
        return error_of(lambda: reduction(values[:3], values, None, dist.ReduceOp.MAX)), \
            error_of(lambda: reduction(values[:3], values, None, dist.ReduceOp.AVG))

    ddp = DistributedDataParallel(make_gpt())
    return [of("topk:density=0.1"), of(weights="topk:density=0.1"), of(momentum="memory"), of(inside=2),
            of(rules={"nothing": "int8"}), of(weights=7), of(grouping="model"),
            error_of(lambda: tw.compress(ddp, "fp32", weights="int8")), undone("change", "int8"), undone("abstain"),
            undone("log_to", None), *unsuited(), error_of(lambda: _fsdp2.travelling(nn.Linear(1, 1))),
            without_interfaces()]


MISTAKES = (
    "UnsupportedError: exchange: codec 'topk' leaves no shards",
    "UnsupportedError: shard gather: codec 'topk' does not send every value",
    'UnsupportedError: compress: momentum="memory" is for codecs that leave values for later steps',
    "UnsupportedError: compress: inside=2 is not for a sharded model",
    "BadOptionError: compress: the rule 'nothing' fits no parameter",
    "BadOptionError: compress: weights is 7, must be a text",
    "choose grouping tensor",
    "ContractError: compress: weights is for a model that fully_shard has sharded",
    "UnsupportedError: change: not of the collectives of a sharded model",
    "UnsupportedError: abstain: not of the collectives of a sharded model",
    "UnsupportedError: log_to: not of the collectives of a sharded model",
    "UnsupportedError: a link reduces shards by AVG and SUM",
    "UnsupportedError: FSDP2 reduces 6 values of a module whose parameters",
    "has the parameters of a sharded module in another place than torch 2.9, 2.13 and 2.14",
    "has the interfaces of FSDP2's collectives in another place than torch 2.9, 2.13 and 2.14",
)


class Shards(unittest.TestCase):
    def assert_same(self, found, plain, tolerance=1e-5):
        self.assertEqual(list(found), list(plain))
        for name, one in found.items():
            self.assertEqual(one.dtype, plain[name].dtype)
            torch.testing.assert_close(one, plain[name], rtol=tolerance, atol=tolerance, msg=name)

    def test_fp32_is_plain_fsdp2_to_rounding(self):
        for size in (4, 1):
            for (losses, weights), (plain_losses, plain), metrics in on_ranks(size, beside_plain):
                torch.testing.assert_close(losses, plain_losses, rtol=1e-5, atol=1e-6)
                torch.testing.assert_close(weights, plain, rtol=1e-5, atol=1e-6)
                if size > 1 or FROM_2_13:  # which has one rank reduce nothing
                    self.assertEqual(metrics.get("step"), 5 if size > 1 else None)

    def test_fp32_sends_what_a_reduce_scatter_needs(self):
        values = 3 * 256 * 256
        for size in (2, 4):
            needed = (size - 1) / size * 4 * values
            for metrics in on_ranks(size, wide, "fp32", "auto", None):
                self.assertEqual(metrics["dense_bytes"], needed)
                self.assertLess(metrics["sent_bytes"], 1.01 * needed)
                self.assertGreaterEqual(metrics["sent_bytes"], needed)

    def test_int4_gradients_and_int8_weights_send_far_less(self):
        values = 3 * 256 * 256
        for metrics in on_ranks(4, wide, "int4", "loco", "int8"):
            self.assertGreater(metrics["wire_ratio"], 7)
            # Forward and backward, but for the outermost module, which stays unsharded: 5 gathers of 3 modules.
            plain = 3 / 4 * 4 * values * 5 / 3
            self.assertEqual(metrics["weights"]["gathers"], 5)
            self.assertGreater(plain / metrics["weights"]["sent_bytes"], 3.8)

    def test_quantisers_learn_as_plain_fsdp2_does(self):
        for codec, feedback, weights in (("int8", "none", None), ("int4", "loco", "int8"),
                                         ("int8", "residual", "fp16")):
            for first, plain, found in on_ranks(4, learns, codec, feedback, weights):
                self.assertLess(found, 0.5 * first)
                self.assertLess(found, 1.25 * plain + 0.05, codec)

    def test_all_ranks_have_the_same_weights(self):
        for codec, tolerance in (("int8", 0.05), ("bf16", 0.05), ("fp32", 0.0)):
            outputs = on_ranks(3, gathered, codec)
            for found, expected, counts in outputs:
                self.assertTrue(torch.equal(found, outputs[0][0]))
                torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
                self.assertGreater(counts["sent_bytes"], 0)

    def test_a_weight_that_is_not_finite_is_nan_on_all_ranks(self):
        self.assertEqual(on_ranks(2, weights_not_finite), [(True, True)] * 2)

    def test_a_large_memory_is_warned_of(self):
        for (residual, eight_bits, nothing), values in on_ranks(2, warned):
            self.assertEqual(len(residual), 1)
            self.assertIn(f"beside {2 * values:,} bytes", residual[0])
            self.assertEqual((eight_bits, nothing), ([], []))

    def test_mixed_precision(self):
        for exact, *reduced in on_ranks(2, precisions):
            self.assert_same(*exact)
            for found, plain in reduced:
                self.assert_same(found, plain, tolerance=2e-2)

    def test_reshard_after_forward(self):
        for variants in on_ranks(4, resharding):
            for found, plain in variants:
                self.assert_same(found, plain)

    def test_accumulated_gradients(self):
        for variants in on_ranks(2, accumulated):
            for found, plain in variants:
                self.assert_same(found, plain)

    def test_activation_checkpointing(self):
        for variants in on_ranks(2, checkpointed):
            for found, plain in variants:
                self.assert_same(found, plain)

    def test_compiled_blocks(self):
        for found, plain in on_ranks(2, compiled):
            self.assert_same(found, plain)

    @needs_2_13("leaves them out of the message")
    def test_unused_parameters_have_zeros_and_frozen_ones_nothing(self):
        for found, plain in on_ranks(2, unused):
            spare = [found.pop(f"spare.{name}") for name in ("weight", "bias")]
            self.assertFalse(any(one.any() for one in spare))
            self.assert_same(found, plain)
            self.assertNotIn("blocks.0.up.weight", found)

    def test_a_factor_that_gradients_are_divided_by(self):
        for found, plain in on_ranks(2, divided):
            self.assert_same(found, plain)

    def test_what_is_not_finite_arrives_as_nan_on_all_ranks(self):
        for values, skipped in on_ranks(2, not_finite):
            self.assertEqual(values, [True] * len(values))
            self.assertTrue(skipped)

    def test_gradients_that_need_their_scale_in_float16_keep_it(self):
        for plain, ours in on_ranks(2, tiny_in_float16):
            self.assertLess(plain, 0.1)
            self.assertLess(ours, plain + 0.01)

    def test_memories_are_kept_without_the_scale_of_a_scaler(self):
        for plain, scaled_back in on_ranks(2, scaled):
            self.assert_same(scaled_back, plain)

    def test_rules_are_by_the_names_of_parameters(self):
        for modules, described in on_ranks(2, by_rules):
            self.assertEqual(described, "ShardsLink('fp32', 21 parameters)")
            for i in range(2):
                codecs = modules[f"blocks.{i}.norm.weight"]
                self.assertEqual(sorted(codecs), ["fp32", "int8"])

    def test_a_module_has_one_link(self):
        for part_first, whole_first, apart in on_ranks(2, overlapping):
            self.assertRegex(part_first, "ContractError: compress: module 'blocks.0' has a link already")
            self.assertRegex(whole_first, "ContractError: compress: this model has a link already")
            self.assertEqual(apart, "none")

    def test_mistakes_are_named(self):
        for found in on_ranks(2, mistakes):
            for text, part in zip(found, MISTAKES, strict=True):
                self.assertIn(part, text)


if __name__ == "__main__":
    unittest.main()
