#!/usr/bin/env python3
"""Tests of the lines that factor_study.py makes of reports. SPDX-License-Identifier: Apache-2.0"""
import unittest

import factor_study as study


def report(ranks, trained, by_outputs, by_weights, factored=500):
    layers = [{"name": f"l{place}", "rows": 20, "columns": 50, "rank": rank} for place, rank in enumerate(ranks)]
    score = lambda error: {"error": error, "loss": 10 * error}
    return {"layers": layers, "parameters": 1000, "factored": factored, "trained": score(trained),
            "by_outputs": score(by_outputs), "by_weights": score(by_weights)}


class Study(unittest.TestCase):

    def test_ranks_of_seeds_that_differ(self):
        reports = [report([3, None, 4, None], 0, 0, 0), report([3, 7, 9, None], 0, 0, 0)]
        self.assertEqual(study.ranks(reports), "3, 7-20, 4-9, full")

    def test_errors_are_differences_from_the_same_seed(self):
        line = study.row("rank 3", [report([3], 0.10, 0.11, 0.15), report([3], 0.20, 0.21, 0.27, factored=250)])
        self.assertEqual(line, "| rank 3 | 3 | 375 | 3.0 ± 1.4 | 1.00 ± 0.00 | 1.600 ± 0.707 | 6.00 ± 1.41 | 2.100 ± 0.849 |")

    def test_one_seed_has_no_spread(self):
        self.assertEqual(study.row("x", [report([None], 0.1, 0.1, 0.1, factored=1000)]),
                         "| x | full | 1,000 | 1.0 | 0.00 | 1.000 | 0.00 | 1.000 |")


if __name__ == "__main__":
    unittest.main()
