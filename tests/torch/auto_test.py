"""Codec auto in PyTorch: decisions, checkpoints, mistakes. SPDX-License-Identifier: Apache-2.0"""
import contextlib
import logging
import os
import tempfile
import time
import unittest

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import thinwire.errors
import nets
from nets import make_net, weights_of
from ranks import on_ranks

PLAN = "0\tfp32\n# few bytes\n2\ttopk:density=0.05\n5\tint8\n"


@contextlib.contextmanager
def plan_file(decisions):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.txt")
        with open(path, "w") as file:
            file.write("thinwire decisions 1\n" + decisions)
        yield path


def linked(codec, **settings):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
    return model, tw.compress(model, codec, **settings)


def of_plan(rank, size, path):
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("thinwire").addHandler(handler)
    logging.getLogger("thinwire").setLevel(logging.INFO)
    model, link = linked(f"auto:loss=any,plan={path}")
    codecs, saved = [], None
    for number in range(8):
        if number == 4:
            saved, before = link.state_dict(), {k: v.clone() for k, v in model.state_dict().items()}
        nets.step(model, number, rank)
        codecs.append({row["codec"].partition(":")[0] for row in link.metrics()["streams"]})
    whole = weights_of(model)
    again, other = linked(f"auto:loss=any,plan={path}")
    again.load_state_dict(before)
    other.load_state_dict(saved)
    for number in range(4, 8):
        nets.step(again, number, rank)
    return codecs, link.decisions(), lines, whole, weights_of(again), other.decisions()


def measured(rank, size, folder):
    os.environ["XDG_CACHE_HOME"] = folder
    import thinwire.torch as tw
    model, link = linked("auto")
    for number in range(30):
        nets.step(model, number, rank)
    first = link.decisions()[0]
    link.change("int8")
    nets.step(model, 30, rank)
    plan = tw.plan(make_net(), nets.batch_of(0, rank), link="probe", codecs=["int8"])
    return first, {row["codec"].partition(":")[0] for row in link.metrics()["streams"]}, [step.codec for step in plan]


def gradients_of(model, number, rank, poison):
    images, labels = nets.batch_of(number, rank)
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(images * float("nan") if poison else images), labels).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def dense(rank, size, path):
    """Steps beside those of DistributedDataParallel itself; rank 1 asks to skip the third and has a NaN in the fourth."""
    model, link = linked(f"auto:plan={path}")
    alone = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
    found = []
    for number in range(9):
        if number == 2 and rank == 1:
            link.skip_step()
        poison = number in (2, 3) and rank == 1  # what a rank has that asks to skip does not count
        own = gradients_of(model, number, rank, poison)
        usual = gradients_of(alone, number, rank, poison and number == 3)
        metrics = link.metrics()
        found.append((metrics["outside"], metrics["fault"], own, usual, metrics["sent_bytes"] >= metrics["dense_bytes"]))
    return found


class Turns(torch.nn.Module):
    """Heads that take turns behind an embedding with sparse gradients."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.words = torch.nn.Embedding(9, 5, sparse=True)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(5, 3) for _ in range(2))

    def forward(self, words, turn):
        return self.heads[turn](self.words(words))


def unused(rank, size, path):
    """Gradients of unused and sparse parameters, without thinwire and with it."""
    import thinwire.torch as tw
    models = [DistributedDataParallel(Turns(), find_unused_parameters=True) for _ in range(2)]
    link = tw.compress(models[1], f"auto:plan={path}")
    words = torch.arange(3) + 2 * rank
    worst, outside = 0.0, []
    for turn in (0, 1, 0, 1):
        for model in models:
            model.zero_grad()
            model(words, turn).square().sum().backward()
        outside.append(link.metrics()["outside"])
        for one, other in zip(*(model.parameters() for model in models)):
            if one.grad is not None:
                worst = max(worst, float((one.grad.to_dense() - other.grad.to_dense()).abs().max()))
    return worst, outside


def lonely(rank, size, path):
    """Rank 1 ends in the middle of a step that torch's all-reduce sums."""
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net(), broadcast_buffers=False)
    link = tw.compress(model, f"auto:plan={path}")
    for number in range(2):
        gradients_of(model, number, rank, False)
    assert link.metrics()["outside"]
    if rank == 1:
        next(model.parameters()).register_hook(lambda gradient: os._exit(0))
    try:
        gradients_of(model, 2, rank, False)
    except thinwire.errors.PeerLostError as error:
        first = str(error)
    try:
        link.skip_step()
    except thinwire.errors.PeerLostError as error:
        return first, str(error)


def refused(rank, size, path):
    """torch's all-reduce refuses the second bucket of a step on rank 1; rank 0 waits for it."""
    import thinwire.torch._outside as outside
    model, link = linked(f"auto:plan={path}", deadline_seconds=4)
    for number in range(2):
        gradients_of(model, number, rank, False)
    calls, begin = [], dist.all_reduce

    def refuse(*given, **named):
        calls.append(given)
        if len(calls) == 2 and rank == 1:
            raise RuntimeError("Connection closed by peer")
        return begin(*given, **named)

    outside.dist.all_reduce = refuse
    told = []
    for call in (lambda: gradients_of(model, 2, rank, False), link.skip_step):
        try:
            call()
        except (thinwire.errors.PeerLostError, thinwire.errors.TimeoutError) as error:
            told.append(str(error))
    return told


