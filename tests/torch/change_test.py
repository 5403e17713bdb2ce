"""Codecs that are changed in mid-run. SPDX-License-Identifier: Apache-2.0"""
import unittest
import warnings

import torch
from torch.nn.parallel import DistributedDataParallel

import thinwire.errors
import nets
from nets import backward, make_net, weights_of
from ranks import on_ranks
from states import memories_of

TOPK, INT8 = "topk:density=0.05", "int8"
LARGE = "4.weight"  # 6912 values that every codec compresses


def linked(codec, **settings):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
    return model, tw.compress(model, codec, **settings)


def gradient_of(model):
    return dict(model.module.named_parameters())[LARGE].grad.clone()


def step(model, number, rank, move=True):
    """One step of plain SGD; the mean gradient of LARGE."""
    if move:
        nets.step(model, number, rank)
    else:
        model.zero_grad()
        backward(model, number, rank)
    return gradient_of(model)


def owed(rank, size, changes, settings):
    """All means of LARGE, and what they would be of an exchange without loss: at fixed weights."""
    found = []
    for first, *others in changes:
        model, link = linked(first, **settings)
        plain = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
        got, given = 0, 0
        for number in range(8):
            if number and number % 2 == 0 and others:
                link.change(**others.pop(0))
            got = got + step(model, number, rank, move=False).double()
            given = given + step(plain, number, rank, move=False).double()
        found.append((got, given, weights_of(model), link.metrics()))
    return found


# Each begins with a codec and is changed before steps 2, 4 and 6; the last sends all that is owed.
PATHS = (
    (TOPK, {"codec": "sidco:density=0.1"}, {"codec": INT8}, {"codec": "fp32"}),
    (TOPK, {"codec": TOPK, "method": "sparse-reduce"}, {"codec": INT8}, {"codec": "fp32"}),
    (INT8, {"codec": "topk:density=0.2"}, {"codec": TOPK, "rules": {"4.*": "int4"}}, {"codec": "fp32"}),
    ("sidco:density=0.05", {"codec": "powersgd:rank=1"}, {"codec": "fp16"}, {"codec": "fp32"}),
    ("fp32", {"codec": "sidco:density=0.05"}, {"codec": "topk:density=0.2"}, {"codec": "fp32"}),
)


