"""An optimiser's momentum in the link's memories: torch's SGD where nothing is lost. SPDX-License-Identifier: Apache-2.0"""
import copy
import gc
import unittest
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import batch_of, make_net, train, weights_of
from ranks import on_ranks

STEPS = 8


def groups_of(model):
    """Three kinds of parameters with options of their own."""
    convolution, norm, _, _, hidden, _, output = model.module
    return [
        {"params": list(convolution.parameters()), "momentum": 0.9, "weight_decay": 0.05},
        {"params": list(hidden.parameters()), "momentum": 0.7, "nesterov": True, "weight_decay": 0.02},
        {"params": list(output.parameters()), "momentum": 0.8, "dampening": 0.25, "weight_decay": 0.05},
        {"params": list(norm.parameters()), "momentum": 0.0, "weight_decay": 0.01},
    ]


class Run:
    """A model, its optimiser and, unless codec is None, its link."""

    def __init__(self, codec, options=None, settings=None):
        import thinwire.torch as tw
        self.model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
        self.optimizer = torch.optim.SGD(groups_of(self.model), lr=0.05, **(options or {}))
        self.link = None
        if codec is not None:
            self.compress(tw, codec, settings)

    def compress(self, tw, codec, settings=None):
        self.link = tw.compress(self.model, codec, optimizer=self.optimizer, **(settings or {}))

    def steps(self, rank, first, last, poisoned=None):
        for step in range(first, last):
            for group in self.optimizer.param_groups:
                group["lr"] = 0.05 if step < 3 else 0.02
                if step == 5 and group["momentum"] != 0:
                    group["momentum"] = 0.6
            images, labels = batch_of(step, rank)
            if step == poisoned and rank == 1:
                images = images * float("nan")
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(images), labels)
            (-loss if self.optimizer.defaults["maximize"] else loss).backward()
            gradients = [p.grad for p in self.model.parameters()]
            if all(g.isfinite().all() for g in gradients):
                before = [g.clone() for g in gradients]
                self.optimizer.step()
                for parameter, gradient in zip(self.model.parameters(), before):
                    assert torch.equal(parameter.grad, gradient)  # they stay what the exchange brought
        return self


def away(one, other):
    return (weights_of(one.model) - weights_of(other.model)).abs().max().item()


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
    late, undampened = Run(None), Run(None)
    for run in (late, undampened):
        for group in run.optimizer.param_groups:
            group["dampening"] = 0
    late.steps(rank, 0, 3).compress(tw, "topk:density=1")
    found = {"taken over": away(undampened.steps(rank, 0, STEPS), late.steps(rank, 3, STEPS))}
    plain = Run(None).steps(rank, 0, STEPS)
    for grouping, rules in (("tensor", {}), ("model", {}), ("model", {"4.*": "topk:density=1,block=4096"})):
        early = Run("topk:density=1", settings={"grouping": grouping, "rules": rules}).steps(rank, 0, 4)
        before = [dict(group, params=None) for group in early.optimizer.param_groups]
        early.link.release_optimizer()
        assert [dict(group, params=None) for group in early.optimizer.param_groups] == before
        found[f"{grouping} {rules}"] = away(plain, early.steps(rank, 4, STEPS))
    return found


def given_back_too_early(rank, size):
    """What is said between backward() and step(), and how far the run then is from the plain optimiser's."""
    run = Run("topk:density=1").steps(rank, 0, 3)
    step, said = run.optimizer.step, []
    run.optimizer.step = lambda: (said.append(error_of(run.link.release_optimizer)), step())
    run.steps(rank, 3, 4)
    run.optimizer.step = step
    run.link.release_optimizer()
    found = away(run.steps(rank, 4, STEPS), Run(None).steps(rank, 0, STEPS))
    thrown_away = Run("topk:density=1")
    thrown_away.steps(rank, 0, 1).optimizer.zero_grad()
    nn.functional.cross_entropy(thrown_away.model(batch_of(1, rank)[0]), batch_of(1, rank)[1]).backward()
    thrown_away.optimizer.zero_grad()
    return said, found, error_of(thrown_away.link.release_optimizer)


