"""Adam's first moment: nothing where most values arrive late, torch's own elsewhere.
SPDX-License-Identifier: Apache-2.0"""
import copy
import io
import unittest
import warnings

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import batch_of, weights_of
from ranks import on_ranks

STEPS = 8
KINDS = {
    "adam": lambda groups, beta1: torch.optim.Adam(groups, lr=0.01, betas=(beta1, 0.99), weight_decay=0.05),
    "adamw": lambda groups, beta1: torch.optim.AdamW(groups, lr=0.01, betas=(beta1, 0.99), weight_decay=0.05),
    "amsgrad": lambda groups, beta1: torch.optim.AdamW(groups, lr=0.01, betas=(beta1, 0.99), amsgrad=True),
    "foreach": lambda groups, beta1: torch.optim.AdamW(groups, lr=0.01, betas=(beta1, 0.99), foreach=True),
    "fused": lambda groups, beta1: torch.optim.AdamW(groups, lr=0.01, betas=(beta1, 0.99), fused=True),
}


def make_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 4))


class Run:
    def __init__(self, codec, kind="adamw", beta1=0.8, **settings):
        import thinwire.torch as tw
        self.model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
        self.optimizer = KINDS[kind](self.model.parameters(), beta1)
        settings.setdefault("optimizer", self.optimizer)
        self.link = tw.compress(self.model, codec, **settings)

    def steps(self, rank, first, last):
        for step in range(first, last):
            images, labels = batch_of(step, rank)
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(images), labels).backward()
            self.optimizer.step()
        return self


def distance(one, other):
    return (weights_of(one.model) - weights_of(other.model)).abs().max().item()


def plain(codec, kind="adamw", beta1=0.8):
    return Run(codec, kind, beta1, momentum="optimizer")


def sparse(rank, size):
    """For each kind, how far the default is from beta1 = 0, and from the optimiser as it is."""
    found = {}
    for kind in KINDS:
        run = Run("topk:density=0.05", kind).steps(rank, 0, STEPS)
        found[kind] = (distance(run, plain("topk:density=0.05", kind, 0.0).steps(rank, 0, STEPS)),
                       distance(run, plain("topk:density=0.05", kind).steps(rank, 0, STEPS)),
                       run.optimizer.param_groups[0]["betas"])
    return found


def others(rank, size):
    return [distance(Run(codec).steps(rank, 0, STEPS), plain(codec).steps(rank, 0, STEPS))
            for codec in ("fp32", "int8")]


def changed(rank, size):
    """From codecs beside which the first moment acts, and from one beside which it does not."""
    found = []
    for first, beta1 in (("fp32", 0.8), ("int8", 0.8), ("topk:density=0.1", 0.0)):
        run = Run(first).steps(rank, 0, 3)
        run.link.change("topk:density=0.05")
        run.steps(rank, 3, STEPS)
        by_hand = plain(first, beta1=beta1).steps(rank, 0, 3)
        by_hand.link.change("topk:density=0.05")
        by_hand.optimizer.param_groups[0]["betas"] = (0.0, 0.99)
        found.append(distance(run, by_hand.steps(rank, 3, STEPS)))
    return found


def taken_up(begun, codec):
    """A script that begins with this codec and loads what another saved; and the betas that it
    loads."""
    file = io.BytesIO()
    torch.save([begun.model.state_dict(), begun.optimizer.state_dict(), begun.link.state_dict()], file)
    file.seek(0)
    run = Run(codec)
    model, optimizer, link = torch.load(file, weights_only=False)
    run.model.load_state_dict(model)
    run.optimizer.load_state_dict(optimizer)
    run.link.load_state_dict(link)
    return run, optimizer["param_groups"][0]["betas"]


def resumed(rank, size):
    whole = Run("topk:density=0.05").steps(rank, 0, STEPS)
    run, betas = taken_up(Run("topk:density=0.05").steps(rank, 0, 3), "topk:density=0.05")
    return distance(whole, run.steps(rank, 3, STEPS)), betas


