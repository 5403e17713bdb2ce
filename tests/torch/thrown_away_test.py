"""Gradients that a script throws away, as those of a generator's loss through a discriminator. SPDX-License-Identifier:
Apache-2.0"""
import contextlib
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import backward, batch_of, make_net, train, weights_of
from passes_test import said_of
from ranks import error_of, on_ranks

TOPK = "topk:density=0.1"
OPTIMIZERS = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "plain": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
}


class Gan:
    """The usual loop, in which the pass of the generator's loss comes behind the discriminator's step."""

    def __init__(self, kind, codec, rank):
        import thinwire.torch as tw
        torch.manual_seed(0)
        self.generator = DistributedDataParallel(nn.Linear(8, 32))
        self.critic = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)))
        self.optimizers = [OPTIMIZERS[kind](model.parameters()) for model in (self.generator, self.critic)]
        self.links = [tw.compress(model, codec, optimizer=optimizer)
                      for model, optimizer in zip((self.generator, self.critic), self.optimizers)]
        self.draws = torch.Generator().manual_seed(rank + 1)

    def step(self, around=contextlib.nullcontext):
        of_generator, of_critic = self.optimizers
        real = torch.randn(16, 32, generator=self.draws) * 0.3 + 1
        fake = self.generator(torch.randn(16, 8, generator=self.draws))
        of_critic.zero_grad()
        judged = self.critic(torch.cat([real, fake.detach()]))
        nn.functional.softplus(torch.cat([-judged[:16], judged[16:]])).mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        with around():
            nn.functional.softplus(-self.critic(fake)).mean().backward()
        of_generator.step()

    @contextlib.contextmanager
    def frozen(self):
        self.critic.requires_grad_(False)
        yield
        self.critic.requires_grad_(True)

    @contextlib.contextmanager
    def skipped(self):
        self.links[1].skip_step()
        yield


def gans(rank, size):
    found = {}
    for kind in OPTIMIZERS:
        found[kind] = error_of(Gan(kind, TOPK, rank).step)
        ends = []
        for way in ("skipped", "no_sync", "frozen"):
            gan = Gan(kind, TOPK, rank)
            around = gan.critic.no_sync if way == "no_sync" else getattr(gan, way)
            said = said_of(lambda: [gan.step(around) for _ in range(5)])
            ends.append((weights_of(gan.critic), weights_of(gan.generator)))
            found[f"{kind} {way}"] = [text for text in said if "gradients" in text]
        found[f"{kind} same"] = all(torch.equal(one, first) for end in ends for one, first in zip(end, ends[0]))
    lossless = Gan("plain", "fp32", rank)
    found["fp32"] = error_of(lambda: [lossless.step() for _ in range(3)])
    return found


def accumulated(rank, size):
    """What the pass that exchanges is told behind some under no_sync that add to a mean that was used, and behind zero_grad."""
    import thinwire.torch as tw
    found = []
    for passes, in_buckets in ((1, False), (3, False), (2, True)):
        model = DistributedDataParallel(make_net(), gradient_as_bucket_view=in_buckets)
        optimizer = OPTIMIZERS["adam"](model.parameters())
        tw.compress(model, TOPK, optimizer=optimizer)
        train(model, optimizer, rank, 2)
        optimizer.zero_grad()
        backward(model, 0, rank)
        optimizer.step()
        with model.no_sync():
            for number in range(passes):
                backward(model, number, rank)
        found.append(error_of(lambda: backward(model, 0, rank)))
        for to_none in (False, True):
            optimizer.zero_grad(set_to_none=to_none)
            with model.no_sync():
                backward(model, 0, rank)
            found.append(error_of(lambda: backward(model, 1, rank)))
            optimizer.step()
    return found


def zeroed(rank, size):
    """How often it is said that gradients were zeroed without a step."""
    import thinwire.torch as tw

    def said(kind, codec=TOPK, way=None):
        model = DistributedDataParallel(make_net())
        optimizer = OPTIMIZERS[kind](model.parameters())
        link = tw.compress(model, codec, optimizer=optimizer)

        def steps():
            for number in range(6):
                optimizer.zero_grad()
                backward(model, number, rank)
                optimizer.step()
                optimizer.zero_grad()
                if way == "skip":
                    link.skip_step()
                with model.no_sync() if way == "no_sync" else contextlib.nullcontext():
                    backward(model, number, rank)
        texts = said_of(steps)
        return [sum(part in text for text in texts) for part in ("were exchanged and thrown away", "were exchanged 2 times")]

    return {"momentum": said("momentum"), "adam": said("adam"), "plain": said("plain"), "fp32": said("plain", "fp32"),
            "skip": said("adam", way="skip"), "no_sync": said("adam", way="no_sync")}


