"""An optimiser's momentum in the link's memories, when codecs change. SPDX-License-Identifier: Apache-2.0"""
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from momentum_runs import STEPS, Run, away
from nets import make_net, train, weights_of
from ranks import on_ranks


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


def measured_apart(rank, size):
    """A change where one rank measures norms and the other does not."""
    run = Run("topk:density=0.05", settings={"norms": rank == 0}).steps(rank, 0, 2)
    run.link.change("topk:density=0.1")
    return weights_of(run.steps(rank, 2, 4).model)


class MomentumAndCodecs(unittest.TestCase):
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

    def test_codecs_change_whatever_a_rank_measures(self):
        one, other = on_ranks(2, measured_apart)
        self.assertTrue(torch.equal(one, other))


if __name__ == "__main__":
    unittest.main()
