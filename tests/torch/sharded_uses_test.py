"""A link between replicas beside what else FSDP2 can do: gradients are those of HSDP without a link.
SPDX-License-Identifier: Apache-2.0"""
import functools
import unittest

import torch
from torch import nn

from gpts import (
    WIDTH, Block, Gpt, gradients_of, loss_of, make_checkpointed, make_compiled, make_gpt, mesh_of, needs_2_13,
    sharded, train, with_communication, without_communication)
from ranks import on_ranks


def both(rank, passes, make=make_gpt, **settings):
    """The gradients after `passes`(model) of HSDP without a link, and of one with a link that loses nothing."""
    import thinwire.torch as tw
    mesh = mesh_of(2, 2)
    plain = sharded(make(), mesh, **settings)
    model = sharded(make(), mesh["shard"], **settings)
    link = tw.compress(model, "fp32", replicate=mesh["replicate"])
    for one in (plain, model):
        passes(one, rank)
    return gradients_of(model), gradients_of(plain), link.metrics()


def once(model, rank):
    loss_of(model, 0, rank).backward()


def precisions(rank, size):
    from torch.distributed.fsdp import MixedPrecisionPolicy
    return [both(rank, once, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced))[:2]
            for reduced in (torch.float32, torch.bfloat16, torch.float16)]


def precision_of_parameters(rank, size):
    return both(rank, once, make=lambda: make_gpt().to(torch.bfloat16))


def resharding(rank, size):
    found = []
    for after_forward in (True, False):
        def passes(model, rank):
            with torch.no_grad():
                loss_of(model, 7, rank)
            for step in range(2):
                model.zero_grad()
                loss_of(model, step, rank).backward()
        found.append(both(rank, passes, reshard_after_forward=after_forward)[:2])
    return found


def after_evaluation(rank, size):
    """fully_shard leaves the outermost module unsharded after a forward pass."""
    import thinwire.torch as tw
    mesh = mesh_of(2, 2)
    model = sharded(make_gpt(), mesh["shard"])
    with torch.no_grad():
        loss_of(model, 0, rank)
    link = tw.compress(model, "fp32", replicate=mesh["replicate"])
    once(model, rank)
    return len(gradients_of(model)), link.metrics()["step"]


def accumulated(rank, size):
    def over_zeros(model, rank):
        loss_of(model, 0, rank).backward()
        model.zero_grad(set_to_none=False)
        loss_of(model, 1, rank).backward()

    return [both(rank, passes) for passes in (without_communication, with_communication, over_zeros)]


def checkpointed(rank, size):
    return [both(rank, once, make=functools.partial(make_checkpointed, reentrant)) for reentrant in (False, True)]


def compiled(rank, size):
    return both(rank, once, make=make_compiled)


class Gated(Block):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 1, bias=False)

    def forward(self, x):
        return super().forward(x) * self.gate(x)


class Choosing(Gpt):
    """Has a layer that nobody uses, and a block that is used only if it is told so. A weight of the block has one
    row, which is in the first of its shards."""

    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(3, 5)
        self.blocks[1] = Gated()
        self.uses_block = True

    def forward(self, tokens):
        x = self.blocks[0](self.embedding(tokens))
        if self.uses_block:
            x = self.blocks[1](x)
        return self.head(x).clone()


def make_choosing():
    torch.manual_seed(1)
    return Choosing()


def unused(rank, size):
    return both(rank, once, make=make_choosing)


def used_by_one_replica(rank, size):
    import thinwire.torch as tw
    mesh = mesh_of(2, 2)
    found = []
    for both_use_it in (True, False):
        model = sharded(make_choosing(), mesh["shard"])
        tw.compress(model, "fp32", replicate=mesh["replicate"])
        model.uses_block = both_use_it or rank < 2
        loss_of(model, 0, rank % 2).backward()  # the same tokens in both replicas
        found.append({name: one for name, one in gradients_of(model).items() if name.startswith("blocks.1.")})
    return found


def owed_to_an_unused_block(rank, size):
    """What a memory keeps of a block arrives when no replica uses the block, on all ranks or on none."""
    import thinwire.torch as tw
    mesh = mesh_of(2, 2)
    model = sharded(make_choosing(), mesh["shard"])
    tw.compress(model, "topk:density=0.1", replicate=mesh["replicate"])
    once(model, rank)
    model.zero_grad()
    model.uses_block = False
    once(model, rank)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9)  # talks about every gradient that is there
    found = gradients_of(model)
    return [name for name in found if name.startswith(("blocks.1.", "spare"))], norm.full_tensor().item()


