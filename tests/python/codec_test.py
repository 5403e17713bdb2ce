#!/usr/bin/env python3
"""Every codec: what is encoded and what is left, decoding with weights, hostile bytes."""

# SPDX-License-Identifier: Apache-2.0
import pickle
import random
import unittest

import numpy as np
from cases import arrays, codec_names, codec_specs, heavy_tail, normal, same_bits

import thinwire

SHAPES = [(), (0,), (3, 0), (1,), (9,), (37, 41)]


class EveryCodec(unittest.TestCase):
    def for_all(self, body, shapes=SHAPES, specs=()):
        for spec in specs or codec_names():
            codec = thinwire.Codec(spec)
            for shape in shapes:
                for name, values in arrays(shape).items():
                    with self.subTest(codec=spec, shape=shape, values=name):
                        body(codec, shape, values)

    def test_remainder_is_values_minus_decoded(self):
        def body(codec, shape, values):
            before = values.copy()
            encoder = codec.encoder(shape, "linear")
            payload, rest = encoder.encode_with_remainder(values, values * 2 if shape else None)
            decoded = codec.decoder(shape, "linear").decode(payload)
            self.assertTrue(np.array_equal(rest, before - decoded))
            self.assertTrue(same_bits(values, before), "values are untouched")
            self.assertEqual((decoded.shape, decoded.dtype), (shape, np.float32))
            self.assertLessEqual(len(payload), encoder.max_encoded_size)
            self.assertEqual(encoder.encoded.size, len(payload))
            self.assertLessEqual(encoder.encoded.kept, values.size)
            if codec.info.fixed_size:
                self.assertEqual(len(payload), codec.max_encoded_size(shape, "linear"))
            if codec.info.lossless:
                self.assertTrue(np.array_equal(decoded, before))

        self.for_all(body, specs=codec_specs())

    def test_three_ways_to_encode_write_the_same(self):
        def body(codec, shape, values):
            make = lambda: codec.encoder(shape)  # noqa: E731
            payload, rest = make().encode_with_remainder(values, seed=3, step=4, salt=5)
            self.assertEqual(make().encode(values, seed=3, step=4, salt=5), payload)
            out = np.zeros(make().max_encoded_size, np.uint8)
            in_place = values.copy()
            size = make().encode_into(out, in_place, rest=in_place, seed=3, step=4, salt=5)
            self.assertEqual(out[:size].tobytes(), payload)
            self.assertTrue(same_bits(in_place, rest))

        self.for_all(body, [(37, 41)])

    def test_what_a_call_says_reaches_the_codecs(self):
        values = heavy_tail(2000)
        heard = set()
        for spec in codec_specs():
            encode = lambda **call: thinwire.Codec(spec).encoder(2000).encode(values, **call)  # noqa
            heard |= {name for name in ("seed", "step", "salt") if encode(**{name: 1}) != encode()}
        self.assertEqual(heard, {"seed", "step", "salt"})

    def test_decoding_adds_with_weight(self):
        def body(codec, shape, values):
            if abs(values).max() > 1e30:
                return  # the sums below would overflow
            decoder = codec.decoder(shape)
            payload = codec.encoder(shape).encode(values)
            decoded = decoder.decode(payload)
            out = np.full(shape, 2, np.float32)
            decoder.decode_add(payload, 0.25, out)
            # a scaled payload may round once more: one ulp of 2
            bound = 3e-7 * np.maximum(2, abs(decoded))
            self.assertTrue(np.all(abs(out - (2 + np.float32(0.25) * decoded)) <= bound))
            again = np.full(shape, 7, np.float32)
            self.assertIs(decoder.decode(payload, out=again), again)
            self.assertTrue(np.array_equal(again, decoded))

        self.for_all(body, [(37, 41)])

    def test_truncated_and_longer_payloads_are_refused(self):
        def body(codec, shape, values):
            payload = codec.encoder(shape).encode(values)
            decoder = codec.decoder(shape)
            for cut in range(len(payload)):
                with self.assertRaises((thinwire.BadLengthError, thinwire.CorruptError)):
                    decoder.decode(payload[:cut])
            with self.assertRaises((thinwire.BadLengthError, thinwire.CorruptError)):
                decoder.decode(payload + b"\0")

        self.for_all(body, [(0,), (9,), (60,)])

    def test_hostile_payloads_touch_nothing_outside(self):
        draw = random.Random(1)
        refused = 0
        for spec in codec_names():
            codec = thinwire.Codec(spec)
            payload = codec.encoder(2000).encode(heavy_tail(2000))
            decoder = codec.decoder(2000)
            memory = np.full(2200, 7, np.float32)
            for _ in range(60):
                hostile = bytearray(payload)
                for _ in range(draw.randint(1, 8)):
                    hostile[draw.randrange(len(hostile))] = draw.randrange(256)
                try:
                    decoder.decode_add(hostile, 1, memory[100:2100])
                except (thinwire.BadLengthError, thinwire.CorruptError) as error:
                    self.assertTrue(str(error))
                    refused += 1
            with self.subTest(codec=spec):
                self.assertTrue(np.all(memory[:100] == 7) and np.all(memory[2100:] == 7))
        self.assertGreater(refused, 0)

    def test_several_tensors_arrive_as_one_vector(self):
        tensors = [
            thinwire.TensorSpec("conv", (4, 3, 3, 3), "convolution"),
            thinwire.TensorSpec("fc", (7, 129), "linear"),
            thinwire.TensorSpec("bias", 13, "bias"),
        ]
        values = heavy_tail(sum(tensor.count for tensor in tensors))
        for spec in codec_names():
            codec = thinwire.Codec(spec)
            encoder = codec.encoder(tensors=tensors)
            self.assertEqual(encoder.shape, (108 + 903 + 13,))
            payload, rest = encoder.encode_with_remainder(values)
            decoded = codec.decoder(tensors=tensors).decode(payload)
            with self.subTest(codec=spec):
                self.assertTrue(np.array_equal(rest, values - decoded))


