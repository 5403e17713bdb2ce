#!/usr/bin/env python3
"""Memories: nothing is lost between steps, both ways to run a step agree, states continue."""

# SPDX-License-Identifier: Apache-2.0
import unittest

import numpy as np
from cases import heavy_tail, normal, same_bits

import thinwire

SHAPE = (50, 100)


def memories():
    return [info.name for info in thinwire.feedbacks()]


def fused_step(memory, encoder, gradient, step):
    payload = memory.encode(encoder, gradient, step=step)
    memory.commit(mean=np.zeros(SHAPE, np.float32))
    return payload


def step_by_hand(memory, encoder, gradient, step):
    values, fresh = memory.prepare(gradient, step=step)
    payload, rest = encoder.encode_with_remainder(values, fresh, step=step)
    memory.commit(rest, mean=np.zeros(SHAPE, np.float32))
    return payload


class Memories(unittest.TestCase):
    def test_lists_what_there_is(self):
        self.assertLessEqual({"none", "residual"}, set(memories()))
        for name in memories():
            self.assertEqual(thinwire.Feedback(name, SHAPE).shape, SHAPE)
        with self.assertRaisesRegex(thinwire.UnknownNameError, "known: none"):
            thinwire.Feedback("elephant", SHAPE)

    def test_residual_is_what_was_not_sent(self):
        codec = thinwire.Codec("topk", density=0.01)
        encoder, decoder = codec.encoder(SHAPE), codec.decoder(SHAPE)
        memory = thinwire.Feedback("residual", SHAPE)
        residual = np.zeros(SHAPE, np.float32)
        for step in range(5):
            gradient = heavy_tail(SHAPE, step)
            payload = step_by_hand(memory, encoder, gradient, step)
            self.assertEqual(payload, codec.encoder(SHAPE).encode(gradient + residual))
            residual = (gradient + residual) - decoder.decode(payload)

    def test_both_ways_to_run_a_step_agree(self):
        for name in memories():
            for spec in ("adacomp", "sidco:density=0.01", "fp16"):
                pair = [
                    (thinwire.Feedback(name, SHAPE, "linear"), thinwire.Codec(spec).encoder(SHAPE))
                    for _ in range(2)
                ]
                for step in range(6):
                    gradient = heavy_tail(SHAPE, step)
                    before = gradient.copy()
                    with self.subTest(memory=name, codec=spec, step=step):
                        self.assertEqual(
                            fused_step(*pair[0], gradient, step),
                            step_by_hand(*pair[1], gradient, step),
                        )
                        self.assertEqual(pair[0][0].state(), pair[1][0].state())
                        self.assertTrue(same_bits(gradient, before))

    def test_memories_hear_how_many_ranks_there_are(self):
        sent = [  # DGC clips to its share of the norm that all ranks may have
            thinwire.Feedback("dgc", SHAPE, clip=0.01).prepare(normal(SHAPE), ranks=ranks).values
            for ranks in (1, 4)
        ]
        self.assertFalse(same_bits(*sent))

    def test_ranks_by_hand_are_what_all_reduce_does(self):
        codec, ranks = thinwire.Codec("topk", density=0.05), 3
        for name in memories():
            pairs = [
                (thinwire.Feedback(name, 2000), codec.encoder(2000)) for _ in range(ranks)
            ]
            stores = [thinwire.Store() for _ in range(ranks)]
            for step in range(5):
                gradients = [heavy_tail(2000, 10 * step + rank) for rank in range(ranks)]
                mean = np.zeros(2000, np.float32)
                for rank, (memory, encoder) in enumerate(pairs):
                    payload = memory.encode(
                        encoder, gradients[rank], step=step, salt=rank, ranks=ranks
                    )
                    codec.decoder(2000).decode_add(payload, 1 / ranks, mean)
                means = [mean.copy() for _ in pairs]
                for (memory, _), received in zip(pairs, means):
                    memory.commit(mean=received)
                expected, _ = thinwire.all_reduce(
                    gradients, codec, "gather", name, stores=stores, step=step
                )
                with self.subTest(memory=name, step=step):
                    for received in means:
                        self.assertTrue(same_bits(received, expected))

    def test_rollback_forgets_and_state_continues(self):
        codec = thinwire.Codec("topk", density=0.05)
        for name in memories():
            straight, bumpy = (thinwire.Feedback(name, SHAPE) for _ in range(2))
            encoder = codec.encoder(SHAPE)
            for step in range(9):
                bumpy.encode(encoder, heavy_tail(SHAPE, 100 + step))
                bumpy.rollback()
                bumpy.prepare(heavy_tail(SHAPE, 200 + step))
                bumpy.rollback()
                bumpy.rollback()
                gradient = heavy_tail(SHAPE, step)
                with self.subTest(memory=name, step=step):
                    self.assertEqual(
                        fused_step(bumpy, encoder, gradient, step),
                        fused_step(straight, encoder, gradient, step),
                    )
                    self.assertEqual(bumpy.encoded, straight.encoded)
                if step % 3 == 2:
                    state = bumpy.state()
                    bumpy = thinwire.Feedback(name, SHAPE)
                    bumpy.load_state(state)
                    self.assertEqual(bumpy.state(), state)

    def test_bad_gradients_and_failed_encodes_change_nothing(self):
        encoder = thinwire.Codec("topk").encoder(SHAPE, auto_commit=False)
        for name in memories():
            memory = thinwire.Feedback(name, SHAPE)
            good = normal(SHAPE)
            fused_step(memory, encoder, good, 0)
            state = memory.state()
            bad = good.copy()
            bad[3, 4] = np.nan
            for work in (memory.prepare, lambda gradient: memory.encode(encoder, gradient)):
                with self.assertRaises(thinwire.NonFiniteError):
                    work(bad)
            with self.assertRaisesRegex(thinwire.ContractError, "waits for commit"):
                memory.encode(encoder, good)  # the encoder's last step is open
            self.assertEqual(memory.state(), state)
            encoder.commit()
            fused_step(memory, encoder, good, 1)
            encoder.commit()

    def test_a_signal_that_was_sent_is_held_no_longer(self):
        # Memories may lend its bytes to other streams (ahead does).
        encoder = thinwire.Codec("topk").encoder(SHAPE)
        for name in memories():
            memory, copy = thinwire.Feedback(name, SHAPE), np.empty(SHAPE, np.float32)
            memory.prepare(normal(SHAPE))
            memory._native.copy_values(copy)
            memory.rollback()
            memory.encode(encoder, normal(SHAPE))
            with self.assertRaisesRegex(thinwire.ContractError, "not as long as the signal"):
                memory._native.copy_values(copy)

    def test_calls_out_of_order_are_refused(self):
        memory = thinwire.Feedback("residual", SHAPE)
        with self.assertRaisesRegex(thinwire.ContractError, "without prepare"):
            memory.commit()
        memory.prepare(normal(SHAPE))
        with self.assertRaisesRegex(thinwire.ContractError, "waits for commit"):
            memory.prepare(normal(SHAPE))
        with self.assertRaisesRegex(thinwire.ContractError, "needs the remainder"):
            memory.commit()
        memory.commit(normal(SHAPE))
        memory.encode(thinwire.Codec("fp16").encoder(SHAPE), normal(SHAPE))
        with self.assertRaisesRegex(thinwire.ContractError, "kept the remainder already"):
            memory.commit(normal(SHAPE))
        memory.rollback()
        with self.assertRaisesRegex(thinwire.ContractError, "the encoder's"):
            memory.encode(thinwire.Codec("fp32").encoder(5000), normal(SHAPE))
        with self.assertRaisesRegex(thinwire.DTypeError, "gradient: dtype is float64"):
            memory.prepare(np.zeros(SHAPE))

    def test_an_estimate_of_the_mean_needs_the_mean(self):
        encoder = thinwire.Codec("topk").encoder(SHAPE)
        memory, mean = thinwire.Feedback("ef21", SHAPE), np.zeros(SHAPE, np.float32)
        for _ in range(2):
            memory.encode(encoder, normal(SHAPE))
            with self.assertRaisesRegex(thinwire.ContractError, "needs mean"):
                memory.commit()
            memory.commit(mean=mean)


if __name__ == "__main__":
    unittest.main()
