"""Workers that step by themselves, around optimisers of torch. SPDX-License-Identifier: Apache-2.0"""
import math
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import batch_of, make_net, weights_of
from ranks import error_of, on_ranks


def local(model, kind, settings, momentum=0.0):
    import thinwire.torch as tw
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)
    return getattr(tw, kind)(inner, model, **settings)


def train(model, optimizer, rank, steps, first=0):
    for step in range(first, first + steps):
        images, labels = batch_of(step, rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step(loss=loss)


def plain(model):
    """Without batch norm, whose statistics no local method shares."""
    return nn.Sequential(*(layer for layer in model if not isinstance(layer, nn.BatchNorm2d)))


def averages_every_step(rank, size):
    shared = DistributedDataParallel(plain(make_net()))
    optimizer = torch.optim.SGD(shared.parameters(), lr=0.05)
    for step in range(6):
        images, labels = batch_of(step, rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(shared(images), labels).backward()
        optimizer.step()
    found = {}
    for kind, settings in (("PeriodicAveraging", {"tau": 1}),
                           ("DiLoCo", {"tau": 1, "rate": 1, "momentum": 0})):
        model = plain(make_net(seed=1 + rank))  # all begin as rank 0
        train(model, local(model, kind, settings), rank, 6)
        found[kind] = (weights_of(model), (weights_of(model) - weights_of(shared)).abs().max().item())
    return found


def alone(rank, size):
    own = make_net()
    optimizer = torch.optim.SGD(own.parameters(), lr=0.05)
    for step in range(6):
        images, labels = batch_of(step, rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(own(images), labels).backward()
        optimizer.step()
    found = {}
    for kind, settings in (("LeaderSGD", {"tau": 2, "pull": 0, "pull_global": 0}),
                           ("ElasticAveraging", {"tau": 2, "rate": 0}),
                           ("PeriodicAveraging", {"tau": 100})):
        model = make_net()
        train(model, local(model, kind, settings), rank, 6)
        found[kind] = torch.equal(weights_of(model), weights_of(own))
    return found


def follows(rank, size, codec):
    """With pull 1 all become the leader: the first of all ranks whose mean loss is lowest."""
    model = make_net()
    optimizer = local(model, "LeaderSGD", {"tau": 3, "tau_global": 3, "pull_global": 1, "codec": codec})
    own = weights_of(model).clone()
    for step in range(3):
        images, labels = batch_of(step, rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        if step == 2:
            for parameter in model.parameters():  # as the optimiser will
                own = torch.cat([(p - 0.05 * p.grad).detach().flatten() for p in model.parameters()])
        optimizer.step(loss=loss)
    return own, weights_of(model), optimizer.metrics()


def compressed(rank, size, kind, settings):
    model = make_net()
    optimizer = local(model, kind, settings)
    train(model, optimizer, rank, 8)
    own = weights_of(model).clone()
    with optimizer.centre():
        middle = weights_of(model).clone()
    return own, middle, optimizer.metrics(), torch.equal(own, weights_of(model))


METHODS = (("LeaderSGD", {"tau": 2, "tau_global": 4, "groups": 2}),
           ("ElasticAveraging", {"tau": 2}),
           ("PeriodicAveraging", {"tau": 2}),
           ("DiLoCo", {"tau": 2}),
           ("SparseLoCo", {"tau": 2, "codec": "fp32"}),
           ("LocalOptimizer", {"method": "parle:tau=2"}))


# After five steps the round of the second fragment is under way, since step 4.
STREAMING = ("DiLoCo", {"tau": 4, "fragments": 2, "delay": 3, "mix": 0.5})


def as_one_fragment(rank, size, codec):
    """By DiLoCo, and by its one fragment without delay: weights after every step, weights to evaluate, metrics."""
    found = []
    for parts in ({}, {"fragments": 1, "delay": 0}, {"delay": 0, "fragments": 1, "mix": 0, "order": "sequential"}):
        model = plain(make_net())
        optimizer = local(model, "DiLoCo", {"tau": 2, "codec": codec, **parts})
        course = []
        for step in range(6):
            train(model, optimizer, rank, 1, first=step)
            course.append(weights_of(model).clone())
        with optimizer.centre():
            course.append(weights_of(model).clone())
        found.append((torch.stack(course), optimizer.metrics()["total_sent_bytes"], optimizer.metrics()["rounds"]))
    return found


def streams(rank, size):
    kind, settings = STREAMING
    model = plain(make_net())
    optimizer = local(model, kind, settings)
    found = []
    for step in range(12):
        before = optimizer.metrics().get("rounds", 0)
        train(model, optimizer, rank, 1, first=step)
        report = optimizer.metrics()
        if report.get("rounds", 0) > before:
            found.append(tuple(report[key] for key in ("step", "begun", "fragment", "values")))
    with optimizer.centre():
        middle = weights_of(model).clone()
    return found, middle, weights_of(model), optimizer.metrics()


def resumed(rank, size, codec):
    found = []
    for kind, settings in (*METHODS, STREAMING):
        settings = {**settings, "codec": codec}
        straight = make_net()
        train(straight, local(straight, kind, settings, momentum=0.9), rank, 10)
        first = make_net()
        optimizer = local(first, kind, settings, momentum=0.9)
        train(first, optimizer, rank, 5)
        saved = optimizer.state_dict()
        again = make_net(seed=7)
        new = local(again, kind, settings, momentum=0.9)
        again.load_state_dict(first.state_dict())
        new.load_state_dict(saved)
        train(again, new, rank, 5, first=5)
        found.append((kind, torch.equal(weights_of(again), weights_of(straight)), saved))
    return found


def refused(rank, size, codec):
    """Ranks try to load states of different steps while a round is under way. Whether they go on as if nothing was."""
    from thinwire.errors import MismatchError
    kind, settings = STREAMING
    settings = {**settings, "codec": codec}
    straight = plain(make_net())
    train(straight, local(straight, kind, settings), rank, 12)
    model = plain(make_net())
    optimizer = local(model, kind, settings)
    saved, errors = [], []
    for step in range(12):
        train(model, optimizer, rank, 1, first=step)
        if step < 2:
            saved.append(optimizer.state_dict())
        if step in (4, 8):
            try:
                optimizer.load_state_dict(saved[rank])
            except MismatchError as error:
                errors.append(str(error))
    return torch.equal(weights_of(model), weights_of(straight)), errors


def with_other_options(rank, size):
    """A state of DiLoCo with three fragments, loaded under other options: what errors say, by the options."""
    from thinwire.errors import MismatchError
    model = plain(make_net())
    first = local(model, "DiLoCo", {"tau": 6, "fragments": 3, "codec": "int8"})
    train(model, first, rank, 6)
    saved, errors = first.state_dict(), {}
    for settings in ({"delay": 0}, {"tau": 12}, {"rate": 0.5}, {"codec": "int8:block=64"}, {"codec": "fp32"},
                     {"fragments": 2}, {"delay": 1}):
        other = plain(make_net())
        optimizer = local(other, "DiLoCo", {"tau": 6, "fragments": 3, "codec": "int8", **settings})
        try:
            optimizer.load_state_dict(saved)
            train(other, optimizer, rank, 6, first=6)
            errors[str(settings)] = ""
        except MismatchError as error:
            errors[str(settings)] = str(error)
    return errors


def at_another_size(rank, size, saved, settings):
    model = make_net()
    optimizer = local(model, "DiLoCo", {**settings, "codec": "int8"}, momentum=0.9)
    optimizer.load_state_dict(saved)
    with optimizer.centre():
        anchor = weights_of(model).clone()
    train(model, optimizer, rank, 3, first=5)
    with optimizer.centre():
        later = weights_of(model).clone()
    return anchor, later


def odd_parameters(rank, size):
    """bfloat16, channels last, one that is replaced, a tied one, and one that is not trained."""
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(4, 4), nn.Linear(4, 4),
                          nn.Linear(4, 2).bfloat16())
    model[0].to(memory_format=torch.channels_last)
    model[3].weight = model[2].weight
    model[3].bias.requires_grad_(False)
    kept = model[3].bias.clone()
    optimizer = local(model, "PeriodicAveraging", {"tau": 1})
    model[2].bias.data = model[2].bias.data.clone()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.full_like(parameter, float(rank))
    before = weights_of(model).clone()
    optimizer.step()
    return (before, weights_of(model), model[0].weight.is_contiguous(memory_format=torch.channels_last),
            torch.equal(kept, model[3].bias))


def pulled_in_every_step(rank, size):
    """The weights of a model whose parameters are views of the method's vector, and of one where they are not."""
    import thinwire.torch as tw
    found = []
    for own_memory in (False, True):
        model = plain(make_net(seed=1))
        optimizer = tw.LocalOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model,
                                      "leader:tau=4,tau_global=4,prox=0.5")
        if own_memory:
            for parameter in model.parameters():
                parameter.data = parameter.data.clone()
        train(model, optimizer, rank, 7)
        found.append(weights_of(model))
    return found


def pulled_behind_a_closure(rank, size):
    """The weights by gradients that are there before the step, and by those that a closure forms in it."""
    import thinwire.torch as tw
    found = []
    for by_closure in (False, True):
        model = plain(make_net())
        optimizer = tw.LocalOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model, "parle:tau=3")
        for step in range(5):
            def evaluate():
                images, labels = batch_of(step, rank)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                return loss
            optimizer.step(evaluate) if by_closure else (evaluate(), optimizer.step())
        found.append(weights_of(model))
    return found


def without_gradients(rank, size):
    """Whether parameters that have none stay as they are between rounds: of a layer that is frozen, and of one that is not used."""
    import thinwire.torch as tw
    found = []
    for freezes in (True, False):
        layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        optimizer = tw.LocalOptimizer(torch.optim.SGD(layers.parameters(), lr=0.05, momentum=0.9), layers, "parle:tau=100")
        for step in range(6):
            if step == 3:
                before = weights_of(layers[0]).clone()
                layers[0].requires_grad_(not freezes)
            x = torch.full((2, 4), rank + 1.0)
            optimizer.zero_grad()
            layers[1](layers[0](x) if freezes or step < 3 else x).square().mean().backward()
            optimizer.step()
        found.append(torch.equal(weights_of(layers[0]), before))
    return found


def hooked_behind_a_step(rank, size):
    """The weights that a hook sees behind a step with a round, those behind the step, and what else the hook was given."""
    model = nn.Linear(4, 4)
    optimizer, seen = local(model, "PeriodicAveraging", {"tau": 1}), []
    handle = optimizer.register_step_post_hook(lambda *given: seen.append((weights_of(model).clone(), given)))
    model(torch.full((2, 4), rank + 1.0)).sum().backward()
    optimizer.step(loss=1.0)
    first = weights_of(model).clone()
    handle.remove()
    optimizer.step()
    ((weights, given),) = seen
    return torch.equal(weights, first), given[0] is optimizer, given[1:]


def with_added_groups(rank, size):
    """Whether the inner optimiser has the parameters of groups that came later, in the forms that torch takes."""
    import thinwire.torch as tw
    model, found = make_net(), []
    head, body = list(model[6].named_parameters()), list(model[4].named_parameters())
    for first, added in ((model[6].parameters(), model[4].parameters()), (head, iter(body)), (head, body[:1])):
        optimizer = tw.PeriodicAveraging(torch.optim.SGD(first, lr=0.1), model)
        optimizer.add_param_group({"params": added, "lr": 0.05})
        found.append([id(one) for one in optimizer.optim.param_groups[1]["params"]])
    own = [id(one) for _, one in body]
    return found == [own, own, own[:1]], error_of(lambda: optimizer.add_param_group({"params": {body[1][1]}}))


def scaled(rank, size):
    """A gradient scaler whose gradients overflow on rank 1 only: rounds go on."""
    model = make_net()
    optimizer = local(model, "LeaderSGD", {"tau": 1, "tau_global": 2, "pull_global": 1})
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(2):
        images, labels = batch_of(step, rank)
        if rank == 1 and step == 1:
            images[0, 0, 0, 0] = math.inf
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer, loss=loss)
        scaler.update()
    return optimizer.metrics(), scaler.get_scale(), weights_of(model)


