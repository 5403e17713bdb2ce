"""Sums over ranks after calls in which ranks differ, or to which one does not come. SPDX-License-Identifier: Apache-2.0"""
import json
import os
import resource
import time
import unittest

import torch

import thinwire.errors
import thinwire.torch as tw
from ranks import on_ranks
from thinwire.torch._same_call import require_same

DEADLINE = 3


def said_by(call):
    try:
        call()
        return "nothing"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# What the ranks give, and what all of them say.
WRONG = (
    (((2, 8), (3, 8)), ["MismatchError", "[2, 8] on rank 0", "[3, 8] on rank 1", "sum of activations"]),
    (((8, 2), (2, 8)), ["MismatchError", "[8, 2] on rank 0", "[2, 8] on rank 1"]),
    (((4, 8), (0, 8)), ["ContractError", "rank 1", "(0, 8)", "no samples"]),
    (((4, 8), torch.float16), ["MismatchError", "torch.float32 on rank 0", "torch.float16 on rank 1"]),
    (((4, 8), torch.int64), ["DTypeError", "rank 1", "torch.int64", "floating-point"]),
    (((4, 8), None), ["ContractError", "rank 1", "NoneType", "Tensor"]),
    ((None, None), ["ContractError", "rank 0", "NoneType", "Tensor"]),
)


def given(what):
    if isinstance(what, tuple):
        return torch.ones(what)
    return None if what is None else torch.ones(4, 8, dtype=what)


def wrong_calls(rank, size):
    tp = tw.TensorParallel("fp16", deadline_seconds=20)
    found = []
    for shapes, _ in WRONG:
        said = said_by(lambda: tp.reduce_from_ranks(given(shapes[rank])))
        found.append((said, tp.reduce_from_ranks(torch.full((2, 8), rank + 1.0))))
    return found


def wrong_gradient(rank, size):
    tp = tw.TensorParallel(deadline_seconds=20)
    values = torch.ones(2 + rank, 4, requires_grad=True)
    said = said_by(lambda: tp.copy_to_ranks(values).sum().backward())
    own = torch.ones(2, 4, requires_grad=True)
    tp.copy_to_ranks(own).sum().backward()
    return said, own.grad


def other_directions(rank, size):
    """Rank 1 sums activations where rank 0 sums gradients."""
    tp = tw.TensorParallel(deadline_seconds=20)
    values = torch.ones(2, 4, requires_grad=True)
    copied = tp.copy_to_ranks(values)
    return said_by((lambda: copied.sum().backward()) if rank == 0 else (lambda: tp.reduce_from_ranks(values)))


def other_arguments(rank, size):
    tp = tw.TensorParallel(gradient_codec=("fp16", "int8")[rank], deadline_seconds=20)
    return said_by(lambda: tp.reduce_from_ranks(torch.ones(2, 4)))


def missing_rank(rank, size):
    """Rank 1 does not make the second call."""
    tp = tw.TensorParallel(deadline_seconds=DEADLINE)
    tp.reduce_from_ranks(torch.ones(2, 4))
    began = time.monotonic()
    if rank == 1:
        time.sleep(DEADLINE + 2)
        return None
    said = said_by(lambda: tp.reduce_from_ranks(torch.ones(2, 4)))
    return said, time.monotonic() - began, said_by(lambda: tp.reduce_from_ranks(torch.ones(2, 4)))


def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def many_lengths(rank, size):
    """How much more memory a rank has after sums of many lengths, each of which comes once."""
    tp = tw.TensorParallel("topk:density=0.1", per_sample=True)

    def sums(lengths):
        for length in lengths:
            tp.reduce_from_ranks(torch.ones(16, length, 64))

    sums(range(280, 300))
    before = resident_mb()
    sums(range(1, 280))
    return resident_mb() - before


WHOLE = {"index": 0, "call": 1, "of": "activations", "step": 0, "size": 5, "arguments": "", "shape": [2], "dtype": "x"}

# What a rank may send in the place of what it says of its call.
HOSTILE = (b"\xff", b"{", b"[" * 100_000, b"[]", b"7", b"{}", *(json.dumps(one).encode() for one in (
    {**WHOLE, "index": "0"}, {**WHOLE, "of": 3}, {**WHOLE, "size": None}, {**WHOLE, "step": True},
    {key: value for key, value in WHOLE.items() if key != "shape"},
    *({**WHOLE, "problem": problem} for problem in ("no", ["Error"], [3, "why"], ["Error", None])))))


class TensorParallelCalls(unittest.TestCase):
    def test_what_another_rank_says_of_its_call_may_be_anything(self):
        def read(said):
            return require_same([torch.frombuffer(bytearray(said), dtype=torch.uint8)], 10, None)

        self.assertEqual(read(json.dumps(WHOLE).encode()), [5])
        for said in HOSTILE:
            with self.subTest(said=said[:80]), self.assertRaisesRegex(thinwire.errors.CorruptError, "rank 0"):
                read(said)
        with self.assertRaisesRegex(thinwire.errors.CorruptError, "announces 11 bytes"):
            read(json.dumps({**WHOLE, "size": 11}).encode())

    def test_all_ranks_say_the_same_of_a_wrong_call_and_go_on(self):
        found = on_ranks(2, wrong_calls)
        for (_, parts), (said, total), (other_said, other_total) in zip(WRONG, *found):
            self.assertEqual(said, other_said)
            for part in parts:
                self.assertIn(part, said)
            self.assertTrue(torch.equal(total, torch.full((2, 8), 3.0)))
            self.assertTrue(torch.equal(total, other_total))

    def test_three_ranks_name_the_one_that_differs(self):
        for said, _ in on_ranks(3, wrong_gradient):
            self.assertIn("sum of gradients", said)
            self.assertIn("[2, 4] on rank 0; [3, 4] on rank 1; [4, 4] on rank 2", said)

    def test_a_wrong_gradient_leaves_the_object_as_it_was(self):
        for said, gradient in on_ranks(2, wrong_gradient):
            self.assertIn("[2, 4] on rank 0; [3, 4] on rank 1", said)
            self.assertTrue(torch.equal(gradient, torch.full((2, 4), 2.0)))

    def test_ranks_that_sum_in_different_directions_say_so(self):
        said, other = on_ranks(2, other_directions)
        self.assertEqual(said, other)
        self.assertIn("gradients on rank 0; activations on rank 1", said)

    def test_ranks_with_different_arguments_say_so(self):
        said, other = on_ranks(2, other_arguments)
        self.assertEqual(said, other)
        self.assertIn("gradient_codec='fp16'", said)
        self.assertIn("gradient_codec='int8'", said)

    def test_a_rank_that_does_not_come_is_named_at_the_deadline(self):
        said, seconds, next_said = on_ranks(2, missing_rank)[0]
        self.assertIn("TimeoutError", said)
        self.assertIn("rank 1", said)
        self.assertLess(seconds, DEADLINE + 20)
        self.assertIn("ContractError", next_said)
        self.assertIn("make the object anew", next_said)
        with self.assertRaises(thinwire.errors.BadOptionError):
            tw.TensorParallel(deadline_seconds=0)

    @unittest.skipIf("asan" in os.environ.get("LD_PRELOAD", ""), "AddressSanitizer keeps freed memory")
    def test_lengths_that_do_not_come_again_cost_no_memory(self):
        for grown in on_ranks(2, many_lengths):
            self.assertLess(grown, 50)


if __name__ == "__main__":
    unittest.main()
