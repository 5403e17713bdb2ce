#!/usr/bin/env python3
"""Tests plot_plan.py: rows of the page's table. SPDX-License-Identifier: Apache-2.0"""
import re
import sys
import unittest

import plot_plan

sys.path.append(str(plot_plan.ROOT / "lab"))
import check_plan  # noqa: E402


class PlotPlan(unittest.TestCase):
    def test_reads_the_rows_that_check_plan_writes(self):
        row = {"seconds": 1.2345, "limit": "bandwidth"}
        lines = check_plan.rows_of([("mlp", "1gbit", "topk:density=0.01 @ sparse-reduce", row, [1.0, 1.1, 1.25])])
        self.assertEqual(plot_plan.cells_of("\n".join(lines)),
                         [("mlp", "1gbit", "topk:density=0.01 @ sparse-reduce", 1234.5, 1100, 1000, 1250)])

    def test_every_cell_of_the_page_is_read(self):
        page = (plot_plan.ROOT / "docs/results/plan.md").read_text()
        near, count = map(int, re.search(r"^(\d+) of (\d+) cells are within", page, re.M).groups())
        cells = plot_plan.cells_of(page)
        self.assertEqual(len(cells), count)
        # Times on the page are rounded to a tenth of a millisecond.
        self.assertAlmostEqual(sum(abs(cell[3] / cell[4] - 1) <= plot_plan.NEAR for cell in cells), near, delta=3)


if __name__ == "__main__":
    unittest.main()
