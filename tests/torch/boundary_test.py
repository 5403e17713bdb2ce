"""Stages of a pipeline, in one process and between ranks. SPDX-License-Identifier: Apache-2.0"""
import math
import os
import time
import unittest

import torch
from torch import nn

import thinwire.errors
import thinwire.torch as tw
from nets import batch_of
from ranks import on_ranks
from states import content

SAMPLES, WIDTH = 8, 32


def stages():
    torch.manual_seed(4)
    return (nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU()),
            nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, 4)))


SETTINGS = (
    {},
    {"codec": "uniform:bits=8,block=tensor", "per_sample": True},
    {"codec": "topk:density=0.25", "memory": "ef", "gradient_codec": "fp16"},
    {"codec": "topk:density=0.25", "memory": "efmixed:density=0.25", "gradient_codec": "int8"},
    {"codec": "int8", "memory": "ef21", "gradient_memory": "ef21"},
    {"codec": "uniform:bits=4,block=tensor", "memory": "aqsgd:key=sample", "gradient_codec": "int8"},
    {"codec": "topk:density=0.25", "at_positions": True, "gradient_codec": "fp16"},
)
# Encoders that remember, from a step on.
SCHEDULES = ({"codec": "fp32 | 2: sidco:density=0.1", "steps_per_epoch": 1},
             {"codec": "topk:density=0.25 | 2: redsync:density=0.1", "steps_per_epoch": 1})


def ids_of(step, part):
    return range(SAMPLES * part, SAMPLES * (part + 1))


def alone(settings, steps=4, parts=2, boundary=None, halves=None, first=0):
    """Both stages in one process."""
    front, back = halves or stages()
    if boundary is None and settings is not None:
        boundary = tw.Boundary([WIDTH], SAMPLES, micro_batches=parts, **settings)
    optimizer = torch.optim.SGD([*front.parameters(), *back.parameters()], lr=0.1)
    losses = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        for part in range(parts):
            images, labels = batch_of(step % 2, part)
            hidden = front(images)
            if boundary is not None:
                hidden = boundary(hidden, ids=ids_of(step, part))
            loss = nn.functional.cross_entropy(back(hidden), labels) / parts
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        if boundary is not None:
            boundary.step()
    return losses, boundary, (front, back)


def between_ranks(rank, size, settings, steps, parts):
    found = []
    for one in settings:
        stage = stages()[rank]
        side = {"to_rank": 1} if rank == 0 else {"from_rank": 0}
        boundary = tw.Boundary([WIDTH], SAMPLES, micro_batches=parts, **side, **one)
        optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
        losses = []
        for step in range(steps):
            optimizer.zero_grad()
            tokens = []
            for part in range(parts):  # all forward, then all backward
                images, labels = batch_of(step % 2, part)
                if rank == 0:
                    tokens.append(boundary.send(stage(images), ids=ids_of(step, part)))
                else:
                    hidden = boundary.receive(ids=ids_of(step, part))
                    tokens.append(nn.functional.cross_entropy(stage(hidden), labels) / parts)
                    losses.append(tokens[-1].item())
            for token in tokens:
                token.backward()
            optimizer.step()
            boundary.step()
        boundary.eval()
        images, _ = batch_of(9, 0)
        with torch.no_grad():
            seen = boundary.send(stage(images)) if rank == 0 else boundary.receive()
            own = stage(images) if rank == 0 else seen
        found.append((losses, own, boundary.metrics()))
    return found


def saved(boundary):
    return content(boundary.get_extra_state())["ends"]


def is_left(rank, size):
    boundary = tw.Boundary([4], 2, **({"to_rank": 1} if rank == 0 else {"from_rank": 0}),
                           deadline_seconds=20)
    if rank == 0:
        os._exit(0)
    try:
        boundary.receive()
    except Exception as error:
        return str(error)
    return "nobody noticed"


