#!/usr/bin/env python3
"""Saved states: readable by others, total on hostile bytes, redistributed over other ranks."""

# SPDX-License-Identifier: Apache-2.0
import json
import random
import unittest

import numpy as np
from cases import heavy_tail, normal

import thinwire


def read(state):
    """Arrays of a safetensors file by name, written from the format's description."""
    size = int.from_bytes(state[:8], "little")
    header = json.loads(state[8 : 8 + size])
    metadata = header.pop("__metadata__")
    dtypes = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "U8": np.uint8}
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        data = state[8 + size + begin : 8 + size + end]
        arrays[name] = np.frombuffer(data, dtypes[entry["dtype"]]).reshape(entry["shape"])
    return arrays, metadata


def file_of(header, data=b""):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


class Format(unittest.TestCase):
    def setUp(self):
        self.memory = thinwire.Feedback("residual", 100)
        self.memory.prepare(normal(100))
        self.rest = normal(100, 1)
        self.memory.commit(self.rest)

    def test_is_safetensors(self):
        arrays, metadata = read(self.memory.state())
        self.assertEqual(set(arrays), {"residual", "thinwire/seal/xxh3"})
        self.assertTrue(np.array_equal(arrays["residual"], self.rest))
        self.assertEqual(metadata["thinwire.owed_to_mean"], "residual")

    def test_every_cut_is_refused(self):
        state = self.memory.state()
        for cut in range(len(state)):
            with self.assertRaises((thinwire.BadLengthError, thinwire.CorruptError)):
                self.memory.load_state(state[:cut])
        with self.assertRaises(thinwire.CorruptError):
            self.memory.load_state(state + b"\0")
        self.assertEqual(self.memory.state(), state)

    def test_every_flipped_bit_of_the_arrays_is_found(self):
        state = self.memory.state()
        begin = 8 + int.from_bytes(state[:8], "little")
        draw = random.Random(2)
        for _ in range(500):
            damaged = bytearray(state)
            damaged[draw.randrange(begin, len(state))] ^= 1 << draw.randrange(8)
            with self.assertRaisesRegex(thinwire.CorruptError, "'residual' is not what was saved"):
                self.memory.load_state(damaged)
        self.assertEqual(self.memory.state(), state)

    def test_hostile_bytes_are_values_or_clean_errors(self):
        encoder = thinwire.Codec("sidco").encoder(5000)
        encoder.encode(heavy_tail(5000))
        draw = random.Random(1)
        refused = 0
        for holder in (self.memory, encoder):
            state = holder.state()
            for _ in range(500):
                hostile = bytearray(state)
                for _ in range(draw.randint(1, 4)):
                    hostile[draw.randrange(min(len(hostile), 250))] = draw.randrange(256)
                try:
                    holder.load_state(hostile)
                except thinwire.Error:
                    refused += 1
        self.assertGreater(refused, 500)

    def test_headers_that_lie(self):
        entry = {"dtype": "F32", "shape": [100], "data_offsets": [0, 400]}
        data = bytes(400)
        self.memory.load_state(file_of({"residual": entry}, data))
        lies = [
            [],
            {"__metadata__": 7},
            {"__metadata__": {"format": 7}},
            {"residual": 7},
            {"residual": {"dtype": "F32"}},
            {"residual": dict(entry, dtype="F16")},
            {"residual": dict(entry, shape=[99])},
            {"residual": dict(entry, shape=[-100])},
            {"residual": dict(entry, shape=[1 << 62, 1 << 62])},
            {"residual": dict(entry, shape=[1] * 100000)},
            {"residual": dict(entry, shape=100)},
            {"residual": dict(entry, shape=[100.0])},
            {"residual": dict(entry, data_offsets=[400, 0])},
            {"residual": dict(entry, data_offsets=[4, 404])},
            {"residual": dict(entry, data_offsets=[0])},
            {"residual": entry, "again": entry},
            {"\ud800": entry},
        ]
        for header in lies:
            with self.assertRaises(thinwire.CorruptError, msg=str(header)[:60]):
                self.memory.load_state(file_of(header, data))
        with self.assertRaises(thinwire.CorruptError):
            self.memory.load_state(file_of(json.loads("[" * 500 + "]" * 500), data))
        with self.assertRaises(thinwire.BadLengthError):
            self.memory.load_state((1 << 40).to_bytes(8, "little") + data)

    def test_states_of_other_things_do_not_fit(self):
        state = self.memory.state()
        with self.assertRaisesRegex(thinwire.MismatchError, "residual"):
            thinwire.Feedback("residual", 99).load_state(state)
        for other in ({}, {"residual": {"dtype": "F64", "shape": [50], "data_offsets": [0, 400]}}):
            with self.assertRaises(thinwire.MismatchError):
                self.memory.load_state(file_of(other, bytes(400) if other else b""))
        self.assertEqual(self.memory.state(), state)


