"""Steps that another rank does not end: every wait has an end, which says what is lacking.
SPDX-License-Identifier: Apache-2.0"""
import time
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import backward, make_net
from ranks import on_ranks

DEADLINE = 4


def stays_away(rank, size, codec, rules):
    """Rank 1 is late for the third backward pass; torch itself has no message before it."""
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net(), broadcast_buffers=False)
    tw.compress(model, codec, rules=rules, deadline_seconds=DEADLINE)
    for step in range(2):
        backward(model, step, rank)
    began = time.monotonic()
    try:
        if rank == 0:
            backward(model, 2, rank)
        else:
            time.sleep(DEADLINE + 3)
    except Exception as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - began
    return "nothing", 0.0


def said_of(call):
    try:
        call()
        return "nothing"
    except Exception as error:
        return type(error).__name__


def lost_on_loading(rank, size):
    """What a link and a local optimiser say after a load that another rank left: the load, then other calls."""
    import thinwire.torch as tw
    model, other = DistributedDataParallel(make_net(), broadcast_buffers=False), nn.Linear(8, 4)
    link = tw.compress(model, "topk:density=0.1", deadline_seconds=DEADLINE)
    local = tw.PeriodicAveraging(torch.optim.SGD(other.parameters(), lr=0.1), other, tau=100, deadline_seconds=DEADLINE)
    backward(model, 0, rank)
    other(torch.ones(1, 8)).sum().backward()
    local.step()
    engine, worker = link._exchange._engine, local._worker
    if rank == 0:
        found = [said_of(lambda: engine.load([link._exchange.save()] * 2, 1)), said_of(lambda: link.change("fp16")),
                 said_of(lambda: link._exchange.settings)]
        return [*found, said_of(lambda: worker.load([worker.save()] * 2)), said_of(local.step)]
    # As if it were lost behind the first agreement of each load.
    engine.tell_all("")
    time.sleep(DEADLINE + 1)  # rank 0 begins the second load after its first deadline
    worker.tell_all("")
    time.sleep(2 * DEADLINE)
    return []


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.trunk, self.head = nn.Linear(64, 8), nn.Linear(8, 4)

    def forward(self, images):
        features = self.trunk(images.flatten(1))
        return features[:, :4] if self.without else self.head(features)


def leaves_one_out(rank, size):
    """Without find_unused_parameters rank 1 does not use the head; both go on as far as they come."""
    import thinwire.torch as tw
    model = DistributedDataParallel(Branch(), broadcast_buffers=False)
    tw.compress(model, "topk:density=0.1", deadline_seconds=DEADLINE)
    found = []
    began = time.monotonic()
    for step in range(2):
        model.module.without = rank == 1
        try:
            backward(model, step, rank)
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
            break
    seconds = time.monotonic() - began
    time.sleep(max(0, DEADLINE + 3 - seconds))  # rank 0's reason is its own deadline
    return found, seconds


class Waits(unittest.TestCase):
    def test_a_rank_that_stays_away_is_named_with_what_is_lacking(self):
        for codec, rules, names in (("topk:density=0.1", {}, "'0.weight', '0.bias', '1.weight', '1.bias' and 4 more"),
                                    ("int8", {}, "'0.weight', '0.bias', .* and 4 more"),
                                    ("fp32", {"4.*": "sidco"}, "'0.weight', .* and 4 more")):
            error, seconds = on_ranks(2, stays_away, codec, rules)[0]
            self.assertRegex(error, f"TimeoutError: .*rank 1.*; there is no mean of {names}$")
            self.assertLess(seconds, DEADLINE + 3)

    def test_a_gradient_that_one_rank_does_not_make(self):
        (first, seconds), (second, _) = on_ranks(2, leaves_one_out)
        self.assertRegex(first[0], "TimeoutError: .*rank 1.*no mean of 'trunk.weight', 'trunk.bias', 'head.weight'")
        self.assertLess(seconds, DEADLINE + 3)
        self.assertIn("find_unused_parameters=True", second[0])  # of DistributedDataParallel

    def test_what_was_lost_on_loading_says_so_from_then_on(self):
        self.assertEqual(on_ranks(2, lost_on_loading)[0], ["TimeoutError"] * 5)


if __name__ == "__main__":
    unittest.main()
