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


if __name__ == "__main__":
    unittest.main()