class Stores(unittest.TestCase):
    def run_steps(self, stores, first, last, ranks=3):
        means = []
        for step in range(first, last):
            gradients = [heavy_tail(2000, 10 * step + rank) for rank in range(ranks)]
            result = thinwire.all_reduce(gradients, "sidco:density=0.01", stores=stores, step=step)
            means.append(result.mean.tobytes())
        return means

    def test_a_restart_continues_to_the_bit(self):
        straight = [thinwire.Store() for _ in range(3)]
        expected = self.run_steps(straight, 0, 8)
        stores = [thinwire.Store() for _ in range(3)]
        before = self.run_steps(stores, 0, 4)
        states = [store.state() for store in stores]
        restarted = [thinwire.Store() for _ in range(3)]
        for rank, store in enumerate(restarted):
            store.load_state(states, rank)
            self.assertEqual(store.unclaimed(), ["model/encoder", "model/feedback"])
        self.assertEqual(before + self.run_steps(restarted, 4, 8), expected)
        self.assertEqual(restarted[0].unclaimed(), [])
        forgetful = [thinwire.Store() for _ in range(3)]
        self.assertNotEqual(before + self.run_steps(forgetful, 4, 8), expected)

    def test_what_is_owed_survives_another_number_of_ranks(self):
        stores = [thinwire.Store() for _ in range(3)]
        self.run_steps(stores, 0, 3)
        states = [store.state() for store in stores]
        key = "model/feedback/residual"
        owed = np.mean([read(state)[0][key] for state in states], axis=0, dtype=np.float64)
        for size in (1, 2, 5):
            for rank in range(size):
                store = thinwire.Store()
                store.load_state(states, rank, size)
                mine = read(store.state())[0][key]
                self.assertTrue(np.array_equal(mine, owed.astype(np.float32)))

    def test_the_old_rank_whose_state_is_damaged_is_named(self):
        stores = [thinwire.Store() for _ in range(3)]
        self.run_steps(stores, 0, 2)
        states = [bytearray(store.state()) for store in stores]
        states[1][-3] ^= 1
        for size in (3, 2):
            with self.assertRaisesRegex(thinwire.CorruptError, "old rank 1: the saved state is damaged"):
                thinwire.Store().load_state(states, 0, size)

    def test_what_all_ranks_share_is_compared(self):
        gradients = [normal(100, rank) for rank in range(3)]
        stores = [thinwire.Store() for _ in range(3)]
        thinwire.all_reduce(gradients, "topk:density=0.1", feedback="ef21", stores=stores, step=0)
        states = [store.state() for store in stores]
        forgetful = [thinwire.Store() for _ in range(3)]
        for rank in (0, 1):
            forgetful[rank].load_state([states[rank]], rank, 3)
        with self.assertRaisesRegex(thinwire.MismatchError, "mean_estimate.* is not on rank 2"):
            thinwire.all_reduce(gradients, "topk:density=0.1", feedback="ef21", stores=forgetful,
                                step=1)

    def test_mistakes(self):
        store = thinwire.Store()
        self.run_steps([store], 0, 2, ranks=1)
        state = store.state()
        with self.assertRaises(thinwire.MismatchError):
            store.load_state([state, thinwire.Feedback("residual", 5).state()], 0)
        with self.assertRaises(thinwire.MismatchError):
            store.load_state([], 0, 1)
        for rank, size in ((1, 1), (-1, 1), (0, 0)):
            with self.assertRaises(thinwire.ContractError):
                store.load_state([state], rank, size)
        self.assertEqual(store.state(), state)
        store.drop("model/feedback")
        self.assertNotIn("model/feedback/residual", read(store.state())[0])


if __name__ == "__main__":
    unittest.main()
