"""Passes that would do harm: a second exchange before the optimiser's step, passes of a link that has ended, and steps whose
gradients do not come through the link. SPDX-License-Identifier: Apache-2.0"""
import contextlib
import copy
import dataclasses
import gc
import io
import unittest
import warnings
import weakref

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import backward, batch_of, make_net, train, weights_of
from ranks import error_of, on_ranks

FP32 = {"codec": "fp32", "momentum": "memory"}


class Run:
    def __init__(self, codec="topk:density=1", net=None, of_model=None, **settings):
        import thinwire.torch as tw
        self.model = DistributedDataParallel(net or make_net(), **(of_model or {}))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.link = tw.compress(self.model, codec, optimizer=self.optimizer, **settings)


class TwoOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = make_net(), nn.Linear(4, 3)

    def forward(self, images):
        classes = self.body(images)
        return {"classes": classes, "extra": self.head(classes)}


@dataclasses.dataclass
class Output:
    parts: list
    whole: "Output" = None

    def __post_init__(self):
        self.whole = self  # nobody who looks for tensors is to go round


class InDataclass(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = make_net()

    def forward(self, images):
        return Output([Output([self.body(images)])])


def said_of(call):
    with warnings.catch_warnings(record=True) as texts:
        warnings.simplefilter("always")
        call()
    return [f"{one.message}" for one in texts]


def two_passes(rank, size):
    """What a second backward pass before the optimiser's step says, and what the weights are away from SGD's once such a
    step was given up."""
    found = {}
    for name, settings in (("fp32", FP32), ("topk", {}), ("views", {"of_model": {"gradient_as_bucket_view": True}}),
                           ("static", {"of_model": {"static_graph": True}}), ("optimizer", {"momentum": "optimizer"})):
        run = Run(**settings)
        backward(run.model, 0, rank)
        run.model.eval()  # says nothing of whether gradients are exchanged
        found[name] = error_of(lambda: backward(run.model, 1, rank))
    for name in ("a pass without sync between forward and backward", "a forward pass that was never followed by its own"):
        run = Run(**FP32)
        backward(run.model, 0, rank)
        images, labels = batch_of(1, rank)
        losses = [nn.functional.cross_entropy(run.model(images), labels)]
        with run.model.no_sync():  # torch exchanges the gradients of the next backward pass, whichever it is
            losses.append(nn.functional.cross_entropy(run.model(images), labels))
        found[name] = error_of(losses["never" in name].backward)
    run = Run(net=InDataclass(), **FP32)
    for number in range(2):
        outputs = run.model(batch_of(number, rank)[0])
        found["dataclass"] = error_of(outputs.parts[0].parts[0].square().sum().backward)
    run = Run(**FP32)
    train(run.model, run.optimizer, rank, 2)
    run.optimizer.zero_grad()
    backward(run.model, 2, rank)
    said_of(lambda: error_of(lambda: backward(run.model, 3, rank)))
    found["steps of the link"] = run.link.metrics()["step"]
    run.optimizer.zero_grad()
    backward(run.model, 3, rank)  # goes on
    run.optimizer.step()
    return found


def harmless(rank, size):
    """Passes that look like a second exchange and are none, each for three steps."""
    def run(passes, scaler=None, **settings):
        run = Run(**FP32, scaler=scaler, **settings)
        for number in range(3):
            passes(run, number)
        return weights_of(run.model)

    def accumulated(run, number):
        with run.model.no_sync():
            backward(run.model, 2 * number, rank)
        backward(run.model, 2 * number + 1, rank)
        run.optimizer.step()
        run.optimizer.zero_grad()

    def left_out(to_none):
        """Every other step is not taken, and gradients are zeroed between forward and backward pass."""
        def passes(run, number):
            images, labels = batch_of(number, rank)
            loss = nn.functional.cross_entropy(run.model(images), labels)
            run.optimizer.zero_grad(set_to_none=to_none)
            loss.backward()
            if number % 2 == 0:
                run.optimizer.step()
        return passes

    def scaled(scaler, to_none):
        def passes(run, number):
            images, labels = batch_of(number, rank)
            loss = nn.functional.cross_entropy(run.model(images), labels)
            scaler.scale(loss * (float("inf") if number == 1 else 1)).backward()
            scaler.step(run.optimizer)
            scaler.update()
            run.optimizer.zero_grad(set_to_none=to_none)
        return passes

    def evaluated(with_gradients):
        def passes(run, number):
            backward(run.model, number, rank)
            with contextlib.nullcontext() if with_gradients else torch.no_grad():
                run.model(batch_of(number, rank)[0])
            run.optimizer.step()
            run.optimizer.zero_grad()
        return passes

    def retained(run, number):
        """The second backward pass of a forward pass exchanges nothing."""
        images, labels = batch_of(number, rank)
        loss = nn.functional.cross_entropy(run.model(images), labels)
        loss.backward(retain_graph=True)
        loss.backward()
        run.optimizer.step()
        run.optimizer.zero_grad()

    def several(run, number):
        """One step is not taken; the head has its gradient before the pass reaches the first output."""
        images, labels = batch_of(number, rank)
        run.optimizer.zero_grad()
        outputs = run.model(images)
        (nn.functional.cross_entropy(outputs["classes"], labels) + outputs["extra"].square().mean()).backward()
        if number != 1:
            run.optimizer.step()

    def penalised(run, number):
        """The slope is taken before the gradients of a pass whose step was not taken are zeroed."""
        images, labels = batch_of(number, rank)
        images.requires_grad_()
        outputs = run.model(images)
        slope = torch.autograd.grad(outputs.sum(), images, create_graph=True)[0].square().mean()
        run.optimizer.zero_grad()
        (nn.functional.cross_entropy(outputs, labels) + slope).backward()
        if number != 1:
            run.optimizer.step()

    found = {"accumulated": run(accumulated), "evaluated": run(evaluated(False)), "with gradients": run(evaluated(True)),
             "retained": run(retained), "several": run(several, net=TwoOutputs()), "penalised": run(penalised)}
    for to_none in (True, False):
        found[f"left out {to_none}"] = run(left_out(to_none))
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        found[f"scaled {to_none}"] = run(scaled(scaler, to_none), scaler=scaler)
    return {name: weights.isfinite().all().item() for name, weights in found.items()}


def behind_an_error(rank, size):
    """What passes say of a link that has ended."""
    run = Run("fp32", max_skipped=1)
    train(run.model, run.optimizer, rank, 2)
    images, labels = batch_of(2, rank)
    poison = float("nan") if rank == 1 else 1.0
    texts = [error_of(lambda: nn.functional.cross_entropy(run.model(images * poison), labels).backward())]
    with torch.no_grad():
        run.model(images)  # may still be evaluated
    texts += [error_of(lambda: run.model(images)), error_of(lambda: run.model(images))]
    copy.deepcopy(run.model)(images)  # has no link
    return texts


def converted(rank, size):
    """What is said of a model of another type than it was, and of one that went back to it."""
    run = Run("topk:density=0.1")
    train(run.model, run.optimizer, rank, 1)
    run.model.double()
    text = error_of(lambda: run.model(batch_of(1, rank)[0].double()))
    run.model.float()
    train(run.model, run.optimizer, rank, 1, first=1)
    return text


def saved_whole(rank, size):
    """What is said of an output that is saved."""
    run = Run("topk:density=0.1")
    train(run.model, run.optimizer, rank, 1)
    return said_of(lambda: torch.save(run.model(batch_of(1, rank)[0]), io.BytesIO()))


def around_the_link(rank, size):
    """How often it is said that the optimiser's steps pass the link by, and what it keeps of momentum then."""
    def said(steps, **settings):
        run = Run(**settings)
        train(run.model, run.optimizer, rank, 2)
        return sum("did not come through the link" in text for text in said_of(lambda: steps(run)))

    def wrapped_anew(run):
        model = DistributedDataParallel(run.model.module)
        train(model, run.optimizer, rank, 8)

    def in_turn(run):
        model = DistributedDataParallel(run.model.module)
        for number in range(4):
            train(model, run.optimizer, rank, 2)
            train(run.model, run.optimizer, rank, 1)

    def released(run):
        run.link.release_optimizer()
        wrapped_anew(run)

    def without_gradients(run):
        for number in range(4):
            run.optimizer.zero_grad()
            run.optimizer.step()

    def skipped(run):
        for number in range(4):
            run.link.skip_step()
            train(run.model, run.optimizer, rank, 1)

    def evaluated(run):
        def closure():
            run.optimizer.zero_grad()
            backward(run.model, 0, rank)
        for number in range(4):
            run.optimizer.step(closure)

    found = {call.__name__: said(call) for call in (wrapped_anew, in_turn, released, without_gradients, skipped, evaluated)}
    found["optimizer"] = said(wrapped_anew, momentum="optimizer")
    return found


def without_a_name(rank, size):
    """Whether a link that no variable holds is there, and the optimiser's own momentum: beside the model, and behind it."""
    run = Run()
    train(run.model, run.optimizer, rank, 2)
    link, run.link = weakref.ref(run.link), None
    gc.collect()
    train(run.model, run.optimizer, rank, 2)
    found = [link() is not None, "momentum_buffer" in next(iter(run.optimizer.state.values()), {})]
    net, run.model = run.model.module, None
    gc.collect()
    train(DistributedDataParallel(net), run.optimizer, rank, 1)
    return found + [link() is not None, "momentum_buffer" in next(iter(run.optimizer.state.values()), {})]


class Passes(unittest.TestCase):
    def test_that_exchange_a_mean_again_are_an_error(self):
        for found in on_ranks(2, two_passes):
            self.assertEqual(found.pop("optimizer"), "nothing")
            self.assertEqual(found.pop("steps of the link"), 3)
            for name, text in found.items():
                self.assertRegex(text, "no_sync\\(\\), or give compress momentum=\"optimizer\"", name)

    def test_that_exchange_no_mean_again_are_none(self):
        for found in on_ranks(2, harmless):
            self.assertEqual(found, dict.fromkeys(found, True))

    def test_behind_an_error_name_it(self):
        for first, second, third in on_ranks(2, behind_an_error):
            self.assertRegex(first, "rank 1 has a NaN or Inf in step 2")
            self.assertRegex(second, "^the link ended in step 2, by NonFiniteError: .*rank 1 has a NaN or Inf in step 2")
            self.assertEqual(second, third)

    def test_leave_outputs_that_can_be_saved(self):
        for said in on_ranks(2, saved_whole):
            self.assertEqual(said, [])

    def test_of_a_model_of_another_type_are_an_error(self):
        for text in on_ranks(2, converted):
            self.assertRegex(text, "parameter '0.weight' was of type torch.float32 .* is of torch.float64 now")


class Steps(unittest.TestCase):
    def test_that_pass_the_link_by_are_a_warning(self):
        for found in on_ranks(2, around_the_link):
            self.assertEqual(found, {**dict.fromkeys(found, 0), "wrapped_anew": 1})

    def test_are_those_of_the_link_as_long_as_the_model_is_there(self):
        for found in on_ranks(2, without_a_name):
            self.assertEqual(found, [True, False, False, True])


if __name__ == "__main__":
    unittest.main()
