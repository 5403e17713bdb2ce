"""Boundaries after a stage failed, whose stages learn nothing, and that torch.distributed.checkpoint stores.
SPDX-License-Identifier: Apache-2.0"""
import pathlib
import tempfile
import time
import unittest

import torch
import torch.distributed as dist
from torch import nn

import thinwire.torch as tw
from ranks import error_of, on_ranks

PARTS, SAMPLES, WIDTH = 2, 2, 8


def cut(rank, **settings):
    side = {"to_rank": 1} if rank == 0 else {"from_rank": 0}
    return tw.Boundary([WIDTH], SAMPLES, micro_batches=PARTS, **side, **{"deadline_seconds": 20, **settings})


def value(step, part):
    return 10.0 * step + part


def pass_all(rank, boundary, step, fails_after=PARTS):
    """A step's micro-batches there and back: what arrived here."""
    found, ends = [], []
    for part in range(PARTS):
        if part == fails_after:
            raise RuntimeError("stage 1 has no memory left")
        if rank == 0:
            values = torch.full((SAMPLES, WIDTH), value(step, part), requires_grad=True)
            ends.append((boundary.send(values), values))
        else:
            ends.append((boundary.receive(), None))
            found.append(ends[-1][0][0, 0].item())
    for end, values in ends:
        if rank == 0:
            end.backward()
            found.append(values.grad[0, 0].item())
        else:
            (end * end[0, 0].detach()).sum().backward()
    return found


EXPECTED = [[value(step, part) for part in range(PARTS)] for step in range(4)]


def goes_on(rank, size, anew):
    """Stage 1 fails in step 1; both sides skip it, or make the boundary anew."""
    boundary, found = cut(rank, deadline_seconds=5), []
    for step in range(4):
        failed = error_of(lambda: found.append(
            pass_all(rank, boundary, step, fails_after=1 if step == 1 and rank == 1 else PARTS)))
        assert (failed != "nothing") == (step == 1), f"step {step}: {failed}"
        if failed != "nothing" and anew:
            boundary = cut(rank, deadline_seconds=5)
        else:
            boundary.step(skipped=failed != "nothing")
        dist.barrier()
    return found


def is_late(rank, size):
    """Stage 0 sends when stage 1 has given up; then both go on."""
    boundary = cut(rank, deadline_seconds=4)
    if rank == 0:
        dist.barrier()  # stage 1 has given up
        tokens = [boundary.send(torch.full((SAMPLES, WIDTH), 99.0, requires_grad=True)) for _ in range(PARTS)]
        said = error_of(tokens[0].backward)
    else:
        said = error_of(boundary.receive)
        dist.barrier()
    dist.barrier()  # so has stage 0, which has no answer
    boundary.step(skipped=True)
    return said, pass_all(rank, boundary, 1)


def is_made_twice(rank, size):
    boundary = cut(rank, deadline_seconds=10)
    if rank == 0:
        boundary = cut(rank, deadline_seconds=10)
        boundary.send(torch.zeros(SAMPLES, WIDTH))
        return ""
    return error_of(boundary.receive)


def three_stages(rank, size, deadlines):
    before = None if rank == 0 else tw.Boundary([WIDTH], SAMPLES, index=rank - 1, from_rank=rank - 1,
                                                deadline_seconds=deadlines[rank - 1])
    after = None if rank == 2 else tw.Boundary([WIDTH], SAMPLES, index=rank, to_rank=rank + 1, deadline_seconds=deadlines[rank])
    values = torch.ones(SAMPLES, WIDTH, requires_grad=True) if before is None else before.receive()
    end = (3 * values).sum() if after is None else after.send(2 * values)
    end.backward()
    return values.grad[0, 0].item() if rank == 0 else 0.0


