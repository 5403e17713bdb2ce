#!/usr/bin/env python3
"""Tests docs/python.md: its blocks run in order, as one session."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import os
import pathlib
import re
import tempfile
import unittest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"


class Page(unittest.TestCase):
    def test_blocks_run_and_print_what_the_page_shows(self):
        text = PAGE.read_text()
        block = r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?"
        blocks = re.findall(block, text, re.M | re.S)
        self.assertGreater(len(blocks), 5)
        session = {}
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                for code, shown in blocks:
                    printed = io.StringIO()
                    with contextlib.redirect_stdout(printed), self.subTest(code=code):
                        exec(compile(code, str(PAGE), "exec"), session)
                        if shown:
                            self.assertEqual(printed.getvalue(), shown)
            finally:
                os.chdir(here)


if __name__ == "__main__":
    unittest.main()
