"""Adam where values arrive late: torch's own steps where nothing waits, the formula where it does.
SPDX-License-Identifier: Apache-2.0"""
import io
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import batch_of, weights_of
from ranks import on_ranks

STEPS = 8
KINDS = {
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.01, betas=(0.8, 0.99)),
    "adam with decay": lambda groups: torch.optim.Adam(groups, lr=0.01, weight_decay=0.05),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.01, weight_decay=0.05),
    "maximize": lambda groups: torch.optim.AdamW(groups, lr=0.01, maximize=True),
    "foreach": lambda groups: torch.optim.AdamW(groups, lr=0.01, foreach=True),
    "fused": lambda groups: torch.optim.AdamW(groups, lr=0.01, fused=True),
}


def make_net():
    """Every weight has a gradient in every step."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 4))


class Run:
    def __init__(self, codec, kind="adamw", **settings):
        import thinwire.torch as tw
        self.model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
        self.optimizer = KINDS[kind](self.model.parameters())
        settings.setdefault("optimizer", self.optimizer)
        settings.setdefault("momentum", "arrival")
        self.link = None if codec is None else tw.compress(self.model, codec, **settings)

    def steps(self, rank, first, last):
        for step in range(first, last):
            for group in self.optimizer.param_groups:
                group["lr"] = 0.01 if step < 4 else 0.003
            images, labels = batch_of(step, rank)
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(images), labels)
            (-loss if self.optimizer.defaults["maximize"] else loss).backward()
            before = [p.grad.clone() for p in self.model.parameters()]
            self.optimizer.step()
            for parameter, gradient in zip(self.model.parameters(), before):
                assert torch.equal(parameter.grad, gradient)
        return self


def distance(one, other):
    return (weights_of(one.model) - weights_of(other.model)).abs().max().item()


def where_nothing_waits(rank, size):
    return {kind: distance(Run(None, kind).steps(rank, 0, STEPS), Run("topk:density=1", kind).steps(rank, 0, STEPS))
            for kind in KINDS}


def late(rank, size):
    counted = Run("topk:density=0.05").steps(rank, 0, STEPS)
    as_it_is = Run("topk:density=0.05", momentum="auto").steps(rank, 0, STEPS)
    waited = max(state["waited"].max().item() for state in counted.optimizer.state.values())
    return weights_of(counted.model), distance(counted, as_it_is), waited, len(as_it_is.optimizer.state)


def by_the_formula(rank, size):
    """One step after another from the gradients that came, in double precision."""
    run = Run("topk:density=0.05", "adam with decay")
    weights = [p.detach().double().clone() for p in run.model.parameters()]
    first = [torch.zeros_like(w) for w in weights]
    second = [torch.zeros_like(w) for w in weights]
    waited = [torch.zeros_like(w) for w in weights]
    for step in range(STEPS):
        run.steps(rank, step, step + 1)
        rate = run.optimizer.param_groups[0]["lr"]
        for i, parameter in enumerate(run.model.parameters()):
            a, k = parameter.grad.double(), waited[i].add_(1)
            here = a != 0
            each = a / k + 0.05 * weights[i]
            m = 0.9**k * first[i] + (1 - 0.9**k) * each
            v = 0.999 * second[i] + 0.001 * (each * k)**2
            along = k * rate * m / (1 - 0.9**(step + 1)) / ((v / (1 - 0.999**(step + 1))).sqrt() + 1e-8)
            first[i], second[i] = torch.where(here, m, first[i]), torch.where(here, v, 0.999 * second[i])
            weights[i] = torch.where(here, weights[i] - along, weights[i])
            waited[i][here] = 0
    return max((w - p.double()).abs().max().item() for w, p in zip(weights, run.model.parameters()))


def resumed(rank, size):
    whole = Run("topk:density=0.05").steps(rank, 0, STEPS)
    begun = Run("topk:density=0.05").steps(rank, 0, 3)
    file = io.BytesIO()
    torch.save([begun.model.state_dict(), begun.optimizer.state_dict(), begun.link.state_dict()], file)
    file.seek(0)
    goes_on = Run("topk:density=0.05")
    model, optimizer, link = torch.load(file, weights_only=False)
    goes_on.model.load_state_dict(model)
    goes_on.optimizer.load_state_dict(optimizer)
    goes_on.link.load_state_dict(link)
    return distance(whole, goes_on.steps(rank, 3, STEPS))


def released(rank, size):
    run = Run("topk:density=1").steps(rank, 0, 4)
    run.link.release_optimizer()
    kept = {key for state in run.optimizer.state.values() for key in state}
    return distance(Run(None).steps(rank, 0, STEPS), run.steps(rank, 4, STEPS)), kept


def refusals(rank, size):
    import thinwire.torch as tw
    from thinwire.errors import Error
    texts = []
    for kind, options, momentum in [("AdamW", {"amsgrad": True}, "arrival"), ("AdamW", {}, "memory"),
                                    ("SGD", {}, "arrival"), ("SGD", {"momentum": 0.9}, "arrival"),
                                    (None, {}, "arrival"), ("AdamW", {}, "arival")]:
        model = DistributedDataParallel(make_net())
        optimizer = kind and getattr(torch.optim, kind)(model.parameters(), lr=0.1, **options)
        try:
            tw.compress(model, "topk:density=0.05", optimizer=optimizer, momentum=momentum)
            texts.append("")
        except Error as error:
            texts.append(str(error))
    return texts


class Arrivals(unittest.TestCase):
    def test_is_torchs_own_step_where_nothing_waits(self):
        for kinds in on_ranks(2, where_nothing_waits):
            for kind, off in kinds.items():
                self.assertLess(off, 3e-6, kind)

    def test_late_values_count_and_ranks_hold_the_same_bits(self):
        ranks = on_ranks(2, late)
        self.assertTrue(torch.equal(ranks[0][0], ranks[1][0]))
        for _, off, waited, count in ranks:
            self.assertGreater(off, 1e-3)
            self.assertGreaterEqual(waited, 1)
            self.assertGreater(count, 0)

    def test_follows_the_formula(self):
        for off in on_ranks(2, by_the_formula):
            self.assertLess(off, 2e-6)

    def test_resumes_bit_for_bit(self):
        self.assertEqual(on_ranks(2, resumed), [0.0, 0.0])

    def test_a_released_optimiser_goes_on_by_itself(self):
        for off, kept in on_ranks(2, released):
            self.assertLess(off, 3e-6)
            self.assertNotIn("waited", kept)

    def test_says_what_it_cannot_do(self):
        for amsgrad, memory, sgd, momentum, unnamed, unknown in on_ranks(2, refusals):
            self.assertIn("amsgrad=False", amsgrad)
            self.assertIn("no momentum that could act in the memory", memory)
            self.assertIn("not SGD", sgd)
            self.assertIn("arrival is for Adam", momentum)
            self.assertIn("compress(..., optimizer=optimizer)", unnamed)
            self.assertIn("arrival", unknown)


if __name__ == "__main__":
    unittest.main()