def thaws(rank, size, settings):
    """The first stage learns from step 2 on. What it ends with, the losses behind the cut, and the bytes of gradients;
    of one process beside."""
    torch.manual_seed(3)
    front, back = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
    boundary = cut(rank, **settings) if size == 2 else tw.Boundary([WIDTH], SAMPLES, micro_batches=PARTS, **settings)
    optimizer = torch.optim.SGD([*front.parameters(), *back.parameters()], lr=0.1)
    losses = []
    for step in range(4):
        front.requires_grad_(step >= 2)
        optimizer.zero_grad()
        for part in range(PARTS):
            hidden = front(torch.full((SAMPLES, WIDTH), value(step, part) / 40)) if rank == 0 or size == 1 else None
            if size == 1:
                losses.append(back(boundary(hidden)).square().sum())
            elif rank == 0:
                losses.append(boundary.send(hidden))
            else:
                losses.append(back(boundary.receive()).square().sum())
            losses[-1].backward()
        optimizer.step()
        boundary.step()
    return [loss.item() for loss in losses], front.weight.detach(), boundary.metrics()["backward_bytes"]


def stored(rank, size, folder, settings):
    """Three steps, a checkpoint, and a step; then that step from the checkpoint, by new modules."""
    import torch.distributed.checkpoint as dcp

    def steps(boundary, first, last):
        found = []
        for step in range(first, last):
            torch.manual_seed(step)
            for part in range(PARTS):
                values = torch.randn(SAMPLES, WIDTH, requires_grad=True)
                end = boundary.send(values) if rank == 0 else boundary.receive()
                (end if rank == 0 else (end * torch.arange(WIDTH)).sum()).backward()
                found.append(values.grad if rank == 0 else end.detach())
            boundary.step()
        return torch.stack(found)

    module = nn.ModuleDict({"boundary": cut(rank, **settings)})
    steps(module["boundary"], 0, 3)
    dcp.save(module.state_dict(), checkpoint_id=folder)
    expected = steps(module["boundary"], 3, 4)
    again = nn.ModuleDict({"boundary": cut(rank, **settings)})
    state = again.state_dict()
    dcp.load(state, checkpoint_id=folder)
    again.load_state_dict(state)
    return torch.equal(steps(again["boundary"], 3, 4), expected)


class AfterAFailure(unittest.TestCase):
    def test_a_skipped_step_or_a_new_object_begins_with_messages_of_its_own(self):
        for anew in (False, True):
            sent, arrived = on_ranks(2, goes_on, anew)
            self.assertEqual(arrived, [EXPECTED[step] for step in (0, 2, 3)], anew)
            self.assertEqual(sent, arrived, anew)

    def test_a_message_that_came_too_late_is_not_that_of_the_next_step(self):
        (said, sent), (late, arrived) = on_ranks(2, is_late)
        self.assertIn("deadline", said)
        self.assertIn("deadline", late)
        self.assertEqual((sent, arrived), (EXPECTED[1], EXPECTED[1]))

    def test_a_side_that_made_its_boundary_anew_alone_is_named(self):
        said = on_ranks(2, is_made_twice)[1]
        self.assertRegex(said, "rank 0 has made this boundary 2 times, and this rank 1 times")

    def test_cuts_may_have_deadlines_of_their_own(self):
        began = time.monotonic()
        self.assertEqual(on_ranks(3, three_stages, (20, 25))[0], 12.0)
        self.assertLess(time.monotonic() - began, 20)


class OfOtherStages(unittest.TestCase):
    def test_a_first_stage_that_does_not_learn_gets_no_gradients(self):
        for settings in ({}, {"gradient_codec": "int8", "gradient_memory": "ef21"},
                         {"codec": "topk:density=0.25", "at_positions": True, "gradient_codec": "fp32"}):
            (_, front, _), (losses, _, sent) = on_ranks(2, thaws, settings)
            expected, weight, crossed = thaws(0, 1, settings)
            self.assertEqual(losses, expected, settings)
            self.assertEqual(sent, crossed, settings)
            self.assertTrue(torch.equal(front, weight), settings)

    def test_checkpoints_of_torch_distributed_keep_both_ends(self):
        for settings in ({"codec": "int8"}, {"codec": "topk:density=0.25", "memory": "ef"}, {"codec": "int8", "memory": "ef21"}):
            with tempfile.TemporaryDirectory() as folder:
                self.assertEqual(on_ranks(2, stored, str(pathlib.Path(folder) / "saved"), settings), [True, True], settings)


if __name__ == "__main__":
    unittest.main()
