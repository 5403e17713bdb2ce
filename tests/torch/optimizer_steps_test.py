"""What links do with the steps of an optimiser: of derived classes, behind other links, and with several exchanges.
SPDX-License-Identifier: Apache-2.0"""
import contextlib
import unittest
import warnings

import torch
from torch import nn
from torch.distributed.algorithms import Join
from torch.nn.parallel import DistributedDataParallel

from momentum_runs import Run
from nets import backward, batch_of, make_net, train, weights_of
from ranks import error_of, on_ranks


class Derived(torch.optim.SGD):
    """Torch runs the hooks of its steps twice, for its own step and for SGD's."""

    def step(self, closure=None):
        return super().step(closure)


class Early(torch.optim.SGD):
    """Calls the closure itself, and SGD's step without one."""

    def step(self, closure=None):
        loss = closure() if closure else None
        super().step()
        return loss


def of_a_derived_class(rank, size):
    """How far it is from SGD: with a closure and without, and where a step that failed is made again."""
    import thinwire.torch as tw

    def run(of_class, uses_closure, codec, fails_at=None):
        model = DistributedDataParallel(make_net())
        optimizer = of_class(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.5)
        link = codec and tw.compress(model, codec, optimizer=optimizer)

        def closure():
            optimizer.zero_grad()
            images, labels = batch_of(step, rank)
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            return loss

        for step in range(4):
            if not uses_closure:
                closure()
            if step == fails_at:
                hook = optimizer.register_step_pre_hook(lambda *_: 1 / 0)  # behind those of the link
                assert error_of(lambda: optimizer.step(closure) if uses_closure else optimizer.step()) == "division by zero"
                hook.remove()
            optimizer.step(closure) if uses_closure else optimizer.step()
        assert optimizer.param_groups[0]["momentum"] == 0.9
        del link
        return weights_of(model)

    found = {}
    for closure in (False, True):
        plain = run(torch.optim.SGD, closure, None)
        for of_class in (Derived, Early):
            found[f"{of_class.__name__}, closure {closure}"] = (
                plain - run(of_class, closure, "topk:density=1")).abs().max().item()
    plain = run(torch.optim.SGD, False, None)
    found["again"] = (plain - run(torch.optim.SGD, False, "topk:density=1", fails_at=2)).abs().max().item()
    return found


def with_a_stranger(rank, size):
    """What is said in two steps of a parameter that came after the link, and the momentum between them."""
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    link = tw.compress(model, "topk:density=1", optimizer=optimizer)
    backward(model, 0, rank)
    stranger = nn.Parameter(torch.ones(1))
    stranger.grad = torch.ones(1)
    optimizer.add_param_group({"params": [stranger]})
    said = [(error_of(optimizer.step), optimizer.param_groups[0]["momentum"]) for _ in range(2)]
    del link
    return said


def of_two_links(rank, size):
    """How far training with a second link is from training without the first one, which is still there and has taken steps with
    another optimiser; and that with a second one whose making failed from training without that."""
    import thinwire.torch as tw

    def run(make, second, is_first_there, fails=False):
        net = make_net()
        optimizer = make(net.parameters())
        before = [{**group, "params": None} for group in optimizer.param_groups]
        models = [DistributedDataParallel(net) for _ in range(2)]
        links = [tw.compress(models[0], "topk:density=1", optimizer=optimizer)] if is_first_there or fails else []
        if fails:
            error_of(lambda: tw.compress(models[1], "topk:density=1", optimizer=optimizer, rules={"nothing*": "fp32"}))
        elif second:
            links.append(tw.compress(models[1], optimizer=optimizer, **second))
        model = models[0] if fails or not second else models[1]
        said = texts_of(lambda: train(model, optimizer, rank, 4))
        assert [{**group, "params": None} for group in optimizer.param_groups] == before
        assert not any("times since the last step" in text for text in said)
        del links
        return weights_of(net)

    found = {}
    for name, make in (("sgd", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01)),
                       ("adamw", lambda p: torch.optim.AdamW(p, lr=0.01))):
        for second in ({"codec": "topk:density=1"}, {"codec": "fp32"}, {"codec": "topk:density=1", "momentum": "optimizer"}):
            alone, behind = run(make, second, False), run(make, second, True)
            found[f"{name} {second}"] = (alone - behind).abs().max().item()
        alone, behind = run(make, None, True), run(make, None, True, fails=True)
        found[f"{name} failed"] = (alone - behind).abs().max().item()
    return found


class Lars(torch.optim.SGD):
    """Makes its steps itself, with a momentum of its own."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                buffer = self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
                rate = group["lr"] * parameter.norm() / (parameter.grad.norm() + 1e-3)
                parameter.sub_(buffer.mul_(group["momentum"]).add_(parameter.grad), alpha=rate.item())


class Bare(Derived):
    """Has no word for what SGD's groups have beside momentum, and gives SGD what it needs in its step."""

    def __init__(self, parameters, lr, momentum):
        super().__init__(parameters, lr=lr, momentum=momentum)
        del self.param_groups[0]["dampening"]

    def step(self, closure=None):
        self.param_groups[0]["dampening"] = 0
        loss = super().step(closure)
        del self.param_groups[0]["dampening"]
        return loss


