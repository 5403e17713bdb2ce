#!/usr/bin/env python3
"""Tests loss_table.py. SPDX-License-Identifier: Apache-2.0"""
import unittest

import loss_table
import study

STUDY = {"judge": "loss", "first": "dense"}


def run(loss: float, sent: float, peak: int) -> dict:
    return {"final_test_loss": loss, "sent_bytes_per_step": sent, "peak_sent_bytes": peak}


class Losses(unittest.TestCase):
    def test_differences_are_paired_by_seed_in_per_cent(self) -> None:
        found = {"a": {"dense": {1: run(2.0, 1000, 1000), 2: run(4.0, 1000, 1000)},
                       "rounds": {1: run(2.02, 10, 500), 2: run(4.12, 10, 700)}, "silent": {1: run(3, 0, 0)}}}
        self.assertIs(study.table_for(found, STUDY), loss_table.loss_table)
        self.assertEqual(loss_table.loss_table(STUDY, found), [
            "| variant | seeds | test loss | difference | bytes per step and rank | fewer | most bytes in a step |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
            "| dense | 2 | 3.000 ± 12.706 |  | 1,000 | 1.0 x | 1,000 |",
            "| rounds | 2 | 3.070 ± 13.341 | 2.0 ± 12.7 % | 10 | 100.0 x | 700 |",
            "| silent | 1 | 3.000 | 50.0 % | 0 |  | 0 |"])

    def test_each_case_has_its_own_first_variant_if_it_has_one(self) -> None:
        found = {"a": {"dense": {1: run(2, 8, 8)}}, "b": {"rounds": {1: run(1, 4, 4)}}}
        lines = loss_table.loss_table(STUDY, found)
        self.assertEqual(lines[0], "## a")
        self.assertIn("## b", lines)
        self.assertEqual(lines[-1], "| rounds | 1 | 1.000 |  | 4 |  | 4 |")


if __name__ == "__main__":
    unittest.main()
