"""What sums over ranks draw at random: the same again where activations are computed again, after evaluation and after a
resume. SPDX-License-Identifier: Apache-2.0"""
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.utils.checkpoint import checkpoint

import thinwire.errors
import thinwire.torch as tw
from ranks import on_ranks

WIDTH = 16
RANDOM = ("qsgd", "natural", "randomk:density=0.25", "srht:density=0.25", "uniform:bits=3,rounding=random", "terngrad")


def batch(number):
    return torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(number))


class Block(nn.Module):
    """Two sums over ranks and one of their gradients, by one object that all blocks share."""

    def __init__(self, tp):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH, bias=False)
        self.tp, self.sums = tp, []

    def forward(self, x):
        total = self.tp.reduce_from_ranks(self.second(torch.relu(self.first(self.tp.copy_to_ranks(x)))))
        self.sums.append(total.detach().clone())
        return x + total.tanh()  # of which the backward pass wants to know the sum


def network(tp, rank):
    torch.manual_seed(20 + rank)
    return [Block(tp) for _ in range(3)]


def gradients(tp, rank, again):
    """Of two micro-batches, both forward and then both backward, and what the blocks gave, in the order of calls."""
    blocks = network(tp, rank)
    losses = []
    for number in range(2):
        x = batch(number).requires_grad_()
        for block in blocks:
            x = block(x) if again is None else checkpoint(block, x, use_reentrant=again)
        losses.append(x.square().sum())
    first = [one for block in blocks for one in block.sums]
    for block in blocks:
        block.sums.clear()
    for loss in losses:
        loss.backward()
    second = [one for block in blocks for one in block.sums]
    return [one.grad for block in blocks for one in block.parameters()], first, second


def checkpointed(rank, size, codec):
    return [gradients(tw.TensorParallel(codec, index=0), rank, again) for again in (None, False, True)]


def trained(tp, rank, steps, evaluates=False, blocks=None):
    blocks = blocks or network(tp, rank)
    for block in blocks:
        block.tp = tp
    optimizer = torch.optim.SGD([one for block in blocks for one in block.parameters()], lr=0.05)
    losses = []
    for step in steps:
        x = batch(step)
        for block in blocks:
            x = block(x)
        loss = x.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tp.step()
        losses.append(loss.item())
        if evaluates:
            with torch.no_grad():
                blocks[0](batch(90))
                blocks[1](batch(91)[:4])
    return losses, blocks


def evaluated(rank, size):
    return [trained(tw.TensorParallel("qsgd", index=3), rank, range(4), evaluates)[0] for evaluates in (False, True)]


def resumed(rank, size):
    whole, _ = trained(tw.TensorParallel("qsgd:levels=4"), rank, range(6))
    other = tw.TensorParallel("qsgd:levels=4", index=0)
    losses, blocks = trained(other, rank, range(3))
    saved = other.state_dict()
    new = tw.TensorParallel("qsgd:levels=4")
    new.load_state_dict(saved)
    rest, _ = trained(new, rank, range(3, 6), blocks=blocks)
    return whole, losses + rest, saved, new.state_dict()


def by_torch_checkpoint(rank, size, folder):
    saver, loader = tw.TensorParallel("qsgd"), tw.TensorParallel("qsgd")
    for _ in range(5):
        saver.step()
    dcp.save({"tp": saver}, checkpoint_id=folder)
    dcp.load({"tp": loader}, checkpoint_id=folder)
    return saver.state_dict(), loader.state_dict()


def drawn(rank, size):
    """Sums of equal values, by objects with the default index, with the same index, in another step and with a seed."""
    values = batch(5)
    arguments = ({}, {}, {"index": 0}, {"index": 0, "seed": 1})
    one, two, again, seeded = (tw.TensorParallel("qsgd:levels=2", **given) for given in arguments)
    sums = [tp.reduce_from_ranks(values) for tp in (one, two, again, seeded, one)]
    one.step()
    sums.append(one.reduce_from_ranks(values))
    group = dist.new_group([0, 1])
    other = tw.TensorParallel(process_group=group)
    return sums, [tp.state_dict()["index"] for tp in (one, two, again, other)]


def unbiased(rank, size):
    """The mean error of many sums, none of which has the values of another, and that of one."""
    tp = tw.TensorParallel("qsgd:levels=2")
    errors = []
    for number in range(400):
        values = torch.linspace(-1, 1, 64).view(1, 64) + 1e-5 * number
        errors.append(tp.reduce_from_ranks(values) - size * values)
    return torch.stack(errors).mean(0).abs().mean(), errors[0].abs().mean()