def scale_is_taken_out(rank, size):
    found = []
    for scale in (1.0, 1024.0):
        model = make_net()
        optimizer = local(model, "PeriodicAveraging", {"tau": 2})
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        for step in range(2):
            images, labels = batch_of(step, rank)
            optimizer.zero_grad()
            scaler.scale(nn.functional.cross_entropy(model(images), labels)).backward()
            scaler.step(optimizer)
            scaler.update()
        found.append(weights_of(model))
    return (found[0] - found[1]).abs().max().item()


def mistakes(rank, size):
    import thinwire.torch as tw
    model = make_net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []

    def expect(action):
        try:
            action()
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")

    expect(lambda: tw.LeaderSGD(sgd, DistributedDataParallel(make_net())))
    expect(lambda: tw.LeaderSGD(sgd, model, tau=3, tau_global=4))
    expect(lambda: tw.LeaderSGD(sgd, model).step())
    expect(lambda: tw.PeriodicAveraging(sgd, model, codec="nothing"))
    expect(lambda: tw.DiLoCo(sgd, model, tau=4, delay=4))
    expect(lambda: tw.LeaderSGD(sgd, model, codec="topk", feedback="dgc"))
    expect(lambda: tw.LeaderSGD(sgd, model, exchange="gather"))
    uneven = nn.Linear(2 + rank, 2)
    expect(lambda: tw.PeriodicAveraging(torch.optim.SGD(uneven.parameters(), lr=0.1), uneven))
    expect(lambda: tw.PeriodicAveraging(sgd, model).add_param_group(
        {"params": [nn.Parameter(torch.zeros(2))]}))
    state = tw.DiLoCo(sgd, model).state_dict()
    expect(lambda: tw.PeriodicAveraging(sgd, model).load_state_dict(state))
    return found


