"""Encoders and decoders beside a boundary, in one process and between ranks. SPDX-License-Identifier: Apache-2.0"""
import unittest

import torch
from torch import nn

import thinwire.errors
import thinwire.torch as tw
from nets import batch_of
from ranks import on_ranks

SAMPLES, WIDTH, CODE, PARTS, STEPS = 8, 32, 8, 2, 6


def stages(encoded=True):
    torch.manual_seed(4)
    front = nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU())
    back = nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, 4))
    if not encoded:
        return front, back
    return nn.Sequential(front, tw.Encoder(WIDTH, CODE, seed=7)), nn.Sequential(tw.Decoder(CODE, WIDTH, seed=7), back)


def boundary_of(width, **side):
    return tw.Boundary([width], SAMPLES, micro_batches=PARTS, codec="fp16", **side)


def alone(encoded=True, boundary=None):
    """Both stages in one process."""
    front, back = stages(encoded)
    boundary = boundary or boundary_of(CODE if encoded else WIDTH)
    optimizer = torch.optim.SGD([*front.parameters(), *back.parameters()], lr=0.2)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(PARTS):
            images, labels = batch_of(step % 2, part)
            loss = nn.functional.cross_entropy(back(boundary(front(images))), labels) / PARTS
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        boundary.step()
    return losses, boundary.metrics(), [p.detach() for stage in (front, back) for p in stage.parameters()]


def between_ranks(rank, size):
    stage = stages()[rank]
    boundary = boundary_of(CODE, **({"to_rank": 1} if rank == 0 else {"from_rank": 0}))
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.2)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        ends = []
        for part in range(PARTS):
            images, labels = batch_of(step % 2, part)
            if rank == 0:
                ends.append(boundary.send(stage(images)))
            else:
                ends.append(nn.functional.cross_entropy(stage(boundary.receive()), labels) / PARTS)
                losses.append(ends[-1].item())
        for end in ends:
            end.backward()
        optimizer.step()
        boundary.step()
    return losses, boundary.metrics(), [p.detach() for p in stage.parameters()]


class Matrices(unittest.TestCase):
    def test_begin_as_a_projection_by_the_seed(self):
        encoder, decoder = tw.Encoder(WIDTH, CODE, seed=3), tw.Decoder(CODE, WIDTH, seed=3)
        self.assertEqual(encoder.weight.shape, (CODE, WIDTH))
        self.assertTrue(torch.equal(encoder.weight, decoder.weight.t()))
        self.assertTrue(torch.allclose(encoder.weight @ encoder.weight.t(), torch.eye(CODE), atol=1e-6))
        self.assertFalse(torch.equal(encoder.weight, tw.Encoder(WIDTH, CODE, seed=4).weight))
        x = torch.randn(5, WIDTH)
        once = decoder(encoder(x))
        self.assertTrue(torch.allclose(decoder(encoder(once)), once, atol=1e-5))
        whole = nn.Sequential(tw.Encoder(WIDTH, WIDTH), tw.Decoder(WIDTH, WIDTH))
        self.assertTrue(torch.allclose(whole(x), x, atol=1e-5))

    def test_gradients_are_those_of_the_formulas(self):
        encoder, decoder = tw.Encoder(6, 2, dim=1), tw.Decoder(2, 6, dim=1)
        x, pull = torch.randn(3, 6, 4, 5, requires_grad=True), torch.randn(3, 6, 4, 5)
        y = decoder(encoder(x))
        y.backward(pull)
        e, d = encoder.weight.detach().t(), decoder.weight.detach().t()  # x E D over channels
        flat = lambda t: t.detach().movedim(1, -1).reshape(-1, 6)
        self.assertTrue(torch.allclose(flat(y), flat(x) @ e @ d, atol=1e-5))
        self.assertTrue(torch.allclose(decoder.weight.grad.t(), (flat(x) @ e).t() @ flat(pull), atol=1e-4))
        self.assertTrue(torch.allclose(encoder.weight.grad.t(), flat(x).t() @ flat(pull) @ d.t(), atol=1e-4))
        self.assertTrue(torch.allclose(flat(x.grad), flat(pull) @ d.t() @ e.t(), atol=1e-5))

    def test_mistakes_are_explained(self):
        for text, make in (("Encoder: code is 33, must be a whole number from 1 to 32", lambda: tw.Encoder(32, 33)),
                           ("Decoder: code is 0, must be", lambda: tw.Decoder(0, 32)),
                           ("Encoder: dim is 'last'", lambda: tw.Encoder(32, 8, dim="last"))):
            with self.assertRaisesRegex(thinwire.errors.Error, text):
                make()
        with self.assertRaisesRegex(TypeError, "did you mean 'dim'"):
            tw.Decoder(8, 32, dims=1)


class Stages(unittest.TestCase):
    def test_two_ranks_do_what_one_process_does(self):
        first, second = on_ranks(2, between_ranks)
        losses, metrics, weights = alone()
        self.assertEqual(second[0], losses)
        self.assertTrue(all(map(torch.equal, first[2] + second[2], weights)))
        self.assertEqual(first[1]["forward_bytes"], metrics["forward_bytes"])
        start = [p.detach() for stage in stages() for p in stage.parameters()]
        self.assertFalse(any(map(torch.equal, weights, start)))  # all are trained, matrices too
        self.assertLess(sum(losses[-4:]), sum(losses[:4]))

    def test_bytes_fall_with_the_width_of_the_code(self):
        code, plain = alone()[1], alone(encoded=False)[1]
        messages = STEPS * PARTS
        for way in ("forward_bytes", "backward_bytes"):
            self.assertEqual(plain[way] - code[way], messages * SAMPLES * 2 * (WIDTH - CODE))


if __name__ == "__main__":
    unittest.main()