def usual(rank, size):
    """Loops of which nothing is to be said."""
    import thinwire.torch as tw

    def run(steps, kind="adam", codec=TOPK, **of_optimizer):
        model = DistributedDataParallel(make_net())
        optimizer = OPTIMIZERS[kind](model.parameters()) if kind in OPTIMIZERS else torch.optim.LBFGS(
            model.parameters(), max_iter=3, line_search_fn="strong_wolfe")
        tw.compress(model, codec, optimizer=optimizer if kind in OPTIMIZERS else None)
        texts = []
        error = error_of(lambda: texts.extend(said_of(lambda: [steps(model, optimizer, number) for number in range(3)])))
        return error, [text for text in texts if "gradients" in text]

    def zeroes_behind(to_none):
        def steps(model, optimizer, number):
            backward(model, number, rank)
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)
        return steps

    def zeroes_before(to_none):
        def steps(model, optimizer, number):
            images, labels = batch_of(number, rank)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=to_none)
            loss.backward()
            optimizer.step()
        return steps

    def accumulates(inside, to_none):
        """Under no_sync, or past DistributedDataParallel; a step is left out."""
        def steps(model, optimizer, number):
            optimizer.zero_grad(set_to_none=to_none)
            if inside:
                backward(model.module, number, rank)
            else:
                with model.no_sync():
                    backward(model, number, rank)
            backward(model, number + 1, rank)
            optimizer.step()
        return steps

    def evaluates(model, optimizer, number):
        """By gradients that nobody uses, behind a step and before zero_grad."""
        images = batch_of(number, rank)[0].requires_grad_()
        with model.no_sync():
            torch.autograd.grad(model(images).sum(), images)
            backward(model, number, rank)
        zeroes_before(True)(model, optimizer, number)

    def differentiates(model, optimizer, number):
        """By its parameters, once and twice, behind an exchange and behind a step."""
        images, labels = batch_of(number, rank)
        parameters = [*model.parameters()]

        def look():
            with model.no_sync():
                loss = nn.functional.cross_entropy(model(images), labels)
            slopes = torch.autograd.grad(loss, parameters, create_graph=True)
            torch.autograd.grad(slopes, parameters, [torch.ones_like(one) for one in slopes])
        optimizer.zero_grad()
        backward(model, number, rank)
        look()
        optimizer.step()
        look()

    def with_closure(model, optimizer, number):
        def closure():
            optimizer.zero_grad()
            images, labels = batch_of(0, 0)
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            return loss
        optimizer.step(closure)

    def unstepped(model, optimizer, number):
        """Passes of one step, each of which exchanges: their sum, as without thinwire."""
        optimizer.zero_grad()
        backward(model, number, rank)
        backward(model, number, rank)
        optimizer.step()

    def by_hand(model, optimizer, number):
        model.zero_grad()
        backward(model, number, rank)

    def left_out(model, optimizer, number):
        """The first step, behind which a sum begins under no_sync."""
        optimizer.zero_grad()
        with model.no_sync():
            backward(model, number, rank)
        backward(model, number, rank)
        if number != 0:
            optimizer.step()

    found = {"lbfgs": run(with_closure, "lbfgs"), "closure": run(with_closure, "momentum"), "evaluates": run(evaluates),
             "unstepped": run(unstepped), "by hand": run(by_hand), "left out": run(left_out, "momentum")}
    for kind in OPTIMIZERS:
        found[f"differentiates {kind}"] = run(differentiates, kind)
        for to_none in (True, False):
            found[f"behind {kind} {to_none}"] = run(zeroes_behind(to_none), kind)
            found[f"before {kind} {to_none}"] = run(zeroes_before(to_none), kind)
            found[f"no_sync {kind} {to_none}"] = run(accumulates(False, to_none), kind)
            found[f"module {kind} {to_none}"] = run(accumulates(True, to_none), kind)
    return found


class ThrownAway(unittest.TestCase):
    maxDiff = None

    def test_gradients_of_a_generators_loss_are_refused(self):
        for found in on_ranks(2, gans):
            self.assertEqual(found.pop("fp32"), "nothing")
            for kind in OPTIMIZERS:
                self.assertRegex(found.pop(kind), "optimizer.zero_grad\\(\\).*all gradients .*link.skip_step\\(\\) on all ranks.*"
                                 "no_sync\\(\\).*requires_grad_.*one DistributedDataParallel and one link for each part$")
                self.assertTrue(found.pop(f"{kind} same"), kind)
            self.assertEqual(found, dict.fromkeys(found, []))

    def test_gradients_that_are_added_to_a_mean_that_was_used_are_refused(self):
        for found in on_ranks(2, accumulated):
            self.assertEqual([text[:55] for text in found],
                             ["backward: .grad still has the mean with which the optim", "nothing", "nothing"] * 3)

    def test_gradients_that_were_zeroed_are_a_warning(self):
        for found in on_ranks(2, zeroed):
            self.assertEqual(found, {"momentum": [0, 1], "adam": [1, 0], "plain": [1, 0], "fp32": [0, 0], "skip": [0, 0],
                                     "no_sync": [0, 0]})

    def test_gradients_of_usual_loops_are_none(self):
        for found in on_ranks(2, usual):
            error, (text,) = found.pop("left out")
            self.assertRegex(f"{error}: {text}", "nothing: gradients were exchanged 2 times")
            self.assertEqual(found, dict.fromkeys(found, ("nothing", [])))


if __name__ == "__main__":
    unittest.main()