class Linear(torch.nn.Module):
    """A network whose gradients depend on the input and not on the weights."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.weights = torch.nn.Parameter(torch.zeros(40, 50))
        self.along = torch.randn(40, 50, generator=generator)

    def forward(self, share):
        return share * (self.weights * self.along).sum()


def share_of(number, rank):
    return 1 + 0.25 * number * (1 - 3 * rank)


LAST = 6  # the step that sends what is owed


def ended(rank, size, cases):
    """Weights before and after a last step that sends all that is owed, and of a loop that adds up all steps."""
    import thinwire.torch as tw
    found = []
    for momentum, settings, last in cases:
        model = DistributedDataParallel(Linear())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
        link = tw.compress(model, TOPK, optimizer=optimizer, **settings)
        velocity, plain = 0, torch.zeros(40, 50, dtype=torch.float64)
        for number in range(LAST + 1):
            if number == LAST:
                before = weights_of(model).clone()
                link.change("fp32")
            scale = last if number == LAST else 1
            optimizer.zero_grad()
            (scale * model(share_of(number, rank))).backward()
            optimizer.step()
            mean = sum(share_of(number, r) for r in range(size)) / size
            velocity = momentum * velocity + scale * mean
            plain -= 0.1 * velocity * model.module.along.double()
        found.append((before, weights_of(model), plain.flatten().float()))
    return found


def as_a_schedule(rank, size):
    """The bits of a schedule that says the same."""
    found = []
    for schedule, first, settings, others in (
            ("topk:density=0.05 | 2steps: topk:density=0.2 | 4steps: int8", TOPK, {},
             [{"codec": "topk:density=0.2"}, {"codec": INT8}]),
            ("sidco:density=0.1 | 2steps: sidco:density=0.05 | 4steps: fp32", "sidco:density=0.1",
             {"grouping": "model"}, [{"codec": "sidco:density=0.05"}, {"codec": "fp32"}]),
            ("topk:density=0.1 | 2steps: topk:density=0.05 | 4steps: dgc:density=0.1", "topk:density=0.1",
             {"grouping": "global"},  # whose threshold stays
             [{"codec": "topk:density=0.05"}, {"codec": "dgc:density=0.1"}]),
            ("randomk:density=0.1 | 2steps: randomk:density=0.3 | 4steps: topk:density=table(0.1;0.3@5steps)",
             "randomk:density=0.1", {},  # whose draws follow from the step
             [{"codec": "randomk:density=0.3"}, {"codec": "topk:density=table(0.1;0.3@5steps)"}])):
        one, _ = linked(schedule, **settings)
        other, link = linked(first, **settings)
        same = []
        for number in range(6):
            if number in (2, 4):
                link.change(**others.pop(0))
            step(one, number, rank)
            step(other, number, rank)
            same.append(torch.equal(weights_of(one), weights_of(other)))
        found.append(same)
    return found


def resumed(rank, size, changes):
    """Stopped and resumed two steps after the change, by a script that begins as it began."""
    found = []
    for first, change in changes:
        model, link = linked(first)
        for number in range(8):
            if number == 2:
                link.change(**change)
            if number == 4:
                saved = (link.state_dict(), {k: v.clone() for k, v in model.state_dict().items()})
            step(model, number, rank)
        again, new = linked(first)
        again.load_state_dict(saved[1])
        new.load_state_dict(saved[0])
        for number in range(4, 8):
            step(again, number, rank)
        found.append((torch.equal(weights_of(again), weights_of(model)), new.metrics()["step"], saved[0]))
    return found


def by_three(rank, size, saved):
    model, link = linked(TOPK)
    link.load_state_dict(saved)
    step(model, 4, rank)
    return weights_of(model), [s["name"] for s in link.metrics()["streams"]]


def mistakes(rank, size):
    found = []

    def expect(action):
        try:
            action()
        except thinwire.errors.Error as error:
            found.append(f"{type(error).__name__}: {error}")
        else:
            found.append("nothing")

    model, link = linked(TOPK)
    step(model, 0, rank)
    before = memories_of(link)
    expect(lambda: link.change("topkk"))
    expect(lambda: link.change(INT8, method="low-rank"))
    expect(lambda: link.change(INT8, rules={"nothing*": "fp32"}))
    expect(lambda: link.change("scalecom"))  # goes with another memory
    expect(lambda: link.change("int4" if rank else INT8))
    expect(lambda: link.change(INT8, rules={"4.*": "int4"} if rank else None))
    expect(lambda: link.change("topkk" if rank else INT8))
    expect(lambda: link.change("scalecom" if rank else INT8))
    after = memories_of(link)
    same = torch.equal(before, after)
    step(model, 1, rank)  # goes on as it was
    whole, vector = linked("sidco:density=0.05")
    step(whole, 0, rank)
    expect(lambda: vector.change(INT8, rules={"4.*": "int4"}))
    return found, same, weights_of(model)


def not_by_all(rank, size):
    model, link = linked(TOPK, deadline_seconds=2)
    step(model, 0, rank)
    try:
        if rank == 0:
            link.change(INT8)
        step(model, 1, rank)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nobody noticed"


def warns(rank, size):
    model, link = linked("fp32", feedback="none")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        link.change(TOPK)
    return [str(one.message) for one in seen]


class Change(unittest.TestCase):
    def test_nothing_that_is_owed_is_lost(self):
        for settings in ({}, {"grouping": "tensor"}):
            first, second = on_ranks(2, owed, PATHS, settings)
            for path, (got, given, weights, metrics), other in zip(PATHS, first, second):
                # Means are the same on both ranks, and so is what they add up to once fp32 sent the rest.
                self.assertTrue(torch.equal(got, other[0]), path)
                self.assertTrue(torch.equal(weights, other[2]), path)
                bound = 1e-4 if "fp16" in str(path) else 1e-6  # of means that were rounded once more
                self.assertLess((got - given).abs().max().item(), bound, path)
                self.assertGreater(given.abs().max().item(), 1e-2)
                self.assertEqual(metrics["step"], 8)

    def test_a_last_step_sends_all_that_is_owed(self):
        cases = ((0, {}, 1), (0, {}, 0),  # with a gradient of its own, and without
                 (0.9, {"feedback": "dgc:mask=false"}, 1), (0, {"feedback": "lowpass:beta=1"}, 1))
        first, second = on_ranks(2, ended, cases)
        for case, (before, after, plain), other in zip(cases, first, second):
            self.assertTrue(torch.equal(after, other[1]), case)
            self.assertLess((after - plain).abs().max().item(), 1e-5, case)
            self.assertGreater((before - plain).abs().max().item(), 0.5, case)

    def test_is_what_a_schedule_does(self):
        for found in on_ranks(2, as_a_schedule):
            self.assertEqual(found, [[True] * 6] * 4)

    def test_a_saved_state_remembers_the_change(self):
        changes = ((TOPK, {"codec": INT8, "rules": {"4.*": "topk:density=0.2"}}),
                   (TOPK, {"codec": "fp16"}),
                   ("fp32", {"codec": "sidco:density=0.05"}))
        ranks = on_ranks(2, resumed, changes)
        for found in ranks:
            self.assertEqual([one[:2] for one in found], [(True, 8)] * 3)
        three = on_ranks(3, by_three, [found[0][2] for found in ranks])
        for weights, streams in three:
            self.assertTrue(torch.equal(weights, three[0][0]))
            self.assertIn(LARGE, streams)

    def test_mistakes_leave_the_link_as_it_was(self):
        first, second = on_ranks(2, mistakes)
        for found, same, weights in (first, second):
            self.assertTrue(same)
            self.assertTrue(torch.equal(weights, first[2]))
            self.assertEqual(len(found), 9, found)
            for text, error in zip(("known: fp32", "use scatter-reduce", "nothing", "memory lowpass",
                                    "MismatchError: change: .*'codec int4:.*' on rank 1",
                                    "MismatchError: change: .*'rule '4.\\*': codec int4:.*' on rank 1",
                                    "MismatchError: change: .*'codec topkk' on rank 1",
                                    "MismatchError: change: .*'codec scalecom:density=0.01' on rank 1",
                                    "rules would part them"), found):
                self.assertRegex(error, text)

    def test_a_rank_that_does_not_change_is_noticed(self):
        first, second = on_ranks(2, not_by_all)
        self.assertIn("between the same two steps", first)
        self.assertNotIn("nobody noticed", second)

    def test_what_is_lost_is_a_warning(self):
        for seen in on_ranks(2, warns):
            self.assertEqual(len(seen), 1)
            self.assertIn("biased and has no memory", seen[0])


if __name__ == "__main__":
    unittest.main()
