"""Gradients of float16 beyond its range, and sparse ones in skipped and scaled steps.
SPDX-License-Identifier: Apache-2.0"""
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kinds import Tiny, backward, gradients_of, weights_of, wrap
from ranks import on_ranks


class Overflowing(nn.Module):
    """Every gradient is the largest float16 there is."""

    def __init__(self):
        super().__init__()
        self.values = nn.Parameter(torch.zeros(64, dtype=torch.float16))

    def forward(self, scale):
        return (self.values * torch.tensor(scale, dtype=torch.float16)).sum()


def tiny_in_float16(rank, size):
    """Gradients that are not zero with a scale of 65536."""
    import thinwire.torch as tw
    model, scaler = DistributedDataParallel(Tiny()), torch.amp.GradScaler("cpu", init_scale=65536.0)
    tw.compress(model, "fp32", scaler=scaler)
    scaler.scale(model()).backward()
    return model.module.values.grad.float() / 65536


def beyond_float16(rank, size, scale=None):
    """What topk left out of the first step comes besides the second's own."""
    import thinwire.torch as tw
    model = DistributedDataParallel(Overflowing())
    link = tw.compress(model, "topk:density=0.5", scaler=scale and torch.amp.GradScaler("cpu", init_scale=scale))
    for step in range(2):
        if step:
            link.change("fp32")
        model.zero_grad()
        model(65504.0).backward()
    large = model.module.values.grad.clone()
    link.change("fp32")
    model.zero_grad()
    model(float("nan") if rank else 1.0).backward()
    return large, bool(model.module.values.grad.isnan().all())


def spoilt_sparse(rank, size):
    """One rank has a NaN elsewhere, which another codec carries: every row of the table is NaN on
    both."""
    import thinwire.torch as tw
    model = wrap("sparse")
    tw.compress(model, "topk:density=0.1", rules={"back.weight": "fp16"})
    if rank:
        model.module.back.weight.register_hook(lambda gradient: gradient * float("nan"))
    backward(model, 0, rank)
    return bool(gradients_of(model).isnan().all())


def scaled_sparse(rank, size):
    """A gradient scaler's scale goes out before and in again behind."""
    import thinwire.torch as tw
    found = []
    for scale in (None, 1024.0):
        scaler = scale and torch.amp.GradScaler("cpu", init_scale=scale)
        model = wrap("sparse")
        tw.compress(model, "topk:density=0.2", scaler=scaler or None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            generator = torch.Generator().manual_seed(1000 * step + rank)
            images = torch.randn(8, 6, generator=generator)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), images[:, :4].argmax(1))
            (scaler.scale(loss) if scaler else loss).backward()
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
        found.append(weights_of(model))
    return found


class Extremes(unittest.TestCase):
    def test_float16_ends_at_its_largest_value_and_keeps_nan(self):
        for scale in (None, 2.0):
            for large, all_nan in on_ranks(2, beyond_float16, scale):
                self.assertEqual(large.dtype, torch.float16)
                self.assertTrue((large == 65504).all(), large)
                self.assertTrue(all_nan)

    def test_gradients_that_need_their_scale_in_float16_keep_it(self):
        for found in on_ranks(2, tiny_in_float16):
            torch.testing.assert_close(found, torch.full((8, 4), 1e-8), rtol=1e-2, atol=0)

    def test_a_skipped_step_reaches_every_row_of_a_sparse_gradient(self):
        self.assertEqual(on_ranks(2, spoilt_sparse), [True, True])

    def test_sparse_gradients_with_a_scaler(self):
        for without, scaled in on_ranks(2, scaled_sparse):
            self.assertLess((without - scaled).abs().max().item(), 1e-6)


if __name__ == "__main__":
    unittest.main()
