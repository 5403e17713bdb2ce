"""Tests with the settings of DistributedDataParallel. SPDX-License-Identifier: Apache-2.0"""
import math
import tempfile
import unittest
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import batch_of, make_net, weights_of
from ranks import on_ranks
from states import memories_of


def take_step(model, optimizer, step, rank, scaler=None, spoil=False):
    images, labels = batch_of(step, rank)
    if spoil:
        images[0, 0, 0, 0] = math.inf
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05)


class Branches(nn.Module):
    """Uses one of two heads, by the step; the third is never used."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.trunk = nn.Linear(64, 8)
        self.heads = nn.ModuleList(nn.Linear(8, 4) for _ in range(3))
        self.turn = 0

    def forward(self, images):
        return self.heads[self.turn](torch.relu(self.trunk(images.flatten(1))))


def unused_parameters(rank, size):
    """Ranks use different heads in the same step."""
    import thinwire.torch as tw
    found = []
    for codec in (None, "fp32", "topk:density=0.1"):
        model = DistributedDataParallel(Branches(), find_unused_parameters=True)
        if codec:
            tw.compress(model, codec)
        optimizer = sgd(model)
        for step in range(4):
            model.module.turn = (step + rank) % 2
            take_step(model, optimizer, step, rank)
        found.append(weights_of(model))
    return (found[0] - found[1]).abs().max().item(), found[2]


def static_graph(rank, size):
    import thinwire.torch as tw
    found = []
    for codec in (None, "fp32"):
        model = DistributedDataParallel(make_net(), static_graph=True, bucket_cap_mb=0.01)
        if codec:
            tw.compress(model, codec)
        optimizer = sgd(model)
        for step in range(4):
            take_step(model, optimizer, step, rank)
        found.append(weights_of(model))
    return (found[0] - found[1]).abs().max().item()


def bfloat16(rank, size):
    """Gradients of bfloat16 meet as float32 and are rounded once."""
    import thinwire.torch as tw
    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(64, 16).bfloat16(), nn.ReLU(), nn.Linear(16, 4).bfloat16())
    model = DistributedDataParallel(module)
    link = tw.compress(model, "fp32")
    images, labels = batch_of(0, rank)
    inputs = images.flatten(1).bfloat16()
    own = torch.autograd.grad(nn.functional.cross_entropy(module(inputs).float(), labels),
                              list(module.parameters()))
    nn.functional.cross_entropy(model(inputs).float(), labels).backward()
    return ([g.float() for g in own], [p.grad.float() for p in model.parameters()],
            {p.grad.dtype for p in model.parameters()}, link.metrics()["skipped"])


def several_models(rank, size):
    """Two models that take turns, as in adversarial training, end as each would alone."""
    import thinwire.torch as tw
    codecs = ("topk:density=0.05", "int8")

    def run(which):
        models = [DistributedDataParallel(make_net(seed)) for seed in which]
        for seed, model in zip(which, models):
            tw.compress(model, codecs[seed])
        optimizers = [sgd(model) for model in models]
        for step in range(3):
            for model, optimizer in zip(models, optimizers):
                take_step(model, optimizer, step, rank)
        return [weights_of(model) for model in models]

    both = run([0, 1])
    alone = [run([0])[0], run([1])[0]]
    return [torch.equal(one, other) for one, other in zip(both, alone)], both


def scaler(rank, size):
    """The third step overflows on rank 1: all ranks skip it, and the memory is as it was."""
    import thinwire.torch as tw
    found = {}
    for name, scale in (("without", None), ("with", 256.0)):
        model = DistributedDataParallel(make_net())
        gradient_scaler = scale and torch.amp.GradScaler("cpu", init_scale=scale)
        link = tw.compress(model, "topk:density=0.05", scaler=gradient_scaler or None)
        optimizer = sgd(model)
        steps = []
        for step in range(5):
            before = (weights_of(model), memories_of(link))
            if scale is None and step == 2:
                continue
            take_step(model, optimizer, step, rank, gradient_scaler, spoil=step == 2 and rank == 1)
            after = (weights_of(model), memories_of(link))
            steps.append((torch.equal(before[0], after[0]),
                          torch.equal(before[1], after[1])))
        found[name] = (weights_of(model), steps, scale and gradient_scaler.get_scale())
    return found


def spoilt_in_part(rank, size):
    """One bias has a NaN on rank 1; other codecs carry the rest."""
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net())
    tw.compress(model, "topk:density=0.05", rules={"6.bias": "fp16"})
    if rank == 1:
        model.module[6].bias.register_hook(lambda gradient: gradient * math.nan)
    images, labels = batch_of(0, rank)
    nn.functional.cross_entropy(model(images), labels).backward()
    return [bool(p.grad.isnan().all()) for p in model.parameters()]


def checkpointed(rank, size, folder):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net())
    link = tw.compress(model, "topk:density=0.05", rules={"*.bias": "fp16"})
    optimizer = sgd(model)
    for step in range(3):
        take_step(model, optimizer, step, rank)
    dcp.save({"model": model.state_dict(), "link": tw.Checkpoint(link)}, checkpoint_id=folder)
    again = DistributedDataParallel(make_net(seed=9))
    new = tw.compress(again, "topk:density=0.05", rules={"*.bias": "fp16"})
    loaded = {"model": again.state_dict(), "link": tw.Checkpoint(new)}
    dcp.load(loaded, checkpoint_id=folder)
    again.load_state_dict(loaded["model"])
    same = torch.equal(memories_of(link), memories_of(new))
    for one, its in ((model, optimizer), (again, sgd(again))):
        for step in range(3, 6):
            take_step(one, its, step, rank)
    return same, torch.equal(weights_of(model), weights_of(again))


def loaded_by_three(rank, size, folder):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net())
    link = tw.compress(model, "topk:density=0.05", rules={"*.bias": "fp16"})
    dcp.load({"link": tw.Checkpoint(link, world_size=2)}, checkpoint_id=folder)
    take_step(model, sgd(model), 3, rank)
    return link.metrics()["step"], weights_of(model)


class Writer:
    """As torch.utils.tensorboard.SummaryWriter."""

    def __init__(self):
        self.rows = []

    def add_scalar(self, name, value, step):
        self.rows.append((name, value, step))


def watched(rank, size):
    import thinwire.torch as tw
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for codec, settings in (("topk:density=0.05", {}), ("fp32", {"feedback": "none"}),
                                ("topk:density=0.05", {"feedback": "none"})):
            model = DistributedDataParallel(make_net())
            link = tw.compress(model, codec, **settings)
    writer = Writer()
    link.log_to(writer)
    for step in range(2):
        take_step(model, sgd(model), step, rank)
    link.state_dict()
    metrics = link.metrics()
    take_step(model, sgd(model), 2, rank)  # the second step's row is written before the third ends
    return [(str(w.message), w.filename) for w in seen if "codec" in str(w.message)], \
        writer.rows, metrics["sent_bytes"]


def four_ranks(rank, size):
    import thinwire.torch as tw
    found = {}
    for codec in (None, "fp32", "int8", "topk:density=0.05", "sidco:density=0.05", "powersgd:rank=2"):
        model = DistributedDataParallel(make_net())
        if codec:
            tw.compress(model, codec)
        optimizer = sgd(model)
        for step in range(4):
            take_step(model, optimizer, step, rank)
        found[codec] = weights_of(model)
    return found


class Settings(unittest.TestCase):
    def test_parameters_that_some_ranks_do_not_use(self):
        first, second = on_ranks(2, unused_parameters)
        self.assertLess(max(first[0], second[0]), 1e-6)
        self.assertTrue(torch.equal(first[1], second[1]))

    def test_static_graph(self):
        for difference in on_ranks(2, static_graph):
            self.assertLess(difference, 1e-6)

    def test_bfloat16(self):
        first, second = on_ranks(2, bfloat16)
        for mine, yours, mean, other in zip(first[0], second[0], first[1], second[1]):
            self.assertTrue(torch.equal(mean, other))
            self.assertTrue(torch.equal(mean, ((mine + yours) / 2).bfloat16().float()))
        self.assertEqual((first[2], first[3]), ({torch.bfloat16}, False))

    def test_several_models(self):
        first, second = on_ranks(2, several_models)
        self.assertEqual(first[0] + second[0], [True] * 4)
        for mine, yours in zip(first[1], second[1]):
            self.assertTrue(torch.equal(mine, yours))

    def test_a_gradient_scaler_skips_on_every_rank(self):
        for found in on_ranks(2, scaler):
            weights, steps, scale = found["with"]
            self.assertEqual([one[0] for one in steps], [False, False, True, False, False])
            self.assertEqual([one[1] for one in steps], [False, False, True, False, False])
            self.assertEqual(scale, 128.0)
            # The change of scale in mid-run changes nothing that is owed.
            self.assertLess((weights - found["without"][0]).abs().max().item(), 1e-6)

    def test_what_one_codec_skips_is_no_step_for_any(self):
        for seen in on_ranks(2, spoilt_in_part):
            self.assertTrue(all(seen), seen)

    def test_distributed_checkpoints(self):
        with tempfile.TemporaryDirectory() as folder:
            for found in on_ranks(2, checkpointed, folder):
                self.assertEqual(found, (True, True))
            three = on_ranks(3, loaded_by_three, folder)
        self.assertEqual({step for step, _ in three}, {4})
        self.assertTrue(torch.equal(three[0][1], three[2][1]))

    def test_warnings_and_plots(self):
        for seen, rows, sent in on_ranks(2, watched):
            self.assertEqual(len(seen), 1, seen)
            self.assertIn("biased and has no memory", seen[0][0])
            self.assertEqual(seen[0][1], __file__)  # the line that is to change
            self.assertIn(("thinwire/sent_bytes", float(sent), 2), rows)
            self.assertIn(("thinwire/skipped", 0.0, 1), rows)

    def test_four_ranks(self):
        ranks = on_ranks(4, four_ranks)
        for codec, weights in ranks[0].items():
            for found in ranks:
                self.assertTrue(torch.equal(found[codec], weights), codec)
        self.assertLess((ranks[0][None] - ranks[0]["fp32"]).abs().max().item(), 1e-6)


if __name__ == "__main__":
    unittest.main()