class Sgdw(torch.optim.SGD):
    """Decays weights itself, apart from the momentum."""

    @torch.no_grad()
    def step(self, closure=None):
        decays = [group["weight_decay"] for group in self.param_groups]
        for group, decay in zip(self.param_groups, decays):
            for parameter in group["params"]:
                parameter.mul_(1 - group["lr"] * decay)
            group["weight_decay"] = 0
        loss = super().step(closure)
        for group, decay in zip(self.param_groups, decays):
            group["weight_decay"] = decay
        return loss


class Warming(torch.optim.SGD):
    """Sets its own momentum."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        for group in self.param_groups:
            group.update(momentum=0.9 if self.steps > 2 else 0.5)
        return super().step(closure)


def of_other_steps(rank, size):
    """Whether an optimiser trains as without a name, and what is said of it."""
    import thinwire.torch as tw

    def run(of_class, named):
        model = DistributedDataParallel(make_net())
        optimizer = of_class(model.parameters(), lr=0.01, momentum=0.9)
        said = texts_of(lambda: tw.compress(model, "topk:density=0.1", optimizer=optimizer if named else None))
        texts_of(lambda: train(model, optimizer, rank, 3))
        return weights_of(model), [text for text in said if "costs accuracy" in text]

    return {of_class.__name__: (torch.equal(run(of_class, True)[0], run(of_class, False)[0]), len(run(of_class, True)[1]))
            for of_class in (Lars, Bare, Sgdw, Warming)}


def with_hooks(rank, size):
    """Momenta and betas behind some steps in which hooks, registered before compress and after, set and read them: with a link
    and without."""
    import thinwire.torch as tw

    def run(make, is_first, is_linked):
        model = DistributedDataParallel(make_net())
        optimizer = make(model.parameters())
        group, seen = optimizer.param_groups[0], []
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)

        def hook(*_):
            seen.append((group.get("momentum"), group.get("betas"), group["weight_decay"]))
            schedule.step()
            if "betas" in group:
                group["betas"] = (group["betas"][0], group["betas"][1] * 0.99)

        if is_first:
            optimizer.register_step_post_hook(hook)
        link = is_linked and tw.compress(model, "topk:density=0.1", optimizer=optimizer)
        if not is_first:
            optimizer.register_step_post_hook(hook)
        train(model, optimizer, rank, 6)
        del link
        return seen, group.get("momentum"), group.get("betas")

    return {(kind.__name__, is_first): [run(lambda p: kind(p, lr=0.01, weight_decay=0.1, **options), is_first, is_linked)
                                        for is_linked in (False, True)]
            for kind, options in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.AdamW, {})) for is_first in (True, False)}


def behind_a_failed_step(rank, size):
    """What an optimiser's state says of its groups, and whether it loads one, behind a step that failed."""
    import thinwire.torch as tw
    found = {}
    for name, make in (("sgd", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01)),
                       ("adam", lambda p: torch.optim.Adam(p, lr=0.01))):
        model = DistributedDataParallel(make_net())
        optimizer = make(model.parameters())
        before = [{**group, "params": None} for group in optimizer.param_groups]
        link = tw.compress(model, "topk:density=0.1", optimizer=optimizer)

        def fail():
            hook = optimizer.register_step_pre_hook(lambda *_: 1 / 0)  # behind those of the link
            optimizer.zero_grad()
            backward(model, 0, rank)
            gradients = [parameter.grad for parameter in model.parameters()]
            error_of(optimizer.step)
            hook.remove()
            return gradients

        gradients = fail()
        groups = [{**group, "params": None} for group in optimizer.state_dict()["param_groups"]]
        same = [parameter.grad is one for parameter, one in zip(model.parameters(), gradients)]
        for group in groups:
            group.pop("thinwire", None)
        state = optimizer.state_dict()
        fail()
        optimizer.load_state_dict(state)
        after = [{**group, "params": None} for group in optimizer.param_groups]
        for group in after:
            group.pop("thinwire", None)
        found[name] = [groups == before, all(same), after == before]
        del link
    return found


def raised_later(rank, size):
    """What is said of an optimiser whose momentum was 0 when it was named."""
    import thinwire.torch as tw

    def said(codec, later, kind=torch.optim.SGD, **settings):
        model = DistributedDataParallel(make_net())
        options = {"momentum": 0.0} if kind is torch.optim.SGD else {"betas": (0.0, 0.9)}
        optimizer = kind(model.parameters(), lr=0.01, **options)
        tw.compress(model, codec, optimizer=optimizer, **settings)

        def steps():
            for number in range(3):
                for group in optimizer.param_groups:
                    group.update({"momentum": later} if kind is torch.optim.SGD else {"betas": (later, 0.9)})
                train(model, optimizer, rank, 1, first=number)
        return [text for text in texts_of(steps) if "had no momentum when compress was called" in text]

    return {"topk": len(said("topk", 0.9)), "still none": len(said("topk", 0.0)), "fp32": len(said("fp32", 0.9)),
            "meant": len(said("topk", 0.9, momentum="optimizer")), "adam": len(said("topk", 0.9, torch.optim.Adam)),
            "twice": len(said("topk", 0.9, feedback="dgc"))}


