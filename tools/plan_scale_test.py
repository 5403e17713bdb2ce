#!/usr/bin/env python3
"""Tests plan_scale.py: its lists, and its tables. SPDX-License-Identifier: Apache-2.0"""
import math
import unittest

import plan_scale


class PlanScale(unittest.TestCase):
    def test_gpt2_has_its_parameters(self):
        shapes = [line.split()[1] for line in plan_scale.gpt2().splitlines()]
        self.assertEqual(sum(math.prod(map(int, shape.split("x"))) for shape in shapes), 124_439_808)

    def test_ranks_make_up_whole_machines(self):
        self.assertEqual(plan_scale.ranks_of(["--per-machine", "8"], (2, 4, 16, 64)), [16, 64])
        self.assertEqual(plan_scale.ranks_of([], (2, 4)), [2, 4])

    def test_exchanges_have_a_core_of_their_own_in_every_case(self):
        self.assertEqual(plan_scale.with_cores(["--link", "none"]), ["--link", "none", "--cores", "2"])
        self.assertEqual(plan_scale.with_cores(["--per-machine", "8"]), ["--per-machine", "8", "--cores", "9"])

    def test_rows_are_by_codec_and_columns_by_ranks(self):
        plans = [{"ranks": ranks, "codecs": [{"codec": "int8", "seconds": 0.1 * ranks}, {"codec": "fp32", "seconds": ranks}]}
                 for ranks in (2, 1024)]
        table = plan_scale.by_codec(plans)
        self.assertEqual(plan_scale.table_of(table, lambda row: f"{row['seconds']:.3g}"),
                         ["| codec | 2 | 1,024 |", "| --- | ---: | ---: |", "| `fp32` | 2 | 1.02e+03 |",
                          "| `int8` | 0.2 | 102 |"])

    def test_bytes_have_three_digits(self):
        self.assertEqual([plan_scale.bytes_text(count) for count in (12, 1500, 995_500_000, 2e9)],
                         ["12 B", "1.5 kB", "996 MB", "2 GB"])


if __name__ == "__main__":
    unittest.main()
