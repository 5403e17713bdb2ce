#!/usr/bin/env python3
"""Errors: the library's vocabulary, and the built-in exceptions that Python users catch."""

# SPDX-License-Identifier: Apache-2.0
import builtins
import unittest

import thinwire
from thinwire import _core, errors


class Vocabulary(unittest.TestCase):
    def test_every_code_of_the_library_has_a_class_of_its_own(self):
        codes = _core.error_codes()
        self.assertIn("corrupt", codes)
        classes = [errors.class_of(code) for code in codes]
        self.assertEqual(len(set(classes)), len(codes))
        for code, kind in zip(codes, classes):
            self.assertEqual(kind.code, code)
            self.assertTrue(issubclass(kind, thinwire.Error) and kind is not thinwire.Error)
            self.assertIs(getattr(thinwire, kind.__name__), kind)
            self.assertTrue(kind.__doc__)

    def test_built_in_exceptions_catch_them(self):
        also = {
            ValueError: "BadLength BadOption Contract Corrupt Mismatch NonFinite UnknownName"
            " Unsupported DType",
            TypeError: "DType",
            ConnectionError: "PeerLost",
            builtins.TimeoutError: "Timeout",
            OSError: "Io PeerLost Timeout",
        }
        for kind, names in also.items():
            for name in names.split():
                self.assertTrue(issubclass(getattr(thinwire, f"{name}Error"), kind), name)
        with self.assertRaisesRegex(ValueError, "unknown codec 'sing'"):
            thinwire.Codec("sing")

    def test_a_code_unknown_here_is_still_an_error_of_ours(self):
        self.assertIs(errors.class_of("on fire"), thinwire.Error)
        for kind in (thinwire.PeerLostError, thinwire.IoError, thinwire.TimeoutError):
            self.assertEqual(str(kind("rank 3 is gone")), "rank 3 is gone")

    def test_everything_public_is_documented(self):
        for name in thinwire.__all__:
            if name not in ("__version__", "FRAME_HEADER_SIZE"):
                self.assertTrue(getattr(thinwire, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