def with_a_schedule(rank, size):
    model = make_net()
    optimizer = local(model, "PeriodicAveraging", {"tau": 1})
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    train(model, optimizer, rank, 1)
    schedule.step()
    return optimizer.param_groups[0]["lr"], optimizer.optim.param_groups[0]["lr"]


class Local(unittest.TestCase):
    def test_an_average_every_step_is_data_parallel_sgd(self):
        for size in (2, 3):
            ranks = on_ranks(size, averages_every_step)
            for kind in ranks[0]:
                for found in ranks:
                    self.assertLess(found[kind][1], 2e-6, kind)
                    self.assertTrue(torch.equal(found[kind][0], ranks[0][kind][0]), kind)

    def test_without_pull_workers_are_alone(self):
        for found in on_ranks(2, alone):
            self.assertEqual(set(found.values()), {True}, found)

    def test_all_follow_the_best(self):
        for codec in ("fp32", "int8"):
            ranks = on_ranks(4, follows, codec)
            report = ranks[0][2]
            leader = report["leader"]
            self.assertEqual(report["losses"][leader], min(report["losses"]))
            self.assertEqual(len(set(report["losses"])), 4)
            self.assertEqual((report["round"], report["step"], report["skipped"]), (0, 3, False))
            # A leader keeps its own bits; with fp32 the others have them too.
            self.assertTrue(torch.allclose(ranks[leader][0], ranks[leader][1], atol=1e-7))
            followers = [r for r in range(4) if r != leader]
            for r in followers:
                self.assertEqual(ranks[r][2]["losses"], report["losses"])
                self.assertTrue(torch.equal(ranks[r][1], ranks[followers[0]][1]))
            same = torch.equal(ranks[followers[0]][1], ranks[leader][1])
            self.assertEqual(same, codec == "fp32")

    def test_compressed_rounds_keep_their_promises(self):
        values = weights_of(make_net()).numel()
        for kind, settings in METHODS:
            size = 4 if kind == "LeaderSGD" else 3
            dense = on_ranks(size, compressed, kind, settings)
            small = on_ranks(size, compressed, kind, {**settings, "codec": "int8"})
            for own, middle, metrics, restored in dense + small:
                self.assertTrue(own.isfinite().all() and restored, kind)
                self.assertFalse(metrics["skipped"], kind)
                self.assertGreaterEqual(metrics["rounds"], 2 if kind == "LeaderSGD" else 4)
            for ranks in (dense, small):  # what is judged has the same bits everywhere
                for one in ranks:
                    self.assertTrue(torch.equal(one[1], ranks[0][1]), kind)
                    if kind in ("PeriodicAveraging", "DiLoCo", "SparseLoCo"):
                        self.assertTrue(torch.equal(one[0], ranks[0][0]), kind)
            sent = [sum(one[2]["total_sent_bytes"] for one in ranks) for ranks in (dense, small)]
            self.assertGreater(sent[0], 4 * values)
            self.assertLess(sent[1], 0.45 * sent[0], kind)  # biases and frames are not compressed

    def test_sparseloco_sends_the_papers_codec_by_default(self):
        named = on_ranks(2, compressed, "SparseLoCo", {"tau": 2, "codec": "topk:density=0.02,block=4096,values=int2"})
        for kind, settings in (("SparseLoCo", {"tau": 2}), ("SparseLoCo", {"tau": 2, "rate": 1, "beta": 0.95})):
            for one, other in zip(on_ranks(2, compressed, kind, settings), named):
                self.assertTrue(torch.equal(one[0], other[0]))
        other = on_ranks(2, compressed, "SparseLoCo", {"tau": 2, "beta": 0.5})
        self.assertFalse(torch.equal(other[0][0], named[0][0]))

    def test_a_saved_state_continues_bit_for_bit(self):
        for codec in ("fp32", "topk:density=0.02,block=4096,values=int2", "int8"):
            ranks = on_ranks(2, resumed, codec)
            for found in ranks:
                for kind, same, _ in found:
                    self.assertTrue(same, (kind, codec))
        for method, settings in ((3, {"tau": 2}), (-1, STREAMING[1])):
            saved = [found[method][2] for found in ranks]
            three = on_ranks(3, at_another_size, saved, settings)
            for anchor, later in three:
                self.assertTrue(torch.equal(anchor, three[0][0]))
                self.assertTrue(torch.equal(later, three[0][1]))
                self.assertFalse(torch.equal(anchor, later))  # a round has ended

    def test_the_method_decides_which_options_may_change(self):
        for errors in on_ranks(2, with_other_options):
            for settings in ({"delay": 0}, {"tau": 12}, {"rate": 0.5}, {"codec": "int8:block=64"}):
                self.assertEqual(errors[str(settings)], "", settings)
            self.assertIn("must be of the same names", errors[str({"codec": "fp32"})])
            self.assertIn("fragments", errors[str({"fragments": 2})])
            self.assertNotEqual(errors[str({"delay": 1})], "")

    def test_a_refused_state_leaves_a_round_under_way_whole(self):
        for codec in ("fp32", "int8"):
            for same, errors in on_ranks(2, refused, codec):
                self.assertEqual(len(errors), 2)
                self.assertIn("steps", errors[0])
                self.assertTrue(same, codec)

    def test_one_fragment_without_delay_is_diloco_to_the_bit(self):
        for codec in ("fp32", "int4", "topk:density=0.1"):
            for plainly, *as_fragment in on_ranks(2, as_one_fragment, codec):
                for course, sent, rounds in as_fragment:
                    self.assertTrue(torch.equal(course, plainly[0]), codec)
                    self.assertEqual((sent, rounds), plainly[1:])

    def test_fragments_have_rounds_in_turn_that_overlap_steps(self):
        ranks = on_ranks(2, streams)
        values = ranks[0][1].numel()
        for found, middle, own, metrics in ranks:
            self.assertEqual([one[:3] for one in found], [(5, 2, 0), (7, 4, 1), (9, 6, 0), (11, 8, 1)])
            self.assertEqual(found[0][3] + found[1][3], values)
            self.assertTrue(torch.equal(middle, ranks[0][1]) and middle.isfinite().all())
            self.assertGreater(metrics["peak_sent_bytes"], 2 * max(one[3] for one in found))
            self.assertLess(metrics["peak_sent_bytes"], metrics["total_sent_bytes"] / 2)
        self.assertFalse(torch.equal(ranks[0][2], ranks[1][2]))  # a mix leaves each its own

    def test_parameters_that_are_no_views_are_averaged_too(self):
        first, second = on_ranks(2, odd_parameters)
        self.assertTrue(torch.equal(first[0], second[0]))  # rank 0's
        mean = first[0] - 0.05 * 0.5
        mean[168:172] += 0.05 * 0.5  # not trained
        self.assertLess((first[1] - mean).abs().max(), 4e-3)  # bfloat16
        self.assertTrue(torch.equal(first[1], second[1]))
        self.assertTrue(first[2] and first[3] and second[2] and not torch.equal(first[0], first[1]))

    def test_steps_without_a_round_move_parameters_that_are_no_views_too(self):
        for views, own_memory in on_ranks(2, pulled_in_every_step):
            self.assertTrue(torch.equal(views, own_memory))

    def test_a_closure_gives_the_same_weights(self):
        for before, closure in on_ranks(2, pulled_behind_a_closure):
            self.assertTrue(torch.equal(before, closure))

    def test_parameters_without_a_gradient_stay_between_rounds(self):
        self.assertEqual(on_ranks(2, without_gradients), [[True, True]] * 2)

    def test_hooks_behind_a_step_run_behind_its_round(self):
        self.assertEqual(on_ranks(2, hooked_behind_a_step), [(True, True, ((), {"loss": 1.0}))] * 2)

    def test_groups_may_be_added_in_every_form(self):
        for same, refused_set in on_ranks(2, with_added_groups):
            self.assertTrue(same)
            self.assertIn("ordered collections", refused_set)

    def test_a_scaler_skips_one_worker_only(self):
        (report, scale, weights), (_, other_scale, other) = on_ranks(2, scaled)
        self.assertEqual((report["leader"], report["skipped"]), (0, False))
        self.assertEqual(report["losses"][1], math.inf)
        self.assertEqual((scale, other_scale), (4.0, 2.0))
        self.assertTrue(torch.equal(weights, other))
        for difference in on_ranks(2, scale_is_taken_out):
            self.assertLess(difference, 1e-6)

    def test_mistakes_are_explained(self):
        for found in on_ranks(2, mistakes):
            self.assertEqual(len(found), 10, found)
            for text, error in zip(("DistributedDataParallel", "tau_global", "loss=loss", "known: ", "before its next",
                                    "'dgc'; choose auto", "'gather'; choose auto", "parameters", "came to the optimiser",
                                    "state of 'diloco"), found):
                self.assertIn(text, error)

    def test_schedules_reach_the_inner_optimiser(self):
        for rates in on_ranks(2, with_a_schedule):
            self.assertEqual(rates, (0.025, 0.025))


if __name__ == "__main__":
    unittest.main()
