#!/usr/bin/env python3
"""Tests check_tests.py on small trees of test files. SPDX-License-Identifier: Apache-2.0"""
import pathlib
import tempfile
import unittest

from check_tests import check


def errors_of(files: dict[str, str]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            file = pathlib.Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return check(pathlib.Path(folder))


class Suites(unittest.TestCase):
    def test_belong_to_one_file_of_a_program(self):
        for first, second in (("TEST", "TEST_F"), ("TEST_P", "TYPED_TEST")):
            for other in ("src/train/data/b_test.cc", "src/train/b_test.cc"):
                files = {"src/train/a_test.cc": f"{first}(Data, One) {{}}\n",
                         other: f"{second}(\n    Data, Two) {{}}\n"}
                with self.subTest(first=first, other=other):
                    self.assertEqual(errors_of(files),
                                     [f"{other}: src/train/a_test.cc has a test suite Data too"])

    def test_may_have_the_name_of_another_programs(self):
        for other in ("src/codec/b_test.cc", "cli/b_test.cc", "tests/golden/b_test.cc"):
            self.assertEqual(errors_of({"src/train/a_test.cc": "TEST(Data, One) {}\nTEST(Data, Two) {}\n",
                                        other: "TEST(Data, One) {}\n"}), [])

    def test_are_in_no_header(self):
        self.assertEqual(errors_of({"src/train/a_testing.h": "TEST(Data, One) {}\n"}),
                         ["src/train/a_testing.h: tests of Data in a header are run by no test"])

    def test_in_python_are_run_by_their_file(self):
        text = "import unittest\n\n\nclass One(unittest.TestCase):\n    pass\n"
        run = '\n\nif __name__ == "__main__":\n    unittest.main()\n'
        self.assertEqual(errors_of({"tests/torch/a_test.py": text}),
                         ["tests/torch/a_test.py: runs no test, since it does not call unittest.main()"])
        self.assertEqual(errors_of({"tests/torch/a_test.py": text + run, "tools/b_test.py": "print(1)\n"}), [])


if __name__ == "__main__":
    unittest.main()
