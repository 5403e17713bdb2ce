"""An optimiser's momentum when link.release_optimizer gives it back. SPDX-License-Identifier: Apache-2.0"""
import copy
import unittest
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from momentum_runs import STEPS, Run, away
from nets import batch_of, make_net, train, weights_of
from ranks import error_of, on_ranks


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


def sgd_with_momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def released_and_loaded_from_before(rank, size):
    """What a released link is told that is given states from before its release, on both ranks or on one, and whether it then
    trains as if it had not; and what it is told of states that hold no momentum."""
    import thinwire.torch as tw

    def begin(is_linked):
        model = DistributedDataParallel(make_net())
        optimizer = sgd_with_momentum(model.parameters())
        link = tw.compress(model, "fp32", optimizer=optimizer, momentum="memory") if is_linked else None
        new = link and link.state_dict()
        train(model, optimizer, rank, 3)
        return model, optimizer, link, new

    (model, optimizer, link, new), (plain, other, _, _) = begin(True), begin(False)
    before = link.state_dict()
    link.release_optimizer()
    after = link.state_dict()
    said = [error_of(lambda: link.load_state_dict(before, strict=strict)) for strict in (True, False)]
    said.append(error_of(lambda: link.load_state_dict(before if rank else after)))
    train(model, optimizer, rank, 3, first=3)
    train(plain, other, rank, 3, first=3)
    distance = (weights_of(model) - weights_of(plain)).abs().max().item()
    return said, distance, [error_of(lambda: link.load_state_dict(one)) for one in (after, new)]


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


def warned_of_what_waits(rank, size):
    """What is said of memories that hold values, and of such that have sent them."""
    found = []
    for is_sent in (False, True):
        run = Run("topk:density=0.05").steps(rank, 0, 2)
        if is_sent:
            run.link.change("fp32")
            run.steps(rank, 2, 3)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run.link.release_optimizer()
        found.append([str(one.message) for one in said if "were not sent" in str(one.message)])
    return found


class ReleasedMomentum(unittest.TestCase):
    def test_is_not_given_back_before_the_step_that_awaits_its_mean(self):
        for said, distance, thrown_away in on_ranks(2, given_back_too_early):
            self.assertEqual(len(said), 1)
            self.assertIn("release_optimizer: gradients were exchanged since the last step of the optimizer", said[0])
            self.assertLess(distance, 2e-6)
            self.assertEqual(thrown_away, "nothing")

    def test_that_acts_again_on_what_waits_is_a_warning(self):
        for waiting, sent in on_ranks(2, warned_of_what_waits):
            self.assertEqual(len(waiting), 1)
            self.assertIn('call link.change("fp32") and take a step before', waiting[0])
            self.assertEqual(sent, [])

    def test_a_release_by_one_rank_is_its_own_error(self):
        for make in (sgd_with_momentum, torch.optim.Adam):
            (text, *first), (_, *other) = on_ranks(2, released_alone, make)
            self.assertRegex(text, "release_optimizer: .*rank 1.*do all ranks call it between the same two steps")
            self.assertEqual((first, other), ([[[6.0], [6.0]], False],) * 2)

    def test_a_released_one_stays_released_when_a_state_is_loaded(self):
        for found in on_ranks(2, released_and_loaded):
            for distance in found:
                self.assertLess(distance, 2e-6)

    def test_a_released_one_refuses_momentum_from_before(self):
        for said, distance, others in on_ranks(2, released_and_loaded_from_before):
            for text in said:
                self.assertIn("holds the optimizer's momentum, which would be lost", text)
            self.assertIn("old rank 1", said[-1])
            self.assertLess(distance, 2e-6)
            self.assertEqual(others, ["nothing"] * 2)

    def test_a_released_one_loads_states_of_another_codec(self):
        for found in on_ranks(2, released_and_loaded_after_a_change):
            self.assertEqual(found, ("nothing", "nothing"))

    def test_a_released_one_stays_released_in_a_new_process(self):
        self.assertEqual(on_ranks(2, released_and_resumed), [[0.0, 0.0]] * 2)


if __name__ == "__main__":
    unittest.main()
