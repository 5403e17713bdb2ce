"""Warnings and errors about momentum that acts twice, or on a mean that arrives in bursts. SPDX-License-Identifier: Apache-2.0"""
import unittest
import warnings

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import backward, batch_of, make_net, train, weights_of
from ranks import error_of, on_ranks


def warned(rank, size):
    import thinwire.torch as tw
    found = {}
    for name, codec, momentum, settings in (
        ("unnamed", "topk", 0.9, {}), ("meant", "topk", 0.9, {"momentum": "optimizer"}),
        ("dense", "fp32", 0.9, {}), ("none", "topk", 0.0, {}), ("rounded", "int8", 0.9, {}),
        ("chosen", "topk", 0.9, {"feedback": "residual"}), ("rule", "fp32", 0.9, {"rules": {"4.*": "sidco"}}),
        ("of no tensor", "topk", 0.9, {"rules": {"*": "fp32"}}),
    ):
        model = DistributedDataParallel(make_net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
        link = tw.compress(model, codec, **settings)
        with warnings.catch_warnings(record=True) as texts:
            warnings.simplefilter("always")
            for step in range(2):
                images, labels = batch_of(step, rank)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()
                torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1, momentum=0.9).step()  # another's
                optimizer.step()
        found[name] = [str(one.message) for one in texts if "optimizer=optimizer" in str(one.message)]
        del link
    return found


def warned_of_two(rank, size):
    """What is said of two links, each with an optimiser that it was not told of, and from which file."""
    import thinwire.torch as tw
    models = [DistributedDataParallel(make_net()) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
    links = [tw.compress(model, "topk") for model in models]
    with warnings.catch_warnings(record=True) as texts:
        warnings.simplefilter("always")
        for step in range(2):
            images, labels = batch_of(step, rank)
            for model, optimizer in zip(models, optimizers):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
    del links
    return [one.filename for one in texts if "optimizer=optimizer" in str(one.message)]


def warned_at_steps(rank, size):
    """What steps are told of optimisers of several kinds that were not named."""
    import thinwire.torch as tw
    found = {}
    for name, make, codec, settings in (
        ("RMSprop", lambda p: torch.optim.RMSprop(p, momentum=0.9), "topk", {}), ("NAdam", torch.optim.NAdam, "topk", {}),
        ("RAdam", torch.optim.RAdam, "topk", {}), ("AdamW", torch.optim.AdamW, "topk", {}),
        ("no momentum", torch.optim.RMSprop, "topk", {}), ("dense", torch.optim.NAdam, "int8", {}),
        ("meant", torch.optim.NAdam, "topk", {"momentum": "optimizer"}),
        ("chosen", torch.optim.NAdam, "topk", {"feedback": "residual"}),
    ):
        model = DistributedDataParallel(make_net())
        tw.compress(model, codec, **settings)
        found[name] = said_in_steps(model, [make(model.parameters())], rank)
    for name, codec, first, second in (("second", "topk", 0.0, 0.9), ("second, twice", "signum", 0.0, 0.9),
                                       ("first", "topk", 0.9, 0.0), ("both", "topk", 0.9, 0.9), ("neither", "topk", 0.0, 0.0)):
        model = DistributedDataParallel(make_net())
        tw.compress(model, codec)
        *body, weight, bias = model.parameters()
        found[name] = said_in_steps(model, [torch.optim.SGD(body, lr=0.01, momentum=first),
                                            torch.optim.SGD([weight, bias], lr=0.01, momentum=second)], rank)
    return found


def said_in_steps(model, optimizers, rank):
    with warnings.catch_warnings(record=True) as texts:
        warnings.simplefilter("always")
        for number in range(3):
            model.zero_grad()
            backward(model, number, rank)
            for optimizer in optimizers:
                optimizer.step()
    return [str(one.message) for one in texts if one.filename == __file__]


def warned_of_strangers(rank, size):
    """What is said at once of optimisers that thinwire does not know, and from which file."""
    import thinwire.torch as tw
    found = {}
    for name, make, codec, settings in (
        ("NAdam", torch.optim.NAdam, "topk", {}), ("RMSprop", lambda p: torch.optim.RMSprop(p, momentum=0.9), "topk", {}),
        ("no momentum", torch.optim.RMSprop, "topk", {}), ("dense", torch.optim.NAdam, "int8", {}),
        ("meant", torch.optim.NAdam, "topk", {"momentum": "optimizer"}), ("AdamW", torch.optim.AdamW, "topk", {}),
        ("SGD", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "topk", {}),
    ):
        model = DistributedDataParallel(make_net())
        with warnings.catch_warnings(record=True) as texts:
            warnings.simplefilter("always")
            link = tw.compress(model, codec, optimizer=make(model.parameters()), **settings)
        found[name] = [(str(one.message), one.filename) for one in texts]
        del link
    return found


def twice(rank, size):
    """What is said of a memory with momentum beside an optimiser with momentum: when it is named, or when it takes a step."""
    import thinwire
    import thinwire.torch as tw
    named, unnamed = {}, {}
    sgd = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)  # noqa: E731
    for name, make, codec, settings in (
        ("SGD", sgd, "topk:density=0.1", {"feedback": "dgc"}), ("plain SGD", lambda p: torch.optim.SGD(p, lr=0.1), "signum", {}),
        ("SGD, meant", sgd, "fp32", {"feedback": "velocity", "momentum": "optimizer"}), ("signum", sgd, "signum", {}),
        ("AdamW", torch.optim.AdamW, "topk:density=0.1", {"feedback": "dgc"}), ("Adam", torch.optim.Adam, "signum", {}),
        ("no first moment", lambda p: torch.optim.AdamW(p, betas=(0.0, 0.99)), "topk:density=0.1", {"feedback": "dgc"}),
        ("NAdam", torch.optim.NAdam, "fp32", {"feedback": "velocity"}), ("no velocity", torch.optim.NAdam, "fp32", {}),
        ("RMSprop", lambda p: torch.optim.RMSprop(p, momentum=0.5), "topk:density=0.1", {"feedback": "ahead"}),
        ("rule", torch.optim.AdamW, "fp32", {"rules": {"4.*": {"codec": "topk:density=0.1", "feedback": "dgc"}}}),
        ("of no tensor", sgd, "signum", {"rules": {"*": "fp32"}}),
    ):
        model = DistributedDataParallel(make_net())
        optimizer = make(model.parameters())
        try:
            tw.compress(model, codec, optimizer=optimizer, **settings)
            named[name] = "nothing"
        except thinwire.Error as error:
            named[name] = str(error)
        model = DistributedDataParallel(make_net())
        optimizer = make(model.parameters())
        tw.compress(model, codec, **settings)
        with warnings.catch_warnings(record=True) as texts:
            warnings.simplefilter("always")
            train(model, optimizer, rank, 2)
        unnamed[name] = [(str(one.message), one.filename) for one in texts]
    return named, unnamed