def texts_of(call):
    with warnings.catch_warnings(record=True) as texts:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in texts if one.filename.endswith(("_test.py", "nets.py"))]  # not lines of torch


def twice_a_step(rank, size):
    """What is said of several backward passes before a step, each with gradients of its own: other passes are an error
    (passes_test)."""
    def passes(codec, settings, last_alone=False, skips=None):
        run = Run(codec, settings=settings)

        def steps():
            for step in range(2):
                for micro in range(2):
                    with run.model.no_sync() if last_alone and micro == 0 else contextlib.nullcontext():
                        if micro == skips:
                            run.link.skip_step()
                        if not last_alone and skips is None:
                            run.optimizer.zero_grad()
                        images, labels = batch_of(2 * step + micro, rank)
                        nn.functional.cross_entropy(run.model(images), labels).backward()
                run.optimizer.step()
                run.optimizer.zero_grad()

        return sum("times since the last step of the optimizer" in text for text in texts_of(steps))

    def joins():
        """This rank ends before the other, and begins again with it."""
        run = Run("topk")

        def epochs():
            for epoch in range(2):
                with Join([run.model]):
                    run.steps(rank, 0, 1 + 2 * rank)

        return sum("times since the last step of the optimizer" in text for text in texts_of(epochs))

    return {"join": joins(), "memory": passes("topk", {}), "last alone": passes("topk", {}, last_alone=True),
            "skipped": passes("topk", {}, skips=0), "skipped last": passes("topk", {}, skips=1),
            "optimizer": passes("topk", {"momentum": "optimizer"})}


def changed_from_dense(rank, size):
    """What is said when a change brings a codec beside which momentum costs accuracy."""
    def change(settings, momentum=0.9, named=True):
        import thinwire.torch as tw
        model = DistributedDataParallel(make_net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)
        link = tw.compress(model, "fp32", **({"optimizer": optimizer} if named else {}), **settings)

        def steps():
            for codec in ("fp32", "topk", "sidco"):
                link.change(codec)
                train(model, optimizer, rank, 1)

        return [text for text in texts_of(steps) if "costs accuracy" in text]

    return {"named": change({}), "unnamed": change({}, named=False), "memory": change({"momentum": "memory"}),
            "optimizer": change({"momentum": "optimizer"}), "chosen": change({"feedback": "residual"}),
            "none": change({}, momentum=0.0)}


class OptimizerSteps(unittest.TestCase):
    def test_that_a_class_makes_itself_are_its_own(self):
        for found in on_ranks(2, of_other_steps):
            for name in ("Lars", "Sgdw", "Warming"):
                self.assertEqual(found[name], (True, 1), name)
            self.assertEqual(found["Bare"], (False, 0))  # its momentum is in the memory

    def test_leave_groups_as_hooks_have_set_them(self):
        for found in on_ranks(2, with_hooks):
            for name, (plain, linked) in found.items():
                self.assertEqual(linked, plain, name)

    def test_that_fail_leave_no_mark_in_checkpoints(self):
        for found in on_ranks(2, behind_a_failed_step):
            self.assertEqual(found, {"sgd": [True] * 3, "adam": [True] * 3})

    def test_with_a_momentum_that_came_later_are_a_warning(self):
        for found in on_ranks(2, raised_later):
            self.assertEqual(found, {"topk": 1, "still none": 0, "fp32": 0, "meant": 0, "adam": 0, "twice": 1})

    def test_of_a_class_that_calls_sgds_step_count_once(self):
        for found in on_ranks(2, of_a_derived_class):
            for name, distance in found.items():
                self.assertLess(distance, 2e-6, name)

    def test_that_find_a_stranger_fail_each_time(self):
        for said in on_ranks(2, with_a_stranger):
            for text, momentum in said:
                self.assertIn("a parameter came to the optimizer after compress was called", text)
                self.assertEqual(momentum, 0.9)

    def test_are_those_of_the_latest_link_of_the_same_parameters(self):
        for found in on_ranks(2, of_two_links):
            self.assertEqual(found, dict.fromkeys(found, 0.0))

    def test_with_several_exchanges_are_a_warning(self):
        for found in on_ranks(2, twice_a_step):
            self.assertEqual(found, {"join": 0, "memory": 1, "last alone": 0, "skipped": 0, "skipped last": 0,
                                     "optimizer": 0})

    def test_that_get_bursts_after_a_change_are_a_warning(self):
        for found in on_ranks(2, changed_from_dense):
            self.assertRegex(" ".join(found["named"]), "codec 'topk' .* a change of codec does not move it")
            self.assertRegex(" ".join(found["unnamed"]), "codec 'topk' .* the optimizer's momentum acts on the bursts")
            self.assertEqual({name: len(texts) for name, texts in found.items()},
                             {"named": 1, "unnamed": 1, "memory": 0, "optimizer": 0, "chosen": 0, "none": 0})


if __name__ == "__main__":
    unittest.main()
