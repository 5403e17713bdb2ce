#!/usr/bin/env python3
"""check_includes: which names a file must include a header for. SPDX-License-Identifier: Apache-2.0"""
import pathlib
import tempfile
import unittest

import check_includes

HEADER = "struct TwoWords {\n};\nint count_words(const TwoWords& words);\n"


class Includes(unittest.TestCase):
    def found(self, **texts):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {"words_h": HEADER, **texts}.items():
                path = root / "src" / name.replace("_", ".")
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            return check_includes.check(root)

    def test_a_type_and_a_function_without_their_header(self):
        self.assertEqual(self.found(use_cc="int x = count_words(TwoWords{});\n"),
                         ["src/use.cc: uses TwoWords and does not include src/words.h",
                          "src/use.cc: uses count_words and does not include src/words.h"])

    def test_a_header_that_another_one_includes_is_enough(self):
        self.assertEqual(self.found(more_h='#include "words.h"\n',
                                    use_cc='#include "more.h"\nint x = count_words(TwoWords{});\n'), [])

    def test_what_a_file_declares_itself_needs_no_header(self):
        self.assertEqual(self.found(use_cc="struct TwoWords;\nvoid f() {\n  auto count_words = [](int) {};\n"
                                           "  count_words(1);\n}\n"), [])

    def test_comments_texts_and_members_are_not_uses(self):
        self.assertEqual(self.found(use_cc='// TwoWords\nint x = a.count_words(1) + b("TwoWords");\n'), [])

    def test_a_header_that_uses_span_includes_it(self):
        self.assertEqual(self.found(use_h="void f(std::span<int> x);\n"),
                         ["src/use.h: uses std::span and does not include <span>"])


if __name__ == "__main__":
    unittest.main()
