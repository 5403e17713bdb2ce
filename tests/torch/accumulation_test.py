"""Accumulation, mixed precision and clipping, by the code of docs/pytorch.md, beside plain DistributedDataParallel.
SPDX-License-Identifier: Apache-2.0"""
import contextlib
import pathlib
import re
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nets import batch_of, make_net, weights_of
from ranks import on_ranks

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pytorch.md"
LINK = 'link = tw.compress(model, "int8", optimizer=optimizer, scaler=scaler)\n'


def code_of_page():
    """On the processor."""
    section = PAGE.read_text().split("## Accumulation, mixed precision and clipping\n")[1]
    blocks = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
    return next(block for block in blocks if LINK in block).replace('"cuda"', '"cpu"')


def trained(rank, size, change):
    """The weights after three steps of four batches each, and how many exchanges there were."""
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    names = {"torch": torch, "tw": tw, "contextlib": contextlib, "model": model, "optimizer": optimizer,
             "criterion": nn.CrossEntropyLoss(), "batches": [batch_of(step, rank) for step in range(12)]}
    exec(compile(change(code_of_page()), str(PAGE), "exec"), names)
    return weights_of(model), names["link"].metrics()["step"] if "link" in names else 0


def as_it_stands(code):
    return code


def uncompressed(code):
    return code.replace('"int8"', '"fp32"')


def without_thinwire(code):
    assert LINK in code
    return code.replace(LINK, "")


class Accumulation(unittest.TestCase):
    def test_is_that_of_plain_training(self):
        plain = on_ranks(2, trained, without_thinwire)[0][0]
        for weights, exchanges in on_ranks(2, trained, uncompressed):
            self.assertEqual(exchanges, 3)
            self.assertTrue(torch.allclose(weights, plain, rtol=0, atol=1e-6))
        first, second = on_ranks(2, trained, as_it_stands)
        self.assertTrue(torch.equal(first[0], second[0]))
        self.assertGreater((first[0] - plain).abs().max().item(), 0)
        self.assertTrue(torch.allclose(first[0], plain, rtol=0, atol=0.02))


if __name__ == "__main__":
    unittest.main()