def divided(rank, size):
    """By 8 in the end: HSDP is told so, and inside two replicas it is 4."""
    def passes(model, rank):
        replicated = model.head.weight.device_mesh.ndim == 2
        for module in (model, *model.blocks):
            module.set_gradient_divide_factor(8.0 if replicated else 4.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no other way, and FSDP2 divides afterwards
        once(model, rank)
    return both(rank, passes)


def clipped(rank, size):
    def passes(model, rank):
        once(model, rank)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return both(rank, passes)


class Twice(Gpt):
    """Runs every block twice."""

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in [*self.blocks, *self.blocks]:
            x = block(x)
        return self.head(x).clone()


def make_twice():
    torch.manual_seed(1)
    return Twice()


def twice(rank, size):
    return both(rank, once, make=make_twice)


def second_gradient(rank, size):
    """FSDP2 would add it to memory that thinwire is sending. No model that was tried has one; a hook pretends it."""
    import thinwire
    import thinwire.torch as tw
    mesh = mesh_of(2, 2)
    model = sharded(make_gpt(), mesh["shard"])
    link = tw.compress(model, "fp32", replicate=mesh["replicate"])
    model.head.bias.register_post_accumulate_grad_hook(link._take)
    found = []
    for _ in range(2):
        try:
            once(model, rank)
        except thinwire.Error as error:
            found.append(str(error))
    return found


def failing(rank, size, block):
    """A backward pass that ends with an error of the script's own: behind the last block, before anything was sent; behind the
    first one, when some gradients were."""
    import thinwire.torch as tw
    mesh = mesh_of(2, 2)
    model = sharded(make_gpt(), mesh["shard"])
    tw.compress(model, "fp32", replicate=mesh["replicate"])

    def fail(_):
        raise ValueError("of the script")

    found = []
    for _ in range(2):
        handle = model.blocks[block].register_forward_hook(lambda *those: those[2].register_hook(fail) and None)
        try:
            once(model, rank)
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
        handle.remove()
    return found


def unfrozen(rank, size):
    import thinwire
    import thinwire.torch as tw
    mesh = mesh_of(2, 2)
    model = make_gpt()
    model.embedding.weight.requires_grad_(False)
    model = sharded(model, mesh["shard"])
    tw.compress(model, "fp32", replicate=mesh["replicate"])
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, 1)
    model.embedding.weight.requires_grad_(True)
    try:
        once(model, rank)
    except thinwire.Error as error:
        return str(error)


class Uses(unittest.TestCase):
    def assert_same(self, found, plain, tolerance=1e-5):
        self.assertEqual(list(found), list(plain))
        for name, one in found.items():
            self.assertEqual(one.dtype, plain[name].dtype)
            torch.testing.assert_close(one, plain[name], rtol=tolerance, atol=tolerance, msg=name)

    def test_mixed_precision(self):
        for exact, *reduced in on_ranks(4, precisions):
            self.assert_same(*exact)
            for found, plain in reduced:  # the link adds in float32, HSDP in the reduce dtype
                self.assert_same(found, plain, tolerance=2e-2)

    def test_parameters_in_bfloat16(self):
        for found, plain, _ in on_ranks(4, precision_of_parameters):
            self.assert_same(found, plain, tolerance=2e-2)

    def test_reshard_after_forward(self):
        for variants in on_ranks(4, resharding):
            for found, plain in variants:
                self.assert_same(found, plain)

    def test_a_link_made_after_an_evaluation(self):
        self.assertEqual(on_ranks(4, after_evaluation), [(21, 1)] * 4)

    def test_accumulated_gradients(self):
        for variants in on_ranks(4, accumulated):
            for (found, plain, metrics), steps in zip(variants, (1, 3, 2), strict=True):
                self.assert_same(found, plain)
                self.assertEqual(metrics["step"], steps)

    def test_activation_checkpointing(self):
        for variants in on_ranks(4, checkpointed):
            for found, plain, metrics in variants:
                self.assert_same(found, plain)
                self.assertEqual(metrics["step"], 1)

    def test_compiled_blocks(self):
        for found, plain, _ in on_ranks(4, compiled):
            self.assert_same(found, plain)

    def test_parameters_that_nobody_uses_have_no_gradient(self):
        for found, plain, _ in on_ranks(4, unused):
            self.assert_same(found, plain)
            self.assertNotIn("spare.weight", found)

    def test_a_block_that_one_replica_uses_counts_as_zeros_in_the_other(self):
        for full, half in on_ranks(4, used_by_one_replica):
            self.assertEqual(len(full), 10)
            self.assert_same({name: 2 * one for name, one in half.items()}, full)

    def test_what_is_owed_to_an_unused_block_arrives(self):
        found = on_ranks(4, owed_to_an_unused_block)
        for names, norm in found:
            self.assertIn("blocks.1.gate.weight", names)
            self.assertNotIn("spare.weight", names)
            self.assertEqual((names, norm), found[0])

    def test_a_factor_that_gradients_are_divided_by(self):
        for found, plain, _ in on_ranks(4, divided):
            self.assert_same(found, plain)

    def test_clipping_by_the_norm(self):
        for found, plain, _ in on_ranks(4, clipped):
            self.assert_same(found, plain)

    def test_blocks_that_run_twice(self):
        for found, plain, _ in on_ranks(4, twice):
            self.assert_same(found, plain)

    @needs_2_13("cannot run the model again after a backward pass that failed")
    def test_a_second_gradient_in_one_backward_pass_ends_the_link(self):
        for found in on_ranks(4, second_gradient):
            self.assertEqual(len(found), 2)
            self.assertIn("'head.bias' got a second gradient in one backward pass", found[0])
            self.assertIn(f"the link ended in step 0, by UnsupportedError: {found[0]}", found[1])

    @needs_2_13("cannot run the model again after a backward pass that failed")
    def test_a_backward_pass_that_fails_ends_the_link(self):
        for block in (0, 1):
            for found in on_ranks(4, failing, block):
                self.assertEqual(found[0], "ValueError: of the script")
                self.assertIn("ContractError: a backward pass ended with an error", found[1])

    def test_an_unfrozen_parameter_is_refused(self):
        for text in on_ranks(4, unfrozen):
            self.assertIn("'embedding.weight' were frozen, or other parameters", text)


if __name__ == "__main__":
    unittest.main()
