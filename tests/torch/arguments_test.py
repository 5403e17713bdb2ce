"""Tests of errors about wrong arguments, and of how long schedules last. SPDX-License-Identifier: Apache-2.0"""
import math
import unittest
import warnings

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import thinwire
import thinwire.torch as tw
from nets import make_net, step, weights_of
from ranks import on_ranks

EPOCHS = "topk:density=table(0.1;0.2@1;0.4@2)"  # from epoch 1 and 2 on
ACCORDION = "topk:density=accordion(0.5;0.1;0.5;2)"  # of epochs of two steps
STEPS = "topk:density=table(0.1;0.2@2steps;0.4@4steps)"
LARGE = "4.weight"


class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(5))


def said_by(action):
    """What an action is refused with."""
    try:
        action()
    except (thinwire.errors.Error, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


# What is given to compress, and what is said of it.
WRONG = (
    ({"codec": "topkk"}, "unknown codec 'topkk'; known: fp32, .*; did you mean 'topk'?"),
    ({"codec": "atuo"}, "unknown codec 'atuo'; known: fp32, .*, auto; did you mean 'auto'?"),
    ({"rules": {"4.*": "atuo"}}, "unknown codec 'atuo'; known: fp32, [^;]*, countsketch(;.*)?$"),
    ({"codec": "sidco(density=0.01)"}, r"unknown codec 'sidco\(density=0.01\)'; options follow a colon: 'sidco:density=0.01'$"),
    ({"codec": "sidco", "density": 0.01}, """options are part of the codec's text: "sidco:density=0.01"$"""),
    ({"codec": "topk:values=fp16", "density": 0.1}, 'codec\'s text: "topk:values=fp16,density=0.1"$'),
    ({"codec": "int8", "density": 0.01}, "no argument is named 'density'; known: model, "),
    ({"optimizer": (one for one in ())}, "compress: optimizer is a generator, must be the optimizer that steps"),
    ({"optimizer": torch.optim.SGD}, r"optimizer is the class SGD, must be .* SGD\(model.parameters\(\), ...\)"),
    ({"optimizer": [1, 2]}, "optimizer is a list of 2, must be one optimizer: make one with a parameter group for each"),
    ({"momentum": 0.9}, "momentum is 0.9, of type float; it says where .*; known: auto, memory, optimizer$"),
    ({"momentum": "memroy"}, "momentum is 'memroy'; known: auto, memory, optimizer; did you mean 'memory'?"),
    ({"codec": "topk:densty=0.1"}, "did you mean 'density'?"),
    ({"codec": "sidco:law=exponental"}, "did you mean 'exponential'?"),
    ({"grouping": "layer"}, "compress: grouping is 'layer'; known: auto, tensor, model, global$"),
    ({"grouping": "modle"}, "did you mean 'model'?"),
    ({"grouping": None}, "grouping is None, must be a text"),
    ({"method": "sparse_reduce"}, "known: auto, .*; did you mean 'sparse-reduce'?"),
    ({"feedback": "residul"}, "known: none, .*; did you mean 'residual'?"),
    ({"feedback": False}, "feedback is False, must be a text"),
    ({"rules": "fp32"}, "rules is 'fp32', must be codecs by pattern"),
    ({"rules": {"4.wieght": "fp32"}}, "rule '4.wieght': no tensor is named so; names: .*; did you mean '4.weight'?"),
    ({"rules": {"4.*": 3}}, r"rules\['4.\*'\] is 3, must be a codec, or settings, as in"),
    ({"rules": {"4.*": {"feedback": "ef21"}}}, "must be a codec, or settings, as in"),
    ({"rules": {"4.*": {"codec": "int8", "memory": "ef21"}}}, r"key of rules\['4.\*'\] is 'memory'; known: codec, feedback"),
    ({"rules": {"4.*": {"codec": "int8", "grouping": "modle"}}}, r"\['grouping'\] is 'modle'.*did you mean 'model'?"),
    ({"rules": {"4.*": {"codec": "int8", "method": 3}}}, r"\['method'\] is 3, must be a text"),
    ({"rules": {"4.*": {"codec": "topk", "method": "dense"}}}, r"rule '4.\*': method dense"),
    ({"bucket_kb": 0}, "bucket_kb is 0, must be a whole number from 1 to"),
    ({"bucket_kb": 0.5}, "bucket_kb is 0.5, must be a whole number"),
    ({"seed": -1}, "seed is -1, must be"),
    ({"max_skipped": True}, "max_skipped is True, must be a whole number"),
    ({"norms": "yes"}, "norms is 'yes', must be True or False"),
    ({"scaler": 1024.0}, "scaler is 1024.0, must be a torch.amp.GradScaler"),
    ({"deadline_seconds": 0}, "deadline_seconds is 0, must be seconds, above 0"),
    ({"deadline_seconds": math.nan}, "deadline_seconds is nan"),
    ({"steps_per_epoch": 0}, "steps_per_epoch is 0, must be .* or a DataLoader with a length"),
    ({"steps_per_epoch": DataLoader(Endless())}, "steps_per_epoch is <.*or a DataLoader with a length"),
    ({"groupin": "model"}, "compress: no argument is named 'groupin'; known: model, .*; did you mean 'grouping'?"),
    ({"codec": EPOCHS}, "'topk:density=table.*' counts in epochs: give steps_per_epoch"),
    ({"codec": "fp32 | 2: int8"}, "counts in epochs: give steps_per_epoch"),
    ({"rules": {"4.*": EPOCHS}}, "counts in epochs: give steps_per_epoch"),
)


def compressed(rank, size):
    model = DistributedDataParallel(make_net())
    found = [said_by(lambda: tw.compress(model, **wrong)) for wrong, _ in WRONG]
    link = tw.compress(model, "topk:density=0.1")
    step(model, 0, rank)
    for wrong in ({"codec": INT8_SCHEDULE}, {"codec": "int8", "method": 3}, {"codec": "int8", "rules": ["fp32"]},
                  {"codec": "int8", "mehtod": "dense"}):
        found.append(said_by(lambda: link.change(**wrong)))
    found.append(said_by(lambda: tw.compress(model, "topk", torch.optim.SGD(model.parameters()))))
    found.append(said_by(lambda: link.change("int8", "dense")))
    step(model, 1, rank)  # goes on as it was
    return found, link.metrics()["step"], repr(link)


INT8_SCHEDULE = "int8 | 1: fp32"


def of_all_values(rank, size):
    """What is said of codecs that are sparse and send all values, in compress and change; the others say nothing."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        link = tw.compress(DistributedDataParallel(make_net()), "topk:density=1", rules={"4.*": "topk:density=1.0,values=fp16"})
        link.change("topk:density=0.1")
        tw.compress(DistributedDataParallel(make_net()), "topk:density=warmup(0.01;1)", steps_per_epoch=2)
        link.change("topk:density=1")
    return [(str(one.message).split("'")[1], one.filename) for one in said if "density=0.01" in str(one.message)]


def kept_of(model, link, rank, steps, first=0):
    """Values of LARGE that every step carried."""
    kept = []
    for number in range(first, first + steps):
        step(model, number, rank)
        kept += [s["kept"] for s in link.metrics()["streams"] if s["name"] == LARGE]
    return kept


def scheduled(rank, size):
    """The same schedule in steps, in epochs of two steps, and in epochs of a loader with two batches."""
    loader = DataLoader(TensorDataset(torch.zeros(8, 1)), batch_size=4)
    found = []
    for codec, settings in ((STEPS, {}), (EPOCHS, {"steps_per_epoch": 2}), (EPOCHS, {"steps_per_epoch": loader})):
        model = DistributedDataParallel(make_net())
        found.append(kept_of(model, tw.compress(model, codec, **settings), rank, 6))
    return found


def changed(rank, size):
    """Changed to a schedule in epochs, and resumed by a script that begins as it began."""
    model = DistributedDataParallel(make_net())
    link = tw.compress(model, "topk:density=0.3")
    step(model, 0, rank)
    link.change(EPOCHS, steps_per_epoch=2)
    kept = kept_of(model, link, rank, 1, first=1)
    saved = link.state_dict(), {k: v.clone() for k, v in model.state_dict().items()}
    kept += kept_of(model, link, rank, 3, first=2)
    again = DistributedDataParallel(make_net())
    new = tw.compress(again, "topk:density=0.3")
    again.load_state_dict(saved[1])
    new.load_state_dict(saved[0])
    return kept, kept_of(again, new, rank, 3, first=2), torch.equal(weights_of(model), weights_of(again))


def targets_of(model, link, rank, weights, first, steps):
    """Of LARGE in every step, of which all have the gradients of the first, at the weights that are given."""
    targets = []
    for _ in range(first, first + steps):
        model.load_state_dict(weights)
        step(model, 0, rank)
        targets += [s["target"] for s in link.metrics()["streams"] if s["name"] == LARGE]
    return targets


def accordion(rank, size):
    """Gradients that stay as they are leave the critical regime; resumed in the middle of an interval."""
    model = DistributedDataParallel(make_net())
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    link = tw.compress(model, ACCORDION, steps_per_epoch=2)
    targets = targets_of(model, link, rank, weights, 0, 3)
    saved = link.state_dict()
    targets += targets_of(model, link, rank, weights, 3, 4)
    again = DistributedDataParallel(make_net())
    new = tw.compress(again, ACCORDION, steps_per_epoch=2)
    new.load_state_dict(saved)
    resumed = targets_of(again, new, rank, weights, 3, 4)
    same = torch.equal(weights_of(model), weights_of(again))
    unknown = said_by(lambda: tw.compress(DistributedDataParallel(make_net()), ACCORDION))
    return targets, resumed, same, unknown


def uneven(rank, size):
    model = DistributedDataParallel(make_net())
    return said_by(lambda: tw.compress(model, EPOCHS, steps_per_epoch=range(5 + rank)))


# Arguments of local methods.
WRONG_LOCALLY = (
    ("LeaderSGD", {"tua": 4}, "LeaderSGD: no argument is named 'tua'; known: .*; did you mean 'tau'?"),
    ("PeriodicAveraging", {"feedbak": "none"}, "did you mean 'feedback'?"),
    ("PeriodicAveraging", {"tau": 0.5}, "'tau' is '0.5', but must be a whole number"),
    ("ElasticAveraging", {"centre": "variabel"}, "did you mean 'variable'?"),
    ("LocalOptimizer", {"method": "gosip:tau=4"}, "did you mean 'gossip'?"),
    ("PeriodicAveraging", {"codec": "int88"}, "did you mean 'int8'?"),
    ("PeriodicAveraging", {"codec": "int8", "exchange": "gahter"}, "did you mean 'gather'?"),
    ("DiLoCo", {"codec": None}, "DiLoCo: codec is None, must be a text"),
    ("PeriodicAveraging", {"max_skipped": -1}, "max_skipped is -1"),
    ("PeriodicAveraging", {"deadline_seconds": "60"}, "deadline_seconds is '60'"),
    ("PeriodicAveraging", {"codec": "topk:density=warmup(0.1;4)"}, "counted in rounds: write its times as steps"),
)


def locally(rank, size):
    model = make_net()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    found = [said_by(lambda: getattr(tw, kind)(inner, model, **wrong)) for kind, wrong, _ in WRONG_LOCALLY]
    swapped = said_by(lambda: tw.PeriodicAveraging(model, inner))
    tw.PeriodicAveraging(inner, model, codec="topk:density=warmup(0.1;4steps)")
    return found, swapped, repr(tw.PeriodicAveraging(inner, model, codec=thinwire.Codec("int8")))


def beside(rank, size):
    """A boundary to a rank that there is not, and to this one."""
    return [said_by(lambda: tw.Boundary([4], 2, to_rank=to)) for to in (size, rank, "1")]


class Argument(unittest.TestCase):
    def assert_said(self, found, expected):
        self.assertEqual(len(found), len(expected))
        for text, pattern in zip(found, expected):
            self.assertRegex(text, pattern.replace("?", r"\?") if pattern.endswith("?") else pattern)

    def test_of_compress_and_change(self):
        for found, steps, described in on_ranks(2, compressed):
            self.assert_said(found, [pattern for _, pattern in WRONG] + [
                "counts in epochs: give steps_per_epoch", "change: method is 3, must be a text",
                "change: rules is ", "change: no argument is named 'mehtod'.*; did you mean 'method'?",
                "compress: only model and codec may come without a name; give the SGD by name: optimizer=$",
                "change: only codec may come without a name; give the str by name: rules=, method=, steps_per_epoch=$"])
            self.assertEqual(steps, 2)
            self.assertEqual(described, "ReplicatedLink('topk:density=0.1', 8 parameters)")

    def test_a_density_of_one_is_a_warning(self):
        for said in on_ranks(2, of_all_values):
            self.assertEqual(said, [(codec, __file__) for codec in (
                "topk:density=1", "topk:density=1.0,values=fp16", "topk:density=1")])

    def test_of_local_methods(self):
        for found, swapped, other in on_ranks(2, locally):
            self.assert_said(found, [pattern for *_, pattern in WRONG_LOCALLY])
            self.assertIn("optimizer is a Sequential, must be a Optimizer", swapped)
            self.assertIn("codec='int8:block=256'", other)

    def test_of_boundaries(self):
        for wrong, pattern in (
                ({"codec": "topkk"}, "did you mean 'topk'?"),
                ({"gradient_codec": "fp61"}, "did you mean 'fp16'?"),
                ({"gradient_codec": 3}, "Boundary: gradient_codec is 3, must be a text"),
                ({"memory": "aqsdg"}, "unknown memory 'aqsdg'; known: none, .*; did you mean 'aqsgd'?"),
                ({"memory": "aqsgd:key=smaple"}, "did you mean 'sample'?"),
                ({"per_sample": "yes"}, "per_sample is 'yes', must be True or False"),
                ({"samples": 0}, "samples is 0, must be a whole number from 1 to"),
                ({"sample_shape": 4}, "sample_shape is 4, must be whole numbers above 0"),
                ({"sample_shape": [4, 0]}, r"sample_shape is \[4, 0\]"),
                ({"micro_batches": 101}, "micro_batches is 101, must be a whole number from 1 to 100"),
                ({"index": 100}, "index is 100, must be a whole number from 0 to 99"),
                ({"cache_budget": 0.5}, "cache_budget is 0.5"),
                ({"micro_batch": 4}, "Boundary: no argument is named .*; did you mean 'micro_batches'?"),
                ({"to_rank": 1}, "to_rank needs torch.distributed.init_process_group"),
                ({"codec": EPOCHS}, "counts in epochs: give steps_per_epoch")):
            self.assert_said([said_by(lambda: tw.Boundary(**{"sample_shape": [4], "samples": 2, **wrong}))],
                             [pattern])
        tw.Boundary([100], 1, codec=thinwire.Codec("int8"), gradient_codec=thinwire.Codec("fp16"))
        boundary = tw.Boundary([100], 1, codec=EPOCHS, steps_per_epoch=2)
        kept = []
        for _ in range(6):
            kept.append(int((boundary(torch.rand(1, 100) + 1) != 0).sum()))
            boundary.step()
        self.assertEqual(kept, [10, 10, 20, 20, 40, 40])

    def test_the_other_side_of_a_boundary_is_another_rank(self):
        for rank, found in enumerate(on_ranks(2, beside)):
            self.assertIn("to_rank is 2, must be a whole number from 0 to 1", found[0])
            self.assertIn(f"to_rank is {rank}, which is this rank itself", found[1])
            self.assertIn("to_rank is '1', must be", found[2])


class Schedule(unittest.TestCase):
    def test_epochs_are_as_long_as_the_data(self):
        for steps, epochs, loader in on_ranks(2, scheduled):
            self.assertEqual(steps, epochs)
            self.assertEqual(steps, loader)
            self.assertEqual([b > a for a, b in zip(steps, steps[1:])], [False, True, False, True, False])

    def test_a_change_to_a_schedule_says_how_long_epochs_are(self):
        for kept, resumed, same in on_ranks(2, changed):
            self.assertEqual([round(k / kept[0]) for k in kept], [1, 2, 2, 4])
            self.assertEqual(kept[1:], resumed)
            self.assertTrue(same)

    def test_accordions_leave_critical_regimes_and_are_resumed(self):
        for targets, resumed, same, unknown in on_ranks(2, accordion):
            self.assertEqual([round(10 * target / targets[-1]) for target in targets], [50] * 4 + [10] * 3)
            self.assertEqual(targets[3:], resumed)
            self.assertTrue(same)
            self.assertIn("give steps_per_epoch", unknown)

    def test_ranks_with_epochs_of_other_lengths_are_told(self):
        for text in on_ranks(2, uneven):
            self.assertRegex(text, "MismatchError.*steps per epoch")


if __name__ == "__main__":
    unittest.main()
