#!/usr/bin/env python3
"""Tests the table of compare_combine.py. SPDX-License-Identifier: Apache-2.0"""
import unittest

import compare_combine


class Rows(unittest.TestCase):
    def test_the_ratio_is_the_median_of_ratios_within_rounds(self):
        of = {(method, rule): (method, rule) for method in compare_combine.METHODS for rule in compare_combine.RULES}
        times = {(method, rule, "1gbit"): [0.1, 0.2, 0.3] for method, rule in of}
        times["gather", "median", "1gbit"] = [0.2, 0.3, 0.3]
        lines = compare_combine.rows_of(times, ["1gbit"], dict.fromkeys(of, 2e6))
        self.assertEqual(len(lines), 2 + 2 * len(compare_combine.RULES))
        self.assertIn("| `gather` | `mean` | 200.0 (100.0 to 300.0) |  | 2.00 |", lines)
        self.assertIn("| `gather` | `median` | 300.0 (200.0 to 300.0) | 1.50 | 2.00 |", lines)


if __name__ == "__main__":
    unittest.main()
