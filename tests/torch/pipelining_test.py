"""Boundaries in torch.distributed.pipelining. SPDX-License-Identifier: Apache-2.0"""
import unittest

import torch
from torch import nn

import thinwire.errors
from boundary_test import SAMPLES, SETTINGS, WIDTH, alone, ids_of, stages
from nets import batch_of, weights_of
from ranks import on_ranks

PARTS, STEPS = 2, 4


def whole_batch(step):
    parts = [batch_of(step % 2, part) for part in range(PARTS)]
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


def share_of_loss(logits, labels):
    return nn.functional.cross_entropy(logits, labels) / PARTS


def run(rank, kind, stage, boundaries=()):
    """Trains one stage or several; weights, and what the last stage says of a batch."""
    from torch.distributed import pipelining
    several = isinstance(stage, list)
    modules = nn.ModuleList(one.submod for one in (stage if several else [stage]))
    schedule = getattr(pipelining, kind)(stage, PARTS, loss_fn=share_of_loss, scale_grads=False)
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.1)

    def first(images):
        return [images] if rank == 0 else []

    for step in range(STEPS):
        images, labels = whole_batch(step)
        for one in stage if several else [stage]:
            if hasattr(one, "set_samples"):
                one.set_samples([i for part in range(PARTS) for i in ids_of(step, part)])
        optimizer.zero_grad()
        losses = []
        schedule.step(*first(images), target=None if rank == 0 else labels, losses=losses)
        optimizer.step()
        for boundary in boundaries:
            boundary.step()
    images, labels = whole_batch(1)
    seen = schedule.eval(*first(images), target=None if rank == 0 else labels, losses=[])
    return weights_of(modules), seen, [boundary.metrics() for boundary in boundaries]


def against_torch(rank, size, kinds):
    import thinwire.torch as tw
    from thinwire.torch.pipelining import PipelineStage
    from torch.distributed import pipelining
    found = []
    for kind in kinds:
        theirs = run(rank, kind, pipelining.PipelineStage(stages()[rank], rank, 2, torch.device("cpu")))
        boundary = tw.Boundary([WIDTH], SAMPLES, micro_batches=PARTS,
                               **({"to_rank": 1} if rank == 0 else {"from_rank": 0}))
        side = {"after": boundary} if rank == 0 else {"before": boundary}
        ours = run(rank, kind, PipelineStage(stages()[rank], rank, 2, torch.device("cpu"), **side), [boundary])
        found.append((torch.equal(theirs[0], ours[0]), rank == 0 or torch.equal(theirs[1], ours[1])))
    return found


def compressed(rank, size, settings, kind):
    import thinwire.torch as tw
    from thinwire.torch.pipelining import PipelineStage
    found = []
    for one in settings:
        boundary = tw.Boundary([WIDTH], SAMPLES, micro_batches=PARTS,
                               **({"to_rank": 1} if rank == 0 else {"from_rank": 0}), **one)
        stage = PipelineStage(stages()[rank], rank, 2, torch.device("cpu"),
                              **({"after": boundary} if rank == 0 else {"before": boundary}))
        asked = []  # what torch would have to carry itself
        for name in ("get_fwd_send_ops", "get_fwd_recv_ops", "get_bwd_send_ops", "get_bwd_recv_ops"):
            def ask(chunk, own=getattr(stage, name)):
                asked.extend(own(chunk))
                return []
            setattr(stage, name, ask)
        weights, seen, metrics = run(rank, kind, stage, [boundary])
        found.append((weights, seen, metrics[0], len(asked)))
    return found