def resumed_after_a_change(rank, size):
    """From a codec beside which the first moment acts to one beside which it does not, and back."""
    found = []
    for first, then in (("fp32", "topk:density=0.05"), ("topk:density=0.05", "fp32"),
                        ("topk:density=0.1", "topk:density=0.05")):
        whole = Run(first).steps(rank, 0, 2)
        whole.link.change(then)
        run, betas = taken_up(whole.steps(rank, 2, 4), first)
        found.append((distance(whole.steps(rank, 4, STEPS), run.steps(rank, 4, STEPS)), betas))
    return found


def released(rank, size):
    run = Run("topk:density=0.05").steps(rank, 0, 4)
    run.link.release_optimizer()
    by_hand = plain("topk:density=0.05", beta1=0.0).steps(rank, 0, 4)
    by_hand.optimizer.param_groups[0]["betas"] = (0.8, 0.99)
    return distance(run.steps(rank, 4, STEPS), by_hand.steps(rank, 4, STEPS))


def released_and_resumed(rank, size):
    """Whether a link that goes on from the state of a released one leaves the first moment alone."""
    first = Run("topk:density=0.1").steps(rank, 0, 2)
    first.link.release_optimizer()
    first.steps(rank, 2, 3)
    again = Run("topk:density=0.1")
    again.model.load_state_dict(first.model.state_dict())
    again.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    again.link.load_state_dict(first.link.state_dict())
    return distance(first.steps(rank, 3, 5), again.steps(rank, 3, 5))


def says(rank, size):
    import thinwire.torch as tw
    from thinwire.errors import Error
    texts = []
    for momentum, extra in (("memory", []), ("auto", [nn.Parameter(torch.zeros(3))]), ("arival", [])):
        model = DistributedDataParallel(make_net())
        optimizer = torch.optim.AdamW([*model.parameters(), *extra])
        try:
            tw.compress(model, "topk:density=0.05", optimizer=optimizer, momentum=momentum)
            texts.append("")
        except Error as error:
            texts.append(str(error))
    model = DistributedDataParallel(make_net())
    optimizer = torch.optim.AdamW([*model.parameters(), nn.Parameter(torch.zeros(3))])
    link = tw.compress(model, "fp32", optimizer=optimizer)  # beside which the first moment acts
    optimizer.step()
    link.change("topk:density=0.05")
    try:
        optimizer.step()
        texts.append("")
    except Error as error:
        texts.append(str(error))
    unnamed = Run("topk:density=0.05", optimizer=None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unnamed.steps(rank, 0, 2)
    return [*texts, [str(one.message) for one in caught if "first moment" in str(one.message)]]


class FirstMoment(unittest.TestCase):
    def test_counts_as_nothing_beside_a_sparse_codec(self):
        for kinds in on_ranks(2, sparse):
            for kind, (from_none, from_own, betas) in kinds.items():
                self.assertEqual(from_none, 0, kind)
                self.assertGreater(from_own, 1e-3, kind)
                self.assertEqual(betas, (0.8, 0.99), kind)

    def test_is_the_optimisers_own_beside_other_codecs(self):
        self.assertEqual(on_ranks(2, others), [[0.0, 0.0]] * 2)

    def test_follows_a_change_of_codec(self):
        self.assertEqual(on_ranks(2, changed), [[0.0] * 3] * 2)

    def test_resumes_bit_for_bit_and_saves_the_betas_of_its_user(self):
        self.assertEqual(on_ranks(2, resumed), [(0.0, (0.8, 0.99))] * 2)

    def test_resumes_with_the_codec_that_a_change_led_to(self):
        self.assertEqual(on_ranks(2, resumed_after_a_change), [[(0.0, (0.8, 0.99))] * 3] * 2)

    def test_a_released_optimiser_goes_on_by_itself(self):
        self.assertEqual(on_ranks(2, released), [0.0, 0.0])

    def test_a_released_one_stays_released_in_a_new_process(self):
        self.assertEqual(on_ranks(2, released_and_resumed), [0.0] * 2)

    def test_says_what_it_cannot_do_and_who_was_not_named(self):
        for memory, strangers, unknown, later, warned in on_ranks(2, says):
            self.assertIn("no momentum that could act in the memory", memory)
            self.assertIn("1 parameters of the optimizer are not of the model", strangers)
            self.assertEqual(later, strangers)
            self.assertIn("arival", unknown)
            self.assertEqual(len(warned), 1)
            self.assertIn("compress(..., optimizer=optimizer) leaves it out", warned[0])


if __name__ == "__main__":
    unittest.main()