class Registry(unittest.TestCase):
    def test_lists_what_a_codec_says_of_itself(self):
        infos = thinwire.codecs()
        self.assertIn("fp32", [info.name for info in infos])
        self.assertEqual(len({info.id for info in infos}), len(infos))
        for info in infos:
            codec = thinwire.Codec(info.name)
            self.assertEqual(codec.info, info)
            defaults = {name: option.default for name, option in info.options.items()}
            self.assertEqual(thinwire.Codec(info.name, **defaults), codec)

    def test_what_a_codec_promises_hangs_on_its_options(self):
        self.assertTrue(thinwire.Codec("uniform").info.fixed_size)
        self.assertEqual(thinwire.Codec("int8:block=64").info.block, 64)
        self.assertFalse(thinwire.Codec("uniform").info.unbiased)
        self.assertTrue(thinwire.Codec("uniform:rounding=random").info.unbiased)
        self.assertEqual(thinwire.Codec("randomk").info.agreed, "positions")
        self.assertEqual(thinwire.Codec("randomk:shared=false").info.agreed, "nothing")

    def test_option_rows_have_python_types(self):
        density = next(i for i in thinwire.codecs() if i.name == "topk").options["density"]
        self.assertEqual((density.type, density.default), ("number", 0.01))
        self.assertTrue(0 < density.min < density.max == 1)
        types = {"integer": int, "number": float, "flag": bool, "numbers": tuple}
        for info in thinwire.codecs():
            for option in info.options.values():
                self.assertIsInstance(option.default, types.get(option.type, str))
                if option.type == "choice":
                    self.assertIn(option.default, option.choices)

    def test_settings_arrive_as_keywords_text_or_numpy_numbers(self):
        by_text = thinwire.Codec("topk:density=0.5,values=fp16")
        self.assertEqual(thinwire.Codec("topk", density=0.5, values="fp16"), by_text)
        self.assertEqual(thinwire.Codec("topk:density=0.5", values="fp16"), by_text)
        self.assertEqual(thinwire.Codec("topk", density=np.float32(0.5), values="fp16"), by_text)
        self.assertNotEqual(thinwire.Codec("topk", density=1), by_text)
        self.assertRegex(by_text.spec, "^topk:density=0.5,.*values=fp16")

    def test_codecs_are_values(self):
        codec = thinwire.Codec("sidco", law="exponential", density=0.01)
        copy = pickle.loads(pickle.dumps(codec))
        self.assertEqual((copy, hash(copy)), (codec, hash(codec)))
        self.assertEqual(eval(repr(codec)), codec)
        self.assertNotEqual(codec, codec.spec)

    def test_mistakes_are_named(self):
        with self.assertRaisesRegex(thinwire.UnknownNameError, "'sing'; known: fp32"):
            thinwire.Codec("sing")
        with self.assertRaisesRegex(thinwire.UnknownNameError, "'dense'; known: density"):
            thinwire.Codec("topk", dense=1)
        for bad in (2, "much", float("nan"), [0.1, 0.2], None, "0.1,values=fp16"):
            with self.assertRaisesRegex(thinwire.BadOptionError, "density"):
                thinwire.Codec("topk", density=bad)
        with self.assertRaises(thinwire.BadOptionError):
            thinwire.Codec("topk:density")
        with self.assertRaises(thinwire.DTypeError):
            thinwire.Codec(7)
        for kwargs in ({}, {"shape": 4, "tensors": []}, {"shape": -1}, {"shape": 1.5}):
            with self.assertRaises(thinwire.ContractError):
                thinwire.Codec("fp32").encoder(**kwargs)
        with self.assertRaisesRegex(thinwire.UnknownNameError, "'fish'; known: convolution"):
            thinwire.Codec("fp32").encoder(4, "fish")
        with self.assertRaises(thinwire.ContractError):
            thinwire.Codec("fp32").decoder((1 << 40, 1 << 40))


