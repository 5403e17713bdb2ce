#!/usr/bin/env python3
"""Tests compare_accuracy.py: the commands of runs, and their table. SPDX-License-Identifier: Apache-2.0"""
import pathlib
import tempfile
import unittest

import compare_accuracy
from compare_training import Kept


class Accuracy(unittest.TestCase):
    def test_what_follows_with_is_for_the_script(self):
        command = compare_accuracy.command_of(
            "python", "sgd", "sidco:density=warmup(0.01;1) with --feedback 'dgc:mask=false' --samples 64", 2, 3)
        self.assertEqual(command[command.index("--codec"):],
                         ["--codec", "sidco:density=warmup(0.01;1)", "--optimizer", "sgd", "--seed", "2", "--epochs",
                          "3", "--feedback", "dgc:mask=false", "--samples", "64"])

    def test_differences_are_of_the_same_seed_optimiser_and_length(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "runs.jsonl"
            kept = Kept(file)
            for of, right in ((("sgd", "none", 1, 3), 90), (("sgd", "none", 2, 3), 80), (("sgd", "none", 2, 1), 0),
                              (("adamw", "none", 1, 3), 50), (("sgd", "topk", 2, 3), 79), (("sgd", "topk", 1, 3), 87),
                              (("sgd", "int8", 3, 3), 70), (("adamw", "none with --beta1 0", 1, 3), 51)):
                kept.put(*of, right=[1.0, right], wire_ratio=10.0, commit="a")
            self.assertEqual(compare_accuracy.table(Kept(file), 3)[2:], [
                "| SGD, momentum 0.9 | DDP | 2 | 15.00 ± 7.07 |  |  |",
                "| SGD, momentum 0.9 | `topk` | 2 | 17.00 ± 5.66 | 2.00 ± 1.41 | 10 x |",
                "| SGD, momentum 0.9 | `int8` | 1 | 30.00 |  | 10 x |",
                "| AdamW | DDP | 1 | 50.00 |  |  |",
                "| AdamW | `none with --beta1 0` | 1 | 49.00 | -1.00 |  |"])


if __name__ == "__main__":
    unittest.main()
