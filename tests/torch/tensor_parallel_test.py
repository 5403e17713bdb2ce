"""Ranks that share a layer, against the whole layer in plain torch. SPDX-License-Identifier: Apache-2.0"""
import unittest

import torch
import torch.distributed as dist
from torch import nn

import thinwire.errors
import thinwire.torch as tw
from ranks import on_ranks

SAMPLES, WIDTH, UNITS = 6, 16, 32
STEPS = 4


def layers():
    torch.manual_seed(8)
    return nn.LayerNorm(WIDTH), nn.Linear(WIDTH, UNITS), nn.Linear(UNITS, WIDTH, bias=False), nn.Linear(WIDTH, 3)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(SAMPLES, 5, WIDTH, generator=generator),
            torch.randint(3, (SAMPLES,), generator=generator))


def train(norm, pair, output, weights):
    """Losses of some steps; `pair` maps activations to activations."""
    optimizer = torch.optim.SGD([*norm.parameters(), *weights, *output.parameters()], lr=0.2)
    losses = []
    for step in range(STEPS):
        images, labels = batch(step)
        hidden = images + pair(norm(images))
        loss = nn.functional.cross_entropy(output(hidden.mean(1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def whole():
    norm, first, second, output = layers()
    losses = train(norm, lambda x: second(torch.relu(first(x))), output, [*first.parameters(), *second.parameters()])
    return losses, first.weight.detach(), second.weight.detach(), norm.weight.detach()


def part_of(linear, dim, rank, size):
    part = nn.Linear(linear.in_features // (size if dim else 1), linear.out_features // (1 if dim else size),
                     bias=linear.bias is not None)
    with torch.no_grad():
        part.weight.copy_(linear.weight.chunk(size, dim)[rank])
        if linear.bias is not None:
            part.bias.copy_(linear.bias.chunk(size, dim)[rank])
    return part


def shared(rank, size, options, by_hooks=False):
    norm, first, second, output = layers()
    first, second = part_of(first, 0, rank, size), part_of(second, 1, rank, size)
    tp = tw.TensorParallel(**options)
    if by_hooks:
        tp.column(first)
        tp.row(second)
        losses = train(norm, lambda x: second(torch.relu(first(x))), output,
                       [*first.parameters(), *second.parameters()])
    else:
        losses = train(norm, lambda x: tp.reduce_from_ranks(second(torch.relu(first(tp.copy_to_ranks(x))))), output,
                       [*first.parameters(), *second.parameters()])
    return losses, first.weight.detach(), second.weight.detach(), norm.weight.detach(), tp.metrics()


def one_sum(rank, size, options):
    """A sum and its gradient, of values that differ between ranks."""
    tp = tw.TensorParallel(**options)
    values = (torch.arange(40.0).view(4, 10) * (rank + 1) / 7).requires_grad_()
    total = tp.reduce_from_ranks(tp.copy_to_ranks(values) * (rank + 1))
    total.square().sum().backward()
    return total.detach(), values.grad


def not_finite(rank, size):
    tp = tw.TensorParallel("int8")
    values = torch.full((2, 4), float("inf") if rank == 1 else 1.0)
    broken = tp.reduce_from_ranks(values)
    return broken, tp.reduce_from_ranks(torch.full((2, 4), 1.5))


def in_pairs(rank, size):
    """Two networks of two ranks each."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    tp = tw.TensorParallel(process_group=groups[rank // 2])
    return tp.reduce_from_ranks(torch.full((1, 2), float(10**rank)))


class Scaled(nn.Module):
    def forward(self, x, factor=1.0):
        return x * factor


class AnyInputs(nn.Module):
    def forward(self, *inputs, **named):
        return sum((*inputs, *named.values()))


def by_keyword(rank, size):
    """Gradients of inputs of modules with a hook, and what a call says that has no first input."""
    tp = tw.TensorParallel()
    values = torch.ones(2, 4, requires_grad=True)
    scaled, linear, many = Scaled(), nn.Linear(4, 3, bias=False), AnyInputs()
    nn.init.constant_(linear.weight, rank + 1.0)
    for module in (scaled, linear, many):
        tp.column(module)
    found = []
    for call in (lambda: scaled(values, rank + 1), lambda: scaled(x=values, factor=rank + 1),
                 lambda: scaled(values, factor=rank + 1), lambda: scaled(factor=rank + 1, x=values),
                 lambda: linear(input=values), lambda: linear(values),
                 lambda: many(values) * (rank + 1), lambda: many(one=values) * (rank + 1)):
        values.grad = None
        call().sum().backward()
        found.append(values.grad)
    said = []
    for wrong in (lambda: scaled(factor=2.0), lambda: linear(), lambda: many(one=values, two=values)):
        try:
            wrong()
            said.append("not refused")
        except thinwire.errors.ContractError as error:
            said.append(str(error))
    return found, said


def refused(rank, size):
    found = []
    for wrong in (lambda: tw.TensorParallel(index=-1), lambda: tw.TensorParallel(index=1.5),
                  lambda: tw.TensorParallel(process_group="all"),
                  lambda: tw.TensorParallel().copy_to_ranks(torch.ones(2, 4, dtype=torch.int64)),
                  lambda: tw.TensorParallel().copy_to_ranks([1.0]),
                  lambda: tw.TensorParallel("fp17"), lambda: tw.TensorParallel(gradient_codec=3),
                  lambda: tw.TensorParallel(per_sample=1), lambda: tw.TensorParallel(codecs="fp16"),
                  lambda: tw.TensorParallel().row(nn.Linear(2, 2)),
                  lambda: tw.TensorParallel().reduce_from_ranks(torch.zeros(0, 4))):
        try:
            wrong()
            found.append("not refused")
        except (thinwire.errors.Error, TypeError) as error:
            found.append(str(error))
    return found


class TensorParallel(unittest.TestCase):
    def test_equals_the_whole_layer_to_rounding(self):
        losses, first, second, norm = whole()
        for by_hooks in (False, True):
            found = on_ranks(2, shared, {}, by_hooks)
            for rank, (own_losses, own_first, own_second, own_norm, _) in enumerate(found):
                torch.testing.assert_close(own_losses, losses, rtol=1e-5, atol=1e-6)
                torch.testing.assert_close(own_first, first.chunk(2)[rank], rtol=1e-5, atol=1e-6)
                torch.testing.assert_close(own_second, second.chunk(2, 1)[rank], rtol=1e-5, atol=1e-6)
                torch.testing.assert_close(own_norm, norm, rtol=1e-5, atol=1e-6)

    def test_what_ranks_have_whole_keeps_the_same_bits(self):
        for options in ({"codec": "qsgd"}, {"codec": "topk:density=0.3", "per_sample": True, "gradient_codec": "int8"}):
            (losses, _, _, norm, _), (other_losses, _, _, other_norm, _) = on_ranks(2, shared, options)
            self.assertEqual(losses, other_losses)
            self.assertTrue(torch.equal(norm, other_norm))
            self.assertLess(losses[-1], 1.5 * losses[0])

    def test_every_part_goes_through_the_codec_both_ways(self):
        through = tw.Boundary([10], 4, codec="uniform:bits=3,block=tensor")

        def coded(values):
            return through(values.detach())

        parts = [torch.arange(40.0).view(4, 10) * (rank + 1) / 7 * (rank + 1) for rank in range(2)]
        sums = []
        for part in parts:
            sums.append(coded(part))
            through.step()
        total = sums[0] + sums[1]
        back = []
        for rank in range(2):
            back.append(coded(2 * total * (rank + 1)))
            through.step()
        for own_total, gradient in on_ranks(2, one_sum, {"codec": "uniform:bits=3,block=tensor"}):
            self.assertTrue(torch.equal(own_total, total))
            self.assertTrue(torch.equal(gradient, back[0] + back[1]))
        self.assertFalse(torch.equal(total, parts[0] + parts[1]))

    def test_counts_the_bytes_of_messages(self):
        values = SAMPLES * 5 * WIDTH
        for *_, metrics in on_ranks(2, shared, {"codec": "fp16", "gradient_codec": "fp32"}):
            self.assertEqual(metrics, {"forward_bytes": STEPS * (48 + 24 + 4 + 2 * values),
                                       "backward_bytes": STEPS * (48 + 24 + 4 + 4 * values)})

    def test_values_that_are_not_finite_are_so_on_all_ranks(self):
        for broken, next_sum in on_ranks(2, not_finite):
            self.assertTrue(broken.isnan().all())
            torch.testing.assert_close(next_sum, torch.full((2, 4), 3.0), rtol=0.02, atol=0)

    def test_groups_of_ranks_sum_apart(self):
        self.assertEqual([found[0, 0].item() for found in on_ranks(4, in_pairs)], [11, 11, 1100, 1100])

    def test_a_hook_finds_the_first_input_by_its_name(self):
        for gradients, said in on_ranks(2, by_keyword):
            for gradient, sum_of_ranks in zip(gradients, (3, 3, 3, 3, 9, 9, 3, 3)):
                self.assertTrue(torch.equal(gradient, torch.full((2, 4), float(sum_of_ranks))))
            for text, part in zip(said, ("'x'", "'input'", "'one', 'two'")):
                self.assertIn(part, text)

    def test_says_what_is_wrong(self):
        wanted = ["index is -1", "index is 1.5", "process_group is a str", "torch.int64", "list", "fp17",
                  "gradient_codec is 3", "per_sample is 1", "no argument is named 'codecs'", "has a bias", "no samples"]
        for found in on_ranks(2, refused):
            for text, part in zip(found, wanted):
                self.assertIn(part, text)
        with self.assertRaises(thinwire.errors.ContractError):
            tw.TensorParallel()


if __name__ == "__main__":
    unittest.main()
