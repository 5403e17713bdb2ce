#!/usr/bin/env python3
"""Tests of arrays: which are read in place, which are copied, which are refused and with what error."""

# SPDX-License-Identifier: Apache-2.0
import array
import unittest

import numpy as np
from cases import normal, same_bits

import thinwire
from thinwire._arrays import to_read


class Inputs(unittest.TestCase):
    def setUp(self):
        self.codec = thinwire.Codec("topk", density=0.1)
        self.values = normal((40, 50))
        self.encoder = self.codec.encoder((40, 50))
        self.payload = self.codec.encoder((40, 50)).encode(self.values)

    def test_other_types_are_refused_by_name(self):
        wrong = {
            "float64": self.values.astype(np.float64),
            "float16": self.values.astype(np.float16),
            "int32": self.values.astype(np.int32),
            ">f4": self.values.astype(">f4"),
            "object": self.values.astype(object),
        }
        for name, values in wrong.items():
            with self.assertRaisesRegex(thinwire.DTypeError, f"values: dtype is {name}"):
                self.encoder.encode(values)
            with self.assertRaisesRegex(thinwire.DTypeError, f"fresh: dtype is {name}"):
                self.encoder.encode(self.values, values)
        with self.assertRaisesRegex(TypeError, "float64"):  # the built-in that says the same
            self.encoder.encode(self.values.tolist())

    def test_other_shapes_are_refused(self):
        for values in (self.values.T, self.values[:-1], np.float32(1)):
            with self.assertRaisesRegex(thinwire.ContractError, "the stream's is"):
                self.encoder.encode(values)

    def test_flat_read_only_and_strided_values_are_taken(self):
        wide = np.zeros((40, 100), np.float32)
        wide[:, ::2] = self.values
        frozen = self.values.copy()
        frozen.flags.writeable = False
        unaligned = np.frombuffer(b"-" + self.values.tobytes(), np.float32, offset=1)
        self.assertFalse(unaligned.flags.aligned)
        for values in (
            self.values.ravel(),
            frozen,
            wide[:, ::2],
            np.asfortranarray(self.values),
            self.values[::-1].copy()[::-1],
            unaligned,
            memoryview(self.values),
            array.array("f", self.values.ravel()),
        ):
            self.assertEqual(self.encoder.encode(values), self.payload)
        self.assertTrue(np.all(wide[:, 1::2] == 0))

    def test_what_lies_in_one_piece_is_not_copied(self):
        for values in (self.values, self.values.ravel(), memoryview(self.values)):
            self.assertTrue(np.shares_memory(to_read("values", values, (40, 50)), self.values))

    def test_not_a_number_is_refused_and_changes_nothing(self):
        codec = thinwire.Codec("sidco", density=0.01)
        encoder, twin = codec.encoder(5000), codec.encoder(5000)
        good = normal(5000)
        for bad in (np.nan, np.inf, -np.inf):
            values = good.copy()
            values[4999] = bad
            with self.assertRaisesRegex(thinwire.NonFiniteError, "values holds a NaN"):
                encoder.encode(values)
            with self.assertRaisesRegex(thinwire.NonFiniteError, "fresh holds a NaN"):
                encoder.encode(good, values)
        self.assertEqual(encoder.encode(good), twin.encode(good))

    def test_payloads_are_any_bytes_in_one_piece(self):
        decoder = self.codec.decoder((40, 50))
        expected = decoder.decode(self.payload)
        raw = np.frombuffer(self.payload, np.uint8)
        for payload in (bytearray(self.payload), memoryview(self.payload), raw):
            self.assertTrue(same_bits(decoder.decode(payload), expected))
        with self.assertRaisesRegex(thinwire.ContractError, "one piece"):
            decoder.decode(np.repeat(raw, 2)[::2])
        for payload in ("text", None, 7):
            with self.assertRaisesRegex(thinwire.DTypeError, "must be bytes-like"):
                decoder.decode(payload)

    def test_numbers_of_a_call(self):
        for wrong in (-1, 1 << 64, 1.5, "1"):
            for name in ("seed", "step", "salt", "ranks"):
                with self.assertRaisesRegex(thinwire.ContractError, name):
                    self.encoder.encode(self.values, **{name: wrong})
        self.encoder.encode(self.values, seed=np.uint64(7), step=(1 << 64) - 1)


class Outputs(unittest.TestCase):
    def setUp(self):
        codec = thinwire.Codec("fp16")
        self.values = normal((20, 30))
        self.encoder, self.decoder = codec.encoder((20, 30)), codec.decoder((20, 30))
        self.payload = codec.encoder((20, 30)).encode(self.values)

    def calls(self, out):
        return (
            lambda: self.decoder.decode(self.payload, out=out),
            lambda: self.decoder.decode_add(self.payload, 1, out),
            lambda: self.encoder.encode_with_remainder(self.values, rest=out),
            lambda: self.encoder.encode_into(bytearray(10000), self.values, rest=out),
        )

    def test_what_cannot_be_written_in_place_is_refused(self):
        frozen = np.zeros((20, 30), np.float32)
        frozen.flags.writeable = False
        wrong = {
            "read-only": frozen,
            "one piece": np.zeros((20, 60), np.float32)[:, ::2],
            "float64": np.zeros((20, 30)),
            "the stream's is": np.zeros((30, 20), np.float32),
            "must be a numpy.ndarray": [0.0] * 600,
        }
        for words, out in wrong.items():
            for call in self.calls(out):
                with self.assertRaisesRegex(thinwire.ContractError, words):
                    call()
        self.assertFalse(frozen.any())

    def test_memory_that_is_read_cannot_be_written(self):
        memory = np.zeros(1300, np.float32)
        values, shifted = memory[:600], memory[1:601]
        self.encoder.encode_with_remainder(values, rest=values)
        for call in (
            lambda: self.encoder.encode_with_remainder(values, rest=shifted),
            lambda: self.encoder.encode_with_remainder(memory[650:1250], values, rest=values),
            lambda: self.encoder.encode_into(memory, values),
            lambda: self.encoder.encode_into(memory, self.values, values),
            lambda: self.encoder.encode_into(memory, self.values, rest=values),
            lambda: self.decoder.decode_add(memory[:300], 1, values),
        ):
            with self.assertRaisesRegex(thinwire.ContractError, "overlap"):
                call()

    def test_flat_outputs_fit(self):
        for call in self.calls(np.zeros(600, np.float32)):
            call()

    def test_places_for_payloads(self):
        with self.assertRaisesRegex(thinwire.ContractError, "may need 1200"):
            self.encoder.encode_into(bytearray(1199), self.values)
        with self.assertRaisesRegex(thinwire.ContractError, "read-only"):
            self.encoder.encode_into(bytes(1200), self.values)
        out = bytearray(1300)
        self.assertEqual(self.encoder.encode_into(out, self.values), 1200)
        self.assertEqual(out[:1200], self.payload)


if __name__ == "__main__":
    unittest.main()
