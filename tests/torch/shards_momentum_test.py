"""Momentum beside a link on a sharded model's own collectives, where the optimiser keeps it. SPDX-License-Identifier: Apache-2.0"""
import unittest
import warnings

import torch
import torch.distributed as dist

from gpts import make_gpt, sharded, train
from ranks import on_ranks


def of_momentum(rank, size):
    """What is said of each codec and memory beside an optimiser: when it is named, and in its steps when it is not."""
    import thinwire
    import thinwire.torch as tw
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sgd = lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)  # noqa: E731
    named, unnamed = {}, {}
    for name, make, codec, settings in (
        ("signum", sgd, "signum", {}), ("velocity", sgd, "fp32", {"feedback": "velocity:momentum=0.9"}),
        ("dgc", sgd, "int8", {"feedback": "dgc:momentum=0.9"}), ("meant", sgd, "signum", {"momentum": "optimizer"}),
        ("adamw", torch.optim.AdamW, "signum", {}),
        ("rule", sgd, "fp32", {"rules": {"head*": {"codec": "fp32", "feedback": "velocity:momentum=0.9"}}}),
        ("plain", lambda p: torch.optim.SGD(p, lr=0.01), "signum", {}), ("dense", sgd, "int8", {}),
        ("no momentum", sgd, "int8", {"feedback": "dgc:momentum=0"}),
    ):
        model = sharded(make_gpt(), mesh)
        optimizer = make(model.parameters())
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                tw.compress(model, codec, optimizer=optimizer, **settings)
                named[name] = "nothing"
            except thinwire.errors.BadOptionError as error:
                named[name] = str(error)
                tw.compress(model, codec, **settings)
                train(model, optimizer, rank, 2)
        unnamed[name] = [str(one.message) for one in said if "would act twice" in str(one.message)]
    return named, unnamed


class MomentumOfShards(unittest.TestCase):
    def test_acts_once(self):
        for named, unnamed in on_ranks(2, of_momentum):
            for name, text in named.items():
                if name in ("plain", "dense", "no momentum"):
                    self.assertEqual(text, "nothing", name)
                else:
                    self.assertIn("would act twice: memory ", text, name)
                    self.assertEqual(len(unnamed[name]), 1, name)
            self.assertIn("rule 'head*'", named["rule"])


if __name__ == "__main__":
    unittest.main()