class Transactions(unittest.TestCase):
    def test_rollback_forgets_and_state_continues(self):
        remembered = 0
        for spec in codec_names():
            codec = thinwire.Codec(spec)
            straight = codec.encoder(5000, auto_commit=False)
            bumpy = codec.encoder(5000, auto_commit=False)
            for step in range(12):
                bumpy.encode(heavy_tail(5000, 1000 + step), step=1000 + step)
                bumpy.rollback()
                values = heavy_tail(5000, step)
                payload = straight.encode(values, step=step)
                with self.subTest(codec=spec, step=step):
                    self.assertEqual(bumpy.encode(values, step=step), payload)
                straight.commit()
                bumpy.commit()
                if step % 4 == 3:  # a restart
                    state = bumpy.state()
                    bumpy = codec.encoder(5000, auto_commit=False)
                    remembered += bumpy.state() != state
                    bumpy.load_state(state)
                    self.assertEqual(bumpy.state(), state)
        self.assertGreater(remembered, 0, "no codec had a state, so nothing was tested")

    def test_auto_commit_is_commit_after_each(self):
        codec = thinwire.Codec("sidco", density=0.01)
        itself, by_hand = codec.encoder(5000), codec.encoder(5000, auto_commit=False)
        for step in range(8):
            values = heavy_tail(5000, step)
            self.assertEqual(itself.encode(values, step=step), by_hand.encode(values, step=step))
            by_hand.commit()
        self.assertEqual(itself.state(), by_hand.state())

    def test_calls_out_of_order_are_refused(self):
        values = normal(100)
        encoder = thinwire.Codec("fp32").encoder(100, auto_commit=False)
        encoder.encode(values)
        with self.assertRaisesRegex(thinwire.ContractError, "waits for commit"):
            encoder.encode(values)
        encoder.rollback()
        encoder.encode(values)
        with self.assertRaisesRegex(thinwire.ContractError, "auto_commit"):
            thinwire.Codec("fp32").encoder(100).rollback()


if __name__ == "__main__":
    unittest.main()