def four_stages(rank, size, codec):
    """Two on each rank, so that both ranks send and receive in either direction."""
    import thinwire.torch as tw
    from thinwire.torch.pipelining import PipelineStage
    torch.manual_seed(6)
    layers = [nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU()), nn.Linear(WIDTH, WIDTH),
              nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH)), nn.Linear(WIDTH, 4)]
    mine, boundaries = [], []
    for number in range(4):
        if number % 2 != rank:
            continue
        sides = {}
        for side, other, cut in (("before", "from_rank", number - 1), ("after", "to_rank", number)):
            if 0 <= cut < 3 and codec is not None:
                sides[side] = tw.Boundary([WIDTH], SAMPLES, micro_batches=PARTS, codec=codec, index=cut,
                                          **{other: 1 - rank})
                boundaries.append(sides[side])
        mine.append(PipelineStage(layers[number], number, 4, torch.device("cpu"), **sides))
    return run(rank, "ScheduleInterleaved1F1B", mine, boundaries)[0]


class TwoOutputs(nn.Module):
    def forward(self, images):
        return images.flatten(1)[:, :WIDTH] * 1.0, images.flatten(1)[:, :WIDTH] * 2.0


def mistakes(rank, size):
    import thinwire.torch as tw
    from thinwire.torch.pipelining import PipelineStage
    found = []
    if rank > 0:  # all ranks of a group build their first boundary together
        tw.Boundary([WIDTH], SAMPLES, from_rank=0)
        return found

    def stage(module=None, **sides):
        return PipelineStage(module or stages()[0], 0, size, torch.device("cpu"), **sides)

    def expect(action):
        try:
            action()
        except thinwire.errors.ContractError as error:
            found.append(str(error))

    to_other = tw.Boundary([WIDTH], SAMPLES, to_rank=1)
    expect(lambda: stage(after=tw.Boundary([WIDTH], SAMPLES)))
    expect(lambda: stage(before=to_other))
    expect(lambda: stage(before=tw.Boundary([WIDTH], SAMPLES, from_rank=1)))
    for module, boundary in ((None, tw.Boundary([WIDTH], SAMPLES, to_rank=2)), (TwoOutputs(), to_other)):
        one = stage(module, after=boundary)
        one.chunks = 1
        one._stage_meta.inputs = ()
        one.forward_one_chunk(0, (torch.zeros(SAMPLES, 1, 8, 8),))
        expect(lambda: one.get_fwd_send_ops(0))
    return found


class Pipelining(unittest.TestCase):
    def test_fp32_is_torchs_own_stage_bit_for_bit(self):
        kinds = ("ScheduleGPipe", "Schedule1F1B")
        for found in on_ranks(2, against_torch, kinds):
            self.assertEqual(found, [(True, True)] * len(kinds))

    def test_compressed_it_is_the_layer_in_one_process(self):
        for kind in ("ScheduleGPipe", "Schedule1F1B"):
            first, second = on_ranks(2, compressed, SETTINGS, kind)
            for settings, front, back in zip(SETTINGS, first, second):
                _, boundary, halves = alone(settings, STEPS, PARTS)
                for half, (weights, _, metrics, asked) in zip(halves, (front, back)):
                    self.assertTrue(torch.equal(weights, weights_of(half)), settings)
                    self.assertEqual((metrics["steps"], asked), (STEPS, 0))
                self.assertEqual(front[2]["forward_bytes"], boundary.metrics()["forward_bytes"])
                self.assertEqual(back[2]["backward_bytes"], boundary.metrics()["backward_bytes"])
                with torch.no_grad():  # and in eval nothing is compressed
                    self.assertTrue(torch.equal(back[1], halves[1](halves[0](whole_batch(1)[0]))))

    def test_several_stages_on_a_rank(self):
        plain, fp32, small = (on_ranks(2, four_stages, codec) for codec in (None, "fp32", "int8"))
        for one, other, third in zip(plain, fp32, small):
            self.assertTrue(torch.equal(one, other))
            self.assertFalse(torch.equal(one, third))
            self.assertLess((one - third).abs().max().item(), 0.05)

    def test_mistakes_are_explained(self):
        found, *_ = on_ranks(3, mistakes)
        self.assertEqual(len(found), 5, found)
        for text, error in zip(("with to_rank", "with from_rank", "no stage beyond stage 0",
                                "stage 1 is on rank 1", "2 tensors as its output"), found):
            self.assertIn(text, error)


if __name__ == "__main__":
    unittest.main()
