#!/usr/bin/env python3
"""Tests of frames: packed payloads come out again, and other bytes are refused."""

# SPDX-License-Identifier: Apache-2.0
import struct
import unittest

import numpy as np
from cases import normal

import thinwire


class Frames(unittest.TestCase):
    def setUp(self):
        self.codec = thinwire.Codec("topk", density=0.1)
        self.payload = self.codec.encoder(200).encode(normal(200))
        self.fields = dict(
            count=200, sender=3, stream=5, step=1 << 40, place=7, generation=9, result=True
        )
        self.frame = thinwire.pack(self.codec, self.payload, **self.fields)

    def test_layout_is_the_documents(self):
        magic, version, codec, flags, zero, sender, generation, stream = struct.unpack(
            "<HBBBBHII", self.frame[:16]
        )
        step, place, count, size = (
            int.from_bytes(self.frame[at : at + 6], "little") for at in (16, 22, 28, 34)
        )
        self.assertEqual((magic, version, codec, flags, zero), (0x5754, 2, 4, 4, 0))
        self.assertEqual((sender, generation, stream), (3, 9, 5))
        self.assertEqual((step, place, count, size), (1 << 40, 7, 200, len(self.payload)))
        self.assertEqual(self.frame[48:], self.payload)
        self.assertEqual(thinwire.FRAME_HEADER_SIZE, 48)

    def test_unpacks_what_was_packed(self):
        frame = thinwire.unpack(self.frame + b"what follows")
        for name, value in self.fields.items():
            self.assertEqual(getattr(frame, name), value)
        self.assertEqual((frame.codec_id, frame.non_finite), (self.codec.info.id, False))
        self.assertEqual((frame.payload, frame.size), (self.payload, len(self.frame)))
        self.assertTrue(frame.payload.readonly)
        decoded = self.codec.decoder(200).decode(frame.payload)
        self.assertTrue(np.array_equal(decoded, self.codec.decoder(200).decode(self.payload)))

    def test_messages_are_frames_without_gaps(self):
        flagged = thinwire.pack(self.codec, b"", count=200, non_finite=True)
        self.assertEqual(len(flagged), 48)
        frames = thinwire.unpack_all(self.frame + flagged + self.frame)
        self.assertEqual([frame.non_finite for frame in frames], [False, True, False])
        self.assertEqual(frames[2].payload, self.payload)
        self.assertEqual(thinwire.unpack_all(b""), [])
        with self.assertRaises(thinwire.BadLengthError):
            thinwire.unpack_all(self.frame + flagged[:-1])

    def test_every_cut_and_every_flipped_bit_is_refused(self):
        for cut in range(len(self.frame)):
            with self.assertRaises(thinwire.BadLengthError):
                thinwire.unpack(self.frame[:cut])
        for bit in range(8 * len(self.frame)):
            hostile = bytearray(self.frame)
            hostile[bit // 8] ^= 1 << bit % 8
            with self.assertRaises(thinwire.Error):
                thinwire.unpack(hostile)
        other = bytearray(self.frame)
        other[2] = 3
        with self.assertRaisesRegex(thinwire.MismatchError, "version 3"):
            thinwire.unpack(other)

    def test_mistakes(self):
        large = dict(count=1 << 48, place=1 << 48, step=1 << 48, sender=1 << 16, stream=-1, generation=1 << 32)
        for name, value in large.items():
            with self.assertRaisesRegex(thinwire.ContractError, name):
                thinwire.pack(self.codec, b"", **dict(self.fields, **{name: value}))
        with self.assertRaisesRegex(thinwire.ContractError, "codec 256"):
            thinwire.pack(256, b"", count=0)
        with self.assertRaises(thinwire.DTypeError):
            thinwire.pack("topk", b"", count=0)
        with self.assertRaisesRegex(thinwire.ContractError, "no payload"):
            thinwire.pack(self.codec, b"1", count=0, non_finite=True)


if __name__ == "__main__":
    unittest.main()
