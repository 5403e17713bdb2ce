"""An optimiser's momentum in the link's memories: torch's SGD where nothing is lost. SPDX-License-Identifier: Apache-2.0"""
import gc
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from momentum_runs import STEPS, Run, away
from nets import batch_of, make_net, train, weights_of
from ranks import error_of, on_ranks


def is_sgd(rank, size):
    plain = Run(None).steps(rank, 0, STEPS)
    found = {}
    for name, codec, settings in (
        ("fp32", "fp32", {"momentum": "memory"}),
        ("topk", "topk:density=1", {}),
        ("model", "topk:density=1", {"grouping": "model"}),
        ("rules", "topk:density=1", {"rules": {"4.*": "fp32", "*.bias": "fp32"}}),
        ("optimizer", "fp32", {}),
    ):
        found[name] = away(plain, Run(codec, settings=settings).steps(rank, 0, STEPS))
    for name, options in (("maximize", {"maximize": True}), ("foreach", {"foreach": False})):
        found[name] = away(Run(None, options).steps(rank, 0, STEPS),
                           Run("topk:density=1", options).steps(rank, 0, STEPS))
    return found


def takes_over_and_gives_back(rank, size):
    import thinwire.torch as tw
    found = {}
    for maximize in (False, True):
        options = {"maximize": maximize}
        late, undampened = Run(None, options), Run(None, options)
        for run in (late, undampened):
            for group in run.optimizer.param_groups:
                group["dampening"] = 0
        late.steps(rank, 0, 3).compress(tw, "topk:density=1")
        found["taken over", maximize] = away(undampened.steps(rank, 0, STEPS), late.steps(rank, 3, STEPS))
        plain = Run(None, options).steps(rank, 0, STEPS)
        for grouping, rules in (("tensor", {}), ("model", {}), ("model", {"4.*": "topk:density=1,block=4096"})):
            early = Run("topk:density=1", options, {"grouping": grouping, "rules": rules}).steps(rank, 0, 4)
            before = [dict(group, params=None) for group in early.optimizer.param_groups]
            early.link.release_optimizer()
            assert [dict(group, params=None) for group in early.optimizer.param_groups] == before
            found[grouping, str(rules), maximize] = away(plain, early.steps(rank, 4, STEPS))
    return found


def dampened(rank, size):
    import thinwire
    import thinwire.torch as tw
    run = Run(None).steps(rank, 0, 1)
    try:
        run.compress(tw, "topk:density=1")
    except thinwire.Error as error:
        return str(error)
    return "nothing"


def skipped(rank, size):
    """A step that one rank spoils is as if it had never been."""
    found = []
    for codec, settings in (("fp32", {"momentum": "memory"}), ("topk:density=1", {})):
        run = Run(codec, settings=settings).steps(rank, 0, STEPS, poisoned=3)
        plain = Run(None).steps(rank, 0, 3).steps(rank, 4, STEPS)
        # Batch norm's own statistics saw the batch, and play no part in training.
        found.append(away(plain, run))
    return found


def resumed(rank, size):
    straight = Run("topk:density=0.05").steps(rank, 0, STEPS)
    first = Run("topk:density=0.05").steps(rank, 0, 4)
    again = Run("topk:density=0.05")
    again.model.load_state_dict(first.model.state_dict())
    again.optimizer.load_state_dict(first.optimizer.state_dict())
    again.link.load_state_dict(first.link.state_dict())
    again.steps(rank, 4, STEPS)
    return weights_of(again.model), weights_of(straight.model)