def dampened(rank, size):
    import thinwire
    import thinwire.torch as tw
    run = Run(None).steps(rank, 0, 1)
    try:
        run.compress(tw, "topk:density=1")
    except thinwire.Error as error:
        return str(error)
    return "nothing"


def after_changes(rank, size):
    plain = Run(None).steps(rank, 0, STEPS)
    run = Run("topk:density=1").steps(rank, 0, 2)
    run.link.change("fp32")
    run.steps(rank, 2, 4)
    run.link.change("fp32", rules={"*": "topk:density=1,block=4096"})
    run.steps(rank, 4, 6)
    run.link.change("fp32", rules={"6.*": "topk:density=1"})
    return away(plain, run.steps(rank, 6, STEPS))


def after_all_changes(rank, size):
    """For each pair of codecs, the memory that holds the momentum after a change from the first to the second."""
    import thinwire
    import thinwire.torch as tw
    codecs = ("topk:density=0.1", "sidco:density=0.1", "adacomp", "scalecom:density=0.1", "int8", "sign", "powersgd:rank=1",
              "fp16", "qsgd", "fp32")
    found = {}
    for first in codecs:
        for second in codecs:
            model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
            link = tw.compress(model, first, optimizer=optimizer, momentum="memory")
            train(model, optimizer, rank, 1)
            try:
                link.change(second, rules={"6.*": "topk:density=0.2"} if link._exchange.shared == {} else None)
                train(model, optimizer, rank, 1, first=1)
                found[first, second] = link._exchange.settings["feedback"].split(":momentum")[0]
            except thinwire.Error as error:
                found[first, second] = str(error)
    return found


