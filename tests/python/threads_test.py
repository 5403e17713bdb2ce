#!/usr/bin/env python3
"""Threads: the interpreter runs on while the library works, and nobody shares an encoder."""

# SPDX-License-Identifier: Apache-2.0
import sys
import threading
import time
import unittest

import numpy as np
from cases import heavy_tail, normal

import thinwire

COUNT = 4_000_000
ATTEMPTS = 40  # the machine may give this process's threads turns as it likes
SLICES = 8


def runs_on_during(work):
    """Whether this thread was seen at work in most slices of a call of `work` in another thread.

    One that holds the GIL can be overtaken where the call begins and ends, but not throughout.
    """
    span = []
    began = threading.Event()

    def call():
        began.set()
        begin = time.monotonic()
        work()
        span.extend((begin, time.monotonic()))

    thread = threading.Thread(target=call)
    thread.start()
    began.wait()
    seen = []
    while thread.is_alive():
        seen.append(time.monotonic())
    begin, end = span
    slices = {int(SLICES * (at - begin) / (end - begin)) for at in seen if begin <= at < end}
    return len(slices) > SLICES // 2


def refused_during(work, look):
    """Whether `look` was refused here while `work` ran in another thread, as nothing else can."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        while thread.is_alive():
            look()
    except thinwire.ContractError as error:
        return "another thread" in str(error)
    finally:
        thread.join()
    return False


class Gil(unittest.TestCase):
    def setUp(self):
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e-4)

    def test_released_while_encoding_remembering_and_reducing(self):
        values = normal(COUNT)
        codec = thinwire.Codec("topk", density=0.1)
        encoder, memory = codec.encoder(COUNT), thinwire.Feedback("residual", COUNT)
        out = bytearray(encoder.max_encoded_size)
        stores = [thinwire.Store(), thinwire.Store()]

        def remember():
            memory.encode(encoder, values)
            memory.commit()

        def reduce():
            thinwire.all_reduce([values] * 2, stores=stores)

        for name, work, look in (
            ("encode", lambda: encoder.encode(values), encoder.state),
            ("encode_into", lambda: encoder.encode_into(out, values), encoder.state),
            ("feedback", remember, memory.state),
            ("all_reduce", reduce, stores[0].state),
        ):
            with self.subTest(name):
                self.assertTrue(any(refused_during(work, look) for _ in range(ATTEMPTS)))
        encoder.encode(values)  # and it is free again

    def test_released_while_decoding(self):
        codec = thinwire.Codec("topk", density=1)  # the slowest to decode
        payload, out = codec.encoder(COUNT).encode(normal(COUNT)), np.zeros(COUNT, np.float32)
        decoder = codec.decoder(COUNT)
        work = lambda: decoder.decode_add(payload, 1, out)  # noqa: E731
        self.assertTrue(any(runs_on_during(work) for _ in range(ATTEMPTS)))

    def test_the_check_above_can_fail(self):
        text = b"x" * 60_000_000  # find() of bytes holds the GIL
        self.assertFalse(any(runs_on_during(lambda: text.find(b"xy")) for _ in range(5)))


class Sharing(unittest.TestCase):
    def test_threads_with_an_encoder_each_get_what_one_thread_gets(self):
        codec = thinwire.Codec("sidco", density=0.01)
        decoder = codec.decoder(200_000)  # shared by all
        expected = codec.encoder(200_000)
        steps = [heavy_tail(200_000, step) for step in range(6)]
        payloads = [expected.encode(values, step=i) for i, values in enumerate(steps)]
        wrong = []

        def run():
            encoder = codec.encoder(200_000)
            for i, values in enumerate(steps):
                payload, rest = encoder.encode_with_remainder(values, step=i)
                if payload != payloads[i] or not np.array_equal(
                    values - decoder.decode(payload), rest
                ):
                    wrong.append(i)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])



class CodecThreads(unittest.TestCase):

    def tearDown(self):
        thinwire.set_codec_threads(1)

    def test_any_number_gives_the_same_bytes(self):
        values = normal(COUNT, 3)
        found = []
        for count in (1, 2, 0):
            thinwire.set_codec_threads(count)
            self.assertGreaterEqual(thinwire.codec_threads(), max(1, count))
            encoder = thinwire.Codec("int8").encoder(shape=COUNT)
            found.append(encoder.encode(values))
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])

    def test_a_negative_number_is_refused(self):
        with self.assertRaisesRegex(thinwire.ContractError, "set_codec_threads"):
            thinwire.set_codec_threads(-1)


if __name__ == "__main__":
    unittest.main()