def changed_to_twice(rank, size):
    """What a change to a codec is told whose memory has momentum, and how far it leaves the run from one without it."""
    import thinwire.torch as tw
    found = []
    for codec, make in (("int8", torch.optim.AdamW), ("topk:density=0.1", torch.optim.AdamW), ("fp32", torch.optim.NAdam),
                        ("int8", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))):
        weights = []
        for changes in (False, True):
            model = DistributedDataParallel(make_net())
            optimizer = make(model.parameters())
            link = tw.compress(model, codec, optimizer=optimizer)
            train(model, optimizer, rank, 2)
            if changes:
                velocity = {"*.weight": {"codec": "fp32", "feedback": "velocity"}}
                found.append(error_of(lambda: link.change("fp32", rules=velocity)))
            train(model, optimizer, rank, 2, first=2)
            weights.append(weights_of(model))
        found.append(torch.equal(*weights))
    model = DistributedDataParallel(make_net())  # without an optimiser that was named: at its first step
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    link = tw.compress(model, "fp32")
    link.change("signum")
    with warnings.catch_warnings(record=True) as texts:
        warnings.simplefilter("always")
        train(model, optimizer, rank, 2)
    return found, [str(one.message) for one in texts]


def warned_of_memories(rank, size):
    """What is said at once of memories that leave the momentum of an optimiser on the mean, or do not."""
    import thinwire.torch as tw
    found = {}
    sgd = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)  # noqa: E731
    plain = lambda p: torch.optim.SGD(p, lr=0.1)  # noqa: E731
    still = lambda p: torch.optim.AdamW(p, betas=(0.0, 0.99))  # noqa: E731
    clip = "dgc:clip=1,momentum=0"
    for name, make, codec, feedback, settings in (
        ("SGD", sgd, "topk", clip, {}), ("AdamW", torch.optim.AdamW, "topk", clip, {}),
        ("NAdam", torch.optim.NAdam, "topk", clip, {}), ("residual", sgd, "topk", "residual", {}),
        ("rule", sgd, "fp32", "auto", {"rules": {"4.*": {"codec": "topk", "feedback": "residual"}}}),
        ("taken over", sgd, "topk", "ahead:clip=1", {}), ("no momentum", plain, "topk", clip, {}),
        ("no first moment", still, "topk", clip, {}), ("dense", sgd, "int8", "residual", {}),
        ("follows the mean", sgd, "topk", "ef21", {}), ("meant", sgd, "topk", clip, {"momentum": "optimizer"}),
        ("first moment off", torch.optim.AdamW, "topk", "auto", {"rules": {"4.*": {"codec": "topk", "feedback": "residual"}}}),
    ):
        model = DistributedDataParallel(make_net())
        with warnings.catch_warnings(record=True) as texts:
            warnings.simplefilter("always")
            tw.compress(model, codec, optimizer=make(model.parameters()), feedback=feedback, **settings)
        found[name] = [str(one.message) for one in texts]
    return found