def away_after_changes(rank, size):
    """How far weights are, once all that memories hold has arrived, from those of torch's SGD, whose gradients are the same."""
    import thinwire.torch as tw
    found = []
    for path in (("topk:density=0.1", "int8", "fp32"), ("sidco:density=0.1", "fp16", "topk:density=0.2", "fp32"),
                 ("int8", "topk:density=0.05", "fp32"), ("fp32", "topk:density=0.1", "fp32"), (None,)):
        model = DistributedDataParallel(nn.Linear(40, 50, bias=False))
        nn.init.zeros_(model.module.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        link = path[0] and tw.compress(model, path[0], optimizer=optimizer, momentum="memory")
        for number in range(200):
            if link and number and number % 4 == 0 and number // 4 < len(path):
                link.change(path[number // 4])
            generator = torch.Generator().manual_seed(10 * number + rank)
            scale = 1 if number < 16 else 0  # then the velocities become nothing
            optimizer.zero_grad()
            (scale * model(torch.randn(8, 40, generator=generator)) * torch.randn(8, 50, generator=generator)).sum().backward()
            optimizer.step()
        found.append(weights_of(model))
    return [(one - found[-1]).abs().max().item() / found[-1].abs().max().item() for one in found[:-1]]


def changed_apart(rank, size):
    """One rank makes a mistake that is found where the momentum is placed."""
    import thinwire
    run = Run("topk:density=1").steps(rank, 0, 1)
    try:
        run.link.change("topkk" if rank else "topk:density=0.5")
    except thinwire.Error as error:
        return f"{type(error).__name__}: {error}"
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


def released_and_loaded(rank, size):
    """How far a link that was released, and then went back to a state of its own, is from the plain optimiser."""
    found = []
    for changes in (False, True):
        run = Run("fp32", settings={"momentum": "memory"}).steps(rank, 0, 3)
        run.link.release_optimizer()
        if changes:
            run.link.change("fp32")
        run.link.load_state_dict(run.link.state_dict())
        found.append(away(run.steps(rank, 3, STEPS), Run(None).steps(rank, 0, STEPS)))
    return found


def released_and_loaded_after_a_change(rank, size):
    """What is said of its own state by a link that was released behind a change of codec, and has memory dgc."""
    run = Run("topk:density=0.05", settings={"feedback": "dgc"}).steps(rank, 0, 2)
    run.link.change("topk:density=0.1")
    run.steps(rank, 2, 3).link.release_optimizer()
    run.steps(rank, 3, 4)
    state = run.link.state_dict()
    return error_of(lambda: run.link.load_state_dict(state)), error_of(lambda: run.steps(rank, 4, 5))


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


def sgd_with_momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def released_alone(rank, size, make):
    """What rank 0 is told, whose optimiser is then as it was; the other rank's own sums meanwhile."""
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net())
    optimizer = make(model.parameters())
    link = tw.compress(model, "topk:density=0.05", optimizer=optimizer, deadline_seconds=3)
    train(model, optimizer, rank, 2)
    if rank == 0:
        text = error_of(link.release_optimizer)
    sums = [torch.full((count,), 3.0) for count in (1, 1000)]
    for one in sums:
        dist.all_reduce(one)
    released = link.state_dict()[f"rank {rank}"][0]["released"]
    return text if rank == 0 else "", [one.unique().tolist() for one in sums], released


def released_and_resumed(rank, size):
    """How far runs that go on in a new link from the state of a released one are from a run in one piece."""
    straight, first = Run("topk:density=0.05").steps(rank, 0, 3), Run("topk:density=0.05").steps(rank, 0, 3)
    for run in (straight, first):
        run.link.release_optimizer()
        run.steps(rank, 3, 5)
    straight.steps(rank, 5, STEPS)
    found = []
    for releases in (False, True):
        again = Run("topk:density=0.05")
        again.model.load_state_dict(first.model.state_dict())
        again.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
        again.link.load_state_dict(first.link.state_dict())
        if releases:
            again.link.release_optimizer()
        found.append(away(straight, again.steps(rank, 5, STEPS)))
    return found


def error_of(call):
    try:
        call()
    except Exception as error:
        return str(error)
    return "nothing"


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


def measured_apart(rank, size):
    """A change where one rank measures norms and the other does not."""
    run = Run("topk:density=0.05", settings={"norms": rank == 0}).steps(rank, 0, 2)
    run.link.change("topk:density=0.1")
    return weights_of(run.steps(rank, 2, 4).model)


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

    def test_is_not_given_back_before_the_step_that_awaits_its_mean(self):
        for said, distance, thrown_away in on_ranks(2, given_back_too_early):
            self.assertEqual(len(said), 1)
            self.assertIn("release_optimizer: gradients were exchanged since the last step of the optimizer", said[0])
            self.assertLess(distance, 2e-6)
            self.assertEqual(thrown_away, "nothing")

    def test_a_dampened_one_is_taken_over_before_its_first_step_or_not_at_all(self):
        for said in on_ranks(2, dampened):
            self.assertIn("an optimizer with dampening that has taken steps cannot be taken over", said)

    def test_goes_along_when_codecs_change(self):
        for distance in on_ranks(2, after_changes):
            self.assertLess(distance, 2e-6)

    def test_stays_in_its_memory_whatever_codec_follows(self):
        kept = {"topk:density=0.1": "ahead", "sidco:density=0.1": "ahead", "adacomp": "ahead", "scalecom:density=0.1": "ahead",
                "fp32": "ahead", "int8": "dgc", "sign": "dgc", "powersgd:rank=1": "dgc", "fp16": "velocity", "qsgd": "velocity"}
        for found in on_ranks(2, after_all_changes):
            for (first, second), memory in found.items():
                self.assertEqual(memory, kept[second] if kept[first] == "velocity" else kept[first], (first, second))

    def test_is_not_lost_when_codecs_change(self):
        for found in on_ranks(2, away_after_changes):
            for distance in found:
                self.assertLess(distance, 1e-3)

    def test_ranks_that_ask_for_different_codecs_are_told_at_once(self):
        for said in on_ranks(2, changed_apart):
            self.assertRegex(said, "^MismatchError: change: .*'codec topkk' on rank 1")

    def test_a_skipped_step_leaves_no_trace(self):
        for found in on_ranks(2, skipped):
            for distance in found:
                self.assertLess(distance, 2e-6)

    def test_is_resumed_bit_for_bit(self):
        results = on_ranks(2, resumed)
        for again, straight in results:
            self.assertTrue(torch.equal(again, straight))
        self.assertTrue(torch.equal(results[0][0], results[1][0]))

    def test_an_optimiser_that_is_not_named_is_a_warning(self):
        for found in on_ranks(2, warned):
            self.assertEqual({name: len(texts) for name, texts in found.items()},
                             {"unnamed": 1, "meant": 0, "dense": 0, "none": 0, "rounded": 0, "chosen": 0,
                              "rule": 1, "of no tensor": 0})
            self.assertIn("codec 'topk'", found["unnamed"][0])

    def test_a_release_by_one_rank_is_its_own_error(self):
        for make in (sgd_with_momentum, torch.optim.Adam):
            (text, *first), (_, *other) = on_ranks(2, released_alone, make)
            self.assertRegex(text, "release_optimizer: .*rank 1.*do all ranks call it between the same two steps")
            self.assertEqual((first, other), ([[[6.0], [6.0]], False],) * 2)

    def test_each_of_two_links_warns_once_and_both_go_on(self):
        for files in on_ranks(2, warned_of_two):
            self.assertEqual(files, [__file__] * 2)

    def test_is_found_inside_wrappers(self):
        for plain, inside in on_ranks(2, wrapped):
            self.assertTrue(torch.equal(plain, inside))

    def test_takes_closures(self):
        for plain, given, named in on_ranks(2, with_closures):
            for weights, loss in (given, named):
                self.assertTrue(torch.equal(weights, plain[0]))
                self.assertEqual(loss, plain[1])

    def test_of_an_unknown_optimiser_is_a_warning(self):
        for found in on_ranks(2, warned_of_strangers):
            self.assertEqual({name: len(texts) for name, texts in found.items()},
                             {"NAdam": 1, "RMSprop": 1, "no momentum": 0, "dense": 0, "meant": 0, "AdamW": 0, "SGD": 0})
            text, file = found["NAdam"][0]
            self.assertIn("codec 'topk' leaves most values for later steps, and the momentum of NAdam acts", text)
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

    def test_a_released_one_stays_released_when_a_state_is_loaded(self):
        for found in on_ranks(2, released_and_loaded):
            for distance in found:
                self.assertLess(distance, 2e-6)

    def test_a_released_one_loads_states_of_another_codec(self):
        for found in on_ranks(2, released_and_loaded_after_a_change):
            self.assertEqual(found, ("nothing", "nothing"))

    def test_that_is_no_number_counts_as_none(self):
        for found in on_ranks(2, odd):
            self.assertEqual(found, dict.fromkeys(found, "nothing"))

    def test_a_released_one_stays_released_in_a_new_process(self):
        self.assertEqual(on_ranks(2, released_and_resumed), [[0.0, 0.0]] * 2)

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

    def test_codecs_change_whatever_a_rank_measures(self):
        one, other = on_ranks(2, measured_apart)
        self.assertTrue(torch.equal(one, other))

    def test_mistakes_are_refused_and_leave_the_optimiser_alone(self):
        for found, hooks, attached, left in on_ranks(2, refused):
            for text, part in zip(found, ("name the optimizer", "AdamW has no momentum", "would act twice",
                                          "cannot take it over", "momentum is 'elsewhere'; known: auto, memory, optimizer",
                                          "1 parameters of the optimizer are not of the model")):
                self.assertIn(part, text)
            self.assertEqual((hooks, attached, left), (0, 2, 0))  # of the momentum, and of steps that pass the link by


if __name__ == "__main__":
    unittest.main()