def follows_schedule(rank, size):
    tp = tw.TensorParallel("fp32 | 2steps: topk:density=0.25")
    kept = []
    for _ in range(4):
        for _ in range(2):
            kept.append(tp.reduce_from_ranks(batch(1)).count_nonzero().item())
        tp.step()
    return kept


HOSTILE = ([], None, {}, {"step": 3}, {"index": 0, "step": 3, "more": 1}, {"index": 0, "step": -1}, {"index": 0, "step": True},
           {"index": 0, "step": 1.0}, {"index": 0, "step": "3"}, {"index": 0, "step": None}, {"index": 0, "step": 2**48},
           {"index": -1, "step": 3}, {"index": 2**31, "step": 3}, {"index": 4, "step": 3}, {"index": 0, "step": torch.tensor(3)})


def hostile(rank, size):
    tp = tw.TensorParallel("qsgd", index=0)
    tp.load_state_dict({"index": 0, "step": 7})
    found = []
    for state in HOSTILE:
        try:
            tp.load_state_dict(state)
            found.append("loaded")
        except thinwire.errors.Error as error:
            found.append(f"{type(error).__name__}: {error}")
    return found, tp.state_dict()


def loaded_on_one_rank(rank, size):
    tp = tw.TensorParallel("qsgd")
    if rank == 1:
        tp.load_state_dict({"index": 0, "step": 7})
    try:
        tp.reduce_from_ranks(batch(1))
    except thinwire.errors.MismatchError as error:
        return str(error)


class TensorParallelDraws(unittest.TestCase):
    def test_checkpointing_has_the_bits_of_the_pass_that_it_repeats(self):
        for codec in RANDOM:
            for plain, anew, reentrant in on_ranks(2, checkpointed, codec):
                for found, first, second in (anew, reentrant):
                    self.assertEqual(len(second), len(first), codec)
                    self.assertTrue(all(map(torch.equal, first, plain[1])), codec)
                    for one in second:
                        self.assertTrue(any(torch.equal(one, other) for other in first), codec)
                    self.assertTrue(all(map(torch.equal, found, plain[0])), codec)

    def test_evaluation_changes_no_later_bit(self):
        for without, evaluates in on_ranks(2, evaluated):
            self.assertEqual(without, evaluates)

    def test_a_resumed_run_draws_what_one_that_never_stopped_draws(self):
        for whole, parts, saved, loaded in on_ranks(2, resumed):
            self.assertEqual(whole, parts)
            self.assertEqual(saved, {"index": 0, "step": 3})
            self.assertEqual(loaded, {"index": 0, "step": 6})

    def test_torch_saves_and_loads_the_object_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            for saved, loaded in on_ranks(2, by_torch_checkpoint, folder):
                self.assertEqual(saved, {"index": 0, "step": 5})
                self.assertEqual(loaded, saved)

    def test_objects_steps_and_seeds_draw_numbers_of_their_own(self):
        for sums, indices in on_ranks(2, drawn):
            one, two, again, seeded, repeated, next_step = sums
            self.assertTrue(torch.equal(one, again))
            self.assertTrue(torch.equal(one, repeated))
            for other in (two, seeded, next_step):
                self.assertFalse(torch.equal(one, other))
            self.assertEqual(indices, [0, 1, 0, 0])

    def test_values_that_differ_draw_independent_numbers(self):
        for mean, one in on_ranks(2, unbiased):
            self.assertLess(mean, one / 8)  # of 400 independent errors: one / 20

    def test_schedules_count_steps(self):
        values = 6 * WIDTH
        for kept in on_ranks(2, follows_schedule):
            self.assertEqual(kept, [values] * 4 + [values // 4] * 4)

    def test_hostile_states_are_refused(self):
        for found, state in on_ranks(2, hostile):
            for text in found:
                self.assertIn("Error: TensorParallel", text)
            self.assertEqual(state, {"index": 0, "step": 7})

    def test_ranks_in_different_steps_say_so(self):
        said, other = on_ranks(2, loaded_on_one_rank)
        self.assertEqual(said, other)
        self.assertIn("'step': 0 on rank 0; 7 on rank 1", said)


if __name__ == "__main__":
    unittest.main()