class InOneProcess(unittest.TestCase):
    def test_fp32_changes_nothing(self):
        self.assertEqual(alone({})[0], alone(None)[0])

    def test_what_crosses_is_what_the_codec_makes_of_it(self):
        boundary = tw.Boundary([WIDTH], SAMPLES, codec="topk:density=0.25", per_sample=True,
                               gradient_codec="fp16")
        values = torch.randn(SAMPLES, WIDTH, requires_grad=True)
        arrived = boundary(values)
        kept = values.abs().topk(WIDTH // 4, dim=1).indices
        expected = torch.zeros_like(values).scatter(1, kept, values.detach().gather(1, kept))
        self.assertTrue(torch.equal(arrived, expected))
        gradient = torch.randn(SAMPLES, WIDTH)
        arrived.backward(gradient)  # straight through, in fp16
        self.assertTrue(torch.equal(values.grad, gradient.half().float()))
        self.assertLess(boundary.metrics()["forward_bytes"], 4 * values.numel() // 2)

    def test_gradients_travel_where_activations_were_kept(self):
        boundary = tw.Boundary([WIDTH], SAMPLES, codec="topk:density=0.25", gradient_codec="fp32",
                               at_positions=True)
        values = torch.randn(SAMPLES, WIDTH, requires_grad=True)
        arrived = boundary(values)
        gradient = torch.randn(SAMPLES, WIDTH)
        arrived.backward(gradient)
        self.assertTrue(torch.equal(values.grad, gradient * (arrived != 0)))

    def test_every_memory_learns_and_changes_what_arrives(self):
        plain = alone(None)[0]
        for settings in SETTINGS[1:]:
            losses = alone(settings, steps=12)[0]
            self.assertTrue(all(map(math.isfinite, losses)), settings)
            self.assertNotEqual(losses[:8], plain, settings)
            self.assertLess(sum(losses[-4:]), sum(losses[:4]), settings)

    def test_inference_leaves_memories_alone(self):
        for at_inference in (False, True):
            settings = {"codec": "int8", "memory": "ef21", "at_inference": at_inference}
            _, boundary, _ = alone(settings)
            before = saved(boundary)
            boundary.eval()
            values = torch.randn(3, WIDTH)
            self.assertEqual(torch.equal(boundary(values), values), not at_inference)
            self.assertTrue(all(map(torch.equal, before, saved(boundary))))

    def test_inference_has_the_codec_of_the_training_step(self):
        settings = {"codec": "fp32 | 2: topk:density=0.25", "steps_per_epoch": 1, "per_sample": True, "at_inference": True}
        boundary, kept = tw.Boundary([WIDTH], SAMPLES, **settings), []
        for _ in range(4):
            boundary.eval()
            for _ in range(3):
                kept.append(int((boundary(torch.rand(SAMPLES, WIDTH) + 1) != 0).sum()))
            boundary.train()
            boundary(torch.rand(SAMPLES, WIDTH))
            boundary.step()
        self.assertEqual(kept, 6 * [SAMPLES * WIDTH] + 6 * [SAMPLES * WIDTH // 4])
        again = tw.Boundary([WIDTH], SAMPLES, **settings).eval()
        again.load_state_dict(boundary.state_dict())
        self.assertEqual(int((again(torch.rand(SAMPLES, WIDTH) + 1) != 0).sum()), kept[-1])

    def test_a_saved_module_continues_bit_for_bit(self):
        for settings in (*SETTINGS, *SCHEDULES):
            straight = alone(settings, steps=6)[0]
            _, boundary, halves = alone(settings, steps=3)
            module = nn.ModuleDict({"boundary": boundary})
            again = nn.ModuleDict({"boundary": tw.Boundary([WIDTH], SAMPLES, micro_batches=2, **settings)})
            again.load_state_dict(module.state_dict())
            rest = alone(settings, steps=3, boundary=again["boundary"], halves=halves, first=3)[0]
            self.assertEqual(rest, straight[6:], settings)

    def test_a_value_that_is_not_finite_arrives_as_nan_and_leaves_memories(self):
        boundary = tw.Boundary([WIDTH], SAMPLES, codec="int8", memory="ef21")
        values = torch.randn(SAMPLES, WIDTH)
        boundary(values)
        boundary.step()
        before = saved(boundary)
        arrived = boundary(values.masked_fill(values > 2, math.inf) * math.inf)
        self.assertTrue(arrived.isnan().all())
        boundary.step()
        self.assertTrue(all(map(torch.equal, before, saved(boundary))))
        boundary(values)
        boundary.step(skipped=True)
        self.assertTrue(all(map(torch.equal, before, saved(boundary))))
        boundary(values)
        boundary.step()
        self.assertFalse(all(map(torch.equal, before, saved(boundary))))

    def test_a_layer_may_swallow_what_is_not_finite(self):
        boundary = tw.Boundary([WIDTH], SAMPLES, codec="topk:density=0.25", gradient_codec="fp32", at_positions=True)
        values = torch.randn(SAMPLES, WIDTH)
        values[0, 0] = math.inf
        values.requires_grad_()
        boundary(values).nan_to_num().clamp(-5, 5).sum().backward()
        self.assertTrue(values.grad.isnan().all())
        boundary.step()

    def test_states_of_earlier_versions_load(self):
        for settings in SETTINGS[2:5]:
            _, boundary, _ = alone(settings, steps=3)
            again = tw.Boundary([WIDTH], SAMPLES, micro_batches=2, **settings)
            again.set_extra_state(content(boundary.get_extra_state()))
            self.assertTrue(all(map(torch.equal, saved(again), saved(boundary))))

    def test_mistakes_are_explained(self):
        for text, settings in (("known: ", {"codec": "nothing"}), ("memory", {"memory": "nothing"}),
                               ("to_rank or from_rank", {"to_rank": 0, "from_rank": 1})):
            with self.assertRaisesRegex(thinwire.errors.Error, text):
                tw.Boundary([WIDTH], SAMPLES, **settings)
        boundary = tw.Boundary([WIDTH], SAMPLES, memory="aqsgd:key=sample")
        with self.assertRaisesRegex(thinwire.errors.Error, "id"):
            boundary(torch.zeros(SAMPLES, WIDTH))
        with self.assertRaisesRegex(thinwire.errors.Error, "to_rank"):
            boundary.send(torch.zeros(SAMPLES, WIDTH))


class BetweenRanks(unittest.TestCase):
    def test_two_ranks_do_what_one_process_does(self):
        first, second = on_ranks(2, between_ranks, SETTINGS, 4, 2)  # each makes the same boundary several times
        for settings, sent, arrived in zip(SETTINGS, first, second):
            losses, boundary, _ = alone(settings)
            self.assertEqual(arrived[0], losses, settings)
            self.assertTrue(torch.equal(sent[1], arrived[1]), settings)
            self.assertEqual((sent[2]["steps"], arrived[2]["steps"]), (4, 4))
            self.assertEqual(sent[2]["forward_bytes"], boundary.metrics()["forward_bytes"])
            self.assertEqual(arrived[2]["backward_bytes"], boundary.metrics()["backward_bytes"])

    def test_a_lost_stage_is_named_in_time(self):
        began = time.monotonic()
        self.assertIn("rank 0", on_ranks(2, is_left, lost={0})[0])
        self.assertLess(time.monotonic() - began, 90)


if __name__ == "__main__":
    unittest.main()
