#!/usr/bin/env python3
"""Tests the table of compare_sharded_losses.py. SPDX-License-Identifier: Apache-2.0"""
import types
import unittest

import compare_sharded_losses as losses


class Table(unittest.TestCase):
    def test_losses_are_compared_seed_by_seed_with_those_of_torchs_own(self):
        rows = {("hsdp", 1, 10, 0.3): {"loss": 2.0}, ("hsdp", 2, 10, 0.3): {"loss": 4.0},
                ("hsdp, int8", 1, 10, 0.3): {"loss": 2.02}, ("hsdp, int8", 2, 10, 0.3): {"loss": 4.12},
                ("hsdp, int8", 3, 10, 0.3): {"loss": 3.0}, ("fsdp, int4, weights int8", 1, 10, 0.3): {"loss": 2.5},
                ("hsdp", 1, 20, 0.3): {"loss": 9.0}, ("hsdp", 1, 10, 0.1): {"loss": 9.0}}
        lines = losses.table(types.SimpleNamespace(rows=rows), 10, 0.3)
        self.assertEqual(lines[2:], ["| hsdp | 2 | 3.000 ± 1.41 |  |",
                                     "| hsdp, int8 | 3 | 3.047 ± 1.05 | +2.00 ± 1.41 |",
                                     "| fsdp, int4, weights int8 | 1 | 2.500 |  |"])

    def test_every_method_of_the_page_is_known(self):
        self.assertLessEqual({*losses.ORDER}, {*losses.METHODS})


if __name__ == "__main__":
    unittest.main()