class Wrapper(torch.optim.Optimizer):
    """As frameworks wrap an optimiser: an Optimizer that is none of torch's and has it inside."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        self.optimizer.step()


def wrapped(rank, size):
    """Weights with an optimiser in two wrappers, and with the optimiser itself."""
    found = []
    for wrap in (lambda optimizer: optimizer, lambda optimizer: Wrapper(Wrapper(optimizer))):
        import thinwire.torch as tw
        run = Run(None)
        run.optimizer = wrap(run.optimizer)
        run.compress(tw, "topk:density=0.05")
        found.append(weights_of(run.steps(rank, 0, STEPS).model))
    return found


def with_closures(rank, size):
    """Weights and the last loss of steps that are given a closure, and of steps after backward()."""
    import thinwire.torch as tw
    found = []
    for by_name in (None, False, True):
        run = Run(None)
        run.compress(tw, "topk:density=0.05")
        for step in range(STEPS):
            images, labels = batch_of(step, rank)

            def closure():
                run.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(run.model(images), labels)
                loss.backward()
                return loss

            if by_name is None:
                loss = closure()
                run.optimizer.step()
            else:
                loss = run.optimizer.step(closure=closure) if by_name else run.optimizer.step(closure)
        found.append((weights_of(run.model), loss.item()))
    return found


class Odd(torch.optim.Optimizer):
    """One whose groups say something of another kind by names that are usual for numbers."""

    def __init__(self, parameters, **settings):
        super().__init__(parameters, settings)

    def step(self, closure=None):
        pass


def odd(rank, size):
    import thinwire.torch as tw
    found = {}
    for name, settings in (("betas", {"betas": 0.9}), ("no betas", {"betas": ()}), ("momentum", {"momentum": (0.9, 0.8)}),
                           ("text", {"momentum": "heavy", "betas": "none"}), ("nothing", {"momentum": None, "betas": None})):
        for named in (True, False):
            model = DistributedDataParallel(make_net())
            optimizer = Odd(model.parameters(), **settings)

            def step():
                tw.compress(model, "topk:density=0.1", optimizer=optimizer if named else None)
                train(model, optimizer, rank, 2)
            found[name, named] = error_of(step)
    return found


def channels_last(rank, size):
    """Released in the middle, where values of a convolution lie in another order than rows of its shape."""
    def run(codec):
        model = DistributedDataParallel(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(96, 4))
                                        .to(memory_format=torch.channels_last))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        import thinwire.torch as tw
        link = codec and tw.compress(model, codec, optimizer=optimizer)
        train(model, optimizer, rank, 3)
        if link:
            link.release_optimizer()
        train(model, optimizer, rank, 3, first=3)
        return model, link

    torch.manual_seed(5)
    plain, _ = run(None)
    torch.manual_seed(5)
    ours, link = run("topk:density=1")
    torch.manual_seed(5)
    other = DistributedDataParallel(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(96, 4)))
    import thinwire.torch as tw
    optimizer = torch.optim.SGD(other.parameters(), lr=0.05, momentum=0.9)
    refusal = error_of(lambda: tw.compress(other, "topk:density=1", optimizer=optimizer).load_state_dict(link.state_dict()))
    whole = DistributedDataParallel(other.module)
    tw.compress(whole, "fp32").load_state_dict(tw.compress(plain, "fp32").state_dict())  # which remember nothing
    return (weights_of(plain) - weights_of(ours)).abs().max().item(), refusal


def dampened_apart(rank, size):
    """Weights of groups of which the first alone is dampened, and of a run that goes on in the middle."""
    def make():
        run = Run(None)
        for group in run.optimizer.param_groups:
            group["dampening"] = 0.0
        run.optimizer.param_groups[0]["dampening"] = 0.5
        import thinwire.torch as tw
        run.compress(tw, "topk:density=0.05")
        return run

    whole = make().steps(rank, 0, STEPS)
    first, again = make().steps(rank, 0, 4), make()
    again.model.load_state_dict(first.model.state_dict())
    again.optimizer.load_state_dict(first.optimizer.state_dict())
    again.link.load_state_dict(first.link.state_dict())
    return weights_of(whole.model), weights_of(again.steps(rank, 4, STEPS).model)


def scheduled_to_one(rank, size):
    """What a step is told whose group's momentum a scheduler has set to 1."""
    run = Run("topk:density=0.05").steps(rank, 0, 2)
    for group in run.optimizer.param_groups:
        group["momentum"] = 1.0
    return error_of(lambda: run.steps(rank, 2, 3)), weights_of(run.model).isfinite().all().item()