class Slow:
    """A writer that needs longer than a step."""

    def __init__(self):
        self.steps = []

    def log(self, row):
        time.sleep(0.05)
        self.steps.append((int(row["thinwire/step"]), row["thinwire/sent_bytes"]))


def logged(rank, size, path):
    """Numbers of steps inside and outside, by a slow writer; what interrupts a step is raised as it is."""
    model, link = linked(f"auto:plan={path}")
    writer = Slow()
    link.log_to(writer)
    sent = []
    for number in range(8):
        gradients_of(model, number, rank, False)
        sent.append(float(link.metrics()["sent_bytes"]))
    deadline = time.monotonic() + 20
    while len(writer.steps) < 8 and time.monotonic() < deadline:
        time.sleep(0.01)

    def interrupt():
        raise KeyboardInterrupt

    link._exchange.finish_outside = interrupt
    try:
        gradients_of(model, 8, rank, False)
    except KeyboardInterrupt:
        return writer.steps, sent


def mistakes(rank, size):
    told = []
    for codec, settings in (("auto:loss=big", {}), ("auto", {"method": "gather"}), ("auto", {"inside": 2}),
                            ("auto", {"grouping": "model"}), ("auto:plan=/no/such/file", {})):
        try:
            linked(codec, **settings)
            told.append("")
        except thinwire.errors.Error as error:
            told.append(str(error))
    _, link = linked("int8")
    try:
        link.change("auto")
    except thinwire.errors.Error as error:
        told.append(str(error))
    return told


class Auto(unittest.TestCase):
    def test_a_recorded_plan_is_followed_and_a_saved_link_goes_on(self):
        with plan_file(PLAN) as path:
            ranks = on_ranks(2, of_plan, path)
        for codecs, decisions, _, whole, again, resumed in ranks:
            self.assertEqual([sorted(one - {"fp32"}) for one in codecs], 2 * [[]] + 3 * [["topk"]] + 3 * [["int8"]])
            self.assertEqual([one["step"] for one in decisions], [0, 2, 5])
            self.assertEqual(resumed, decisions)
            self.assertTrue(torch.equal(whole, again))
        self.assertIn("codec auto, step 2: few bytes", ranks[0][2])
        self.assertEqual(ranks[1][2], [])

    def test_uncompressed_steps_are_left_to_the_all_reduce_of_torch(self):
        with plan_file("0\tfp32\n5\tint8\n6\tfp32\n") as path:
            ranks = on_ranks(2, dense, path)
        for (outside, fault, own, usual, whole), (_, _, others, _, _) in zip(*ranks):
            self.assertTrue(torch.equal(own, others) or fault)
        for found in ranks:
            self.assertEqual([row[0] for row in found], [False, True, True, True, False, False, False, True, True])
            for number, (outside, fault, own, usual, whole) in enumerate(found):
                if number == 2:
                    self.assertEqual((fault, float(own.abs().max())), ("rank 1 asked to skip the step", 0.0))
                elif number == 3:
                    self.assertIn("has a sum that is not finite", fault)
                    self.assertTrue(torch.isnan(own).all())
                else:
                    self.assertEqual(fault, "")
                    self.assertTrue(whole or number == 5)
                    # The sixth step is int8's, and the seventh sends what that left in the memory.
                    torch.testing.assert_close(own, usual, rtol=0, atol=2e-2 if number in (5, 6) else 1e-6)

    def test_unused_and_sparse_parameters_are_those_of_plain_ddp(self):
        with plan_file("0\tfp32\n") as path:
            for worst, outside in on_ranks(2, unused, path):
                self.assertEqual(outside, [False, True, True, True])
                self.assertLess(worst, 1e-6)

    def test_a_rank_that_is_lost_beside_that_all_reduce_is_an_error(self):
        with plan_file("0\tfp32\n") as path:
            (first, later), = on_ranks(2, lonely, path, lost={1})
        self.assertIn("torch's all-reduce of uncompressed gradients failed", first)
        self.assertEqual(first, later)

    def test_an_all_reduce_that_is_refused_is_an_error_of_the_step(self):
        with plan_file("0\tfp32\n") as path:
            for first, later in on_ranks(2, refused, path):
                self.assertIn("torch's all-reduce of uncompressed gradients failed", first)
                self.assertEqual(first, later)

    def test_every_step_is_logged_once_and_an_interrupt_is_raised(self):
        with plan_file("0\tfp32\n3\tint8\n5\tfp32\n") as path:
            for steps, sent in on_ranks(2, logged, path):
                self.assertEqual(steps, list(enumerate(sent, 1)))

    def test_it_measures_and_explains_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = on_ranks(2, measured, folder)
        for first, codecs, planned in ranks:
            self.assertEqual(sorted(planned), ["DistributedDataParallel", "fp32", "int8"])
            self.assertEqual(first["step"], 0)
            self.assertIn("link ", first["why"])
            self.assertIn("int8", codecs)
        self.assertEqual(ranks[0][0], ranks[1][0])

    def test_mistakes_are_explained(self):
        for told in on_ranks(2, mistakes):
            for text, part in zip(told, ("none, small, any", "chooses the method, too", "hierarchies",
                                         "grouping tensor", "plan /no/such/file", "name a codec here")):
                self.assertIn(part, text)
            self.assertEqual(len(told), 6)


if __name__ == "__main__":
    unittest.main()