class MomentumWarnings(unittest.TestCase):
    def test_an_optimiser_that_is_not_named_is_a_warning(self):
        for found in on_ranks(2, warned):
            self.assertEqual({name: len(texts) for name, texts in found.items()},
                             {"unnamed": 1, "meant": 0, "dense": 0, "none": 0, "rounded": 0, "chosen": 0,
                              "rule": 1, "of no tensor": 0})
            self.assertIn("codec 'topk'", found["unnamed"][0])

    def test_each_of_two_links_warns_once_and_both_go_on(self):
        for files in on_ranks(2, warned_of_two):
            self.assertEqual(files, [__file__] * 2)

    def test_of_any_optimiser_that_is_not_named_is_a_warning(self):
        for found in on_ranks(2, warned_at_steps):
            self.assertEqual({name: len(texts) for name, texts in found.items()},
                             {"RMSprop": 1, "NAdam": 1, "RAdam": 1, "AdamW": 1, "no momentum": 0, "dense": 0, "meant": 0,
                              "chosen": 0, "second": 1, "second, twice": 1, "first": 1, "both": 1, "neither": 0})
            for name in ("RMSprop", "NAdam", "RAdam", "second"):
                self.assertIn("codec 'topk' leaves most values for later steps, and the optimizer's momentum acts", found[name][0])
                self.assertIn("a codec that sends all values, such as int8, has no bursts", found[name][0])
            self.assertIn("would act twice", found["second, twice"][0])

    def test_of_an_unknown_optimiser_is_a_warning(self):
        for found in on_ranks(2, warned_of_strangers):
            self.assertEqual({name: len(texts) for name, texts in found.items()},
                             {"NAdam": 1, "RMSprop": 1, "no momentum": 0, "dense": 0, "meant": 0, "AdamW": 0, "SGD": 0})
            text, file = found["NAdam"][0]
            self.assertIn("codec 'topk' leaves most values for later steps, and the momentum of NAdam acts", text)
            self.assertIn("a codec that sends all values, such as int8, has no bursts", text)
            self.assertEqual(file, __file__)

    def test_beside_a_memory_with_momentum_is_refused_or_a_warning(self):
        for named, unnamed in on_ranks(2, twice):
            fine = {"plain SGD", "no first moment", "no velocity"}
            taken_over = {"SGD"}  # by the memory, if compress is told of the optimiser
            for name, text in named.items():
                if name in fine | taken_over:
                    self.assertEqual(text, "nothing", name)
                else:
                    self.assertIn("would act twice: memory ", text, name)
            self.assertIn("set the optimiser's to 0, or give the memory momentum=0", named["AdamW"])
            self.assertIn("the optimiser one of 0.5", named["RMSprop"])
            self.assertIn("rule '4.*'", named["rule"])
            for name, texts in unnamed.items():
                if name in fine | {"of no tensor"}:
                    self.assertEqual(texts, [], name)
                else:
                    self.assertEqual([file for _, file in texts], [train.__code__.co_filename], name)
                    self.assertIn("would act twice: memory ", texts[0][0])

    def test_beside_a_memory_with_momentum_is_no_change(self):
        for found, texts in on_ranks(2, changed_to_twice):
            for text in found[::2]:
                self.assertIn("rule '*.weight': momentum: would act twice: memory 'velocity'", text)
            self.assertEqual(found[1::2], [True] * 4)
            self.assertEqual(len(texts), 1)
            self.assertIn("memory 'momentum' has a momentum of 0.9", texts[0])

    def test_on_the_mean_because_of_the_memory_that_is_named_is_a_warning(self):
        for found in on_ranks(2, warned_of_memories):
            self.assertEqual({name for name, texts in found.items() if texts},
                             {"SGD", "AdamW", "NAdam", "residual", "rule"})
            self.assertEqual({len(texts) for texts in found.values()}, {0, 1})
            self.assertIn("beside memory 'dgc:clip=1,momentum=0' the optimizer's momentum acts", found["SGD"][0])
            self.assertIn("name ahead or dgc without the option momentum", found["SGD"][0])
            self.assertIn("set the first of its betas to 0", found["AdamW"][0])


if __name__ == "__main__":
    unittest.main()