def refused(rank, size):
    import thinwire
    import thinwire.torch as tw
    found = []
    model = DistributedDataParallel(make_net())
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    alien = torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)
    for settings in (
        {"momentum": "memory"},
        {"momentum": "memory", "optimizer": torch.optim.AdamW(model.parameters())},
        {"optimizer": sgd, "feedback": "dgc:momentum=0.5"},
        {"optimizer": sgd, "momentum": "memory", "feedback": "residual"},
        {"optimizer": sgd, "momentum": "elsewhere"},
        {"optimizer": alien},
    ):
        try:
            tw.compress(model, "topk", **settings)
            found.append("nothing")
        except thinwire.Error as error:
            found.append(str(error))
    hooks = len(sgd._optimizer_step_pre_hooks) + len(alien._optimizer_step_pre_hooks)
    link = tw.compress(model, "topk", optimizer=sgd)
    attached = len(sgd._optimizer_step_pre_hooks)
    model, link = None, None
    gc.collect()
    left = len(sgd._optimizer_step_pre_hooks) + len(sgd._optimizer_state_dict_post_hooks)
    return found, hooks, attached, left


class OptimizerMomentum(unittest.TestCase):
    def test_is_torchs_sgd_where_nothing_is_lost(self):
        for found in on_ranks(2, is_sgd):
            for name, distance in found.items():
                self.assertLess(distance, 2e-6, name)

    def test_is_taken_over_and_given_back(self):
        for found in on_ranks(2, takes_over_and_gives_back):
            for name, distance in found.items():
                self.assertLess(distance, 2e-6, name)

    def test_a_dampened_one_is_taken_over_before_its_first_step_or_not_at_all(self):
        for said in on_ranks(2, dampened):
            self.assertIn("an optimizer with dampening that has taken steps cannot be taken over", said)

    def test_a_skipped_step_leaves_no_trace(self):
        for found in on_ranks(2, skipped):
            for distance in found:
                self.assertLess(distance, 2e-6)

    def test_is_resumed_bit_for_bit(self):
        results = on_ranks(2, resumed)
        for again, straight in results:
            self.assertTrue(torch.equal(again, straight))
        self.assertTrue(torch.equal(results[0][0], results[1][0]))

    def test_is_found_inside_wrappers(self):
        for plain, inside in on_ranks(2, wrapped):
            self.assertTrue(torch.equal(plain, inside))

    def test_takes_closures(self):
        for plain, given, named in on_ranks(2, with_closures):
            for weights, loss in (given, named):
                self.assertTrue(torch.equal(weights, plain[0]))
                self.assertEqual(loss, plain[1])

    def test_that_is_no_number_counts_as_none(self):
        for found in on_ranks(2, odd):
            self.assertEqual(found, dict.fromkeys(found, "nothing"))

    def test_goes_back_to_parameters_in_channels_last(self):
        for distance, refusal in on_ranks(2, channels_last):
            self.assertLess(distance, 2e-6)
            self.assertRegex(refusal, "the state of '1.weight' was saved with strides .*, here it has its rows in order")

    def test_is_resumed_where_the_first_group_alone_is_dampened(self):
        for whole, again in on_ranks(2, dampened_apart):
            self.assertTrue(torch.equal(whole, again))

    def test_a_momentum_of_one_is_an_error_of_all_ranks(self):
        for said, finite in on_ranks(2, scheduled_to_one):
            self.assertIn("is 1; it is a number from 0 to 0.999999", said)
            self.assertTrue(finite)

    def test_mistakes_are_refused_and_leave_the_optimiser_alone(self):
        for found, hooks, attached, left in on_ranks(2, refused):
            for text, part in zip(found, ("name the optimizer", "AdamW has no momentum", "would act twice",
                                          "cannot take it over", "momentum is 'elsewhere'; known: auto, memory, optimizer",
                                          "1 parameters of the optimizer are not of the model")):
                self.assertIn(part, text)
            self.assertEqual((hooks, attached, left), (0, 2, 0))  # of the momentum, and of steps that pass the link by


if __name__ == "__main__":
    unittest.main()
