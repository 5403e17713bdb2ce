#!/usr/bin/env python3
"""Tests check_plan.py: its commands, and its table. SPDX-License-Identifier: Apache-2.0"""
import argparse
import pathlib
import tempfile
import unittest

import check_plan
from compare_training import Kept


class CheckPlan(unittest.TestCase):
    def options(self, **changes):
        return argparse.Namespace(**{"program": "thinwire", "ranks": 2, "codecs": ["fp32", "int8", "topk"], "latency": "50us",
                                     "data": None, "costs": "costs.txt", "step_seconds": None, "rounds": 2, "sets": [],
                                     **changes})

    def test_a_rank_has_one_core_and_the_link_its_latency(self):
        command = check_plan.plan_command(self.options(), pathlib.Path("a.toml"), "1gbit")
        self.assertEqual(command[1:], ["plan", "a.toml", "--json", "--ranks", "2", "--cores", "1", "--set",
                                       "run.threads=1", "--link", "1gbit,50us", "--codecs", "int8;topk",
                                       "--costs", "costs.txt"])
        command = check_plan.plan_command(self.options(step_seconds=0.5), pathlib.Path("a.toml"), "none")
        self.assertEqual(command[command.index("--link") + 1], "none")
        self.assertEqual(command[-2:], ["--step-seconds", "0.5"])

    def test_ranks_that_share_cores_compute_for_longer(self):
        cores = check_plan.results_page.cores()
        self.assertEqual(check_plan.computation_of(1, 0.25), 0.25)
        self.assertEqual(check_plan.computation_of(cores, 0.25), 0.25)
        self.assertEqual(check_plan.computation_of(4 * cores, 0.25), 1.0)
        command = check_plan.plan_command(self.options(ranks=4), pathlib.Path("a.toml"), "1gbit")
        self.assertEqual(command[command.index("--ranks") + 1], "4")

    def test_what_was_measured_is_not_measured_again(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = Kept(pathlib.Path(folder) / "kept.jsonl")
            kept.put("time", "int8", "1gbit", 0, seconds=0.2)
            kept.put("time", "int8", "1gbit", 1, seconds=0.4)
            self.assertEqual(check_plan.measured(self.options(), kept, "1gbit", "int8"),
                             [0.2, 0.4])

    def test_turns_are_those_of_the_last_run_at_a_rate(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = Kept(pathlib.Path(folder) / "kept.jsonl")
            kept.put("turns", "1gbit", 9, "fp32", "int8", low=[1, 2], seconds=[2, 3], high=[3, 4])
            kept.put("turns", "1gbit", 9, "fp32", "int8\tfp32\tbias", low=[5, 6], seconds=[6, 7], high=[7, 8],
                     processor=4.5)
            self.assertEqual(check_plan.turns_of(kept, "1gbit"), ({"fp32": [5, 6, 7]}, 4.5))
            with self.assertRaises(SystemExit):
                check_plan.turns_of(kept, "none")

    def test_cells_that_are_near_are_counted(self):
        cells = [("mlp", "1gbit", "int8", {"seconds": seconds, "limit": "bandwidth"}, [0.09, 0.1, 0.12])
                 for seconds in (0.0851, 0.0849, 0.1149, 0.1151)]
        lines = check_plan.rows_of(cells)
        self.assertEqual(lines[2], "| mlp | 1gbit | `int8` | 85.1 | 100.0 (90.0 to 120.0) | 0.85 | bandwidth |")
        self.assertEqual(lines[-1], "2 of 4 cells are within 15 % of the measured time.")


if __name__ == "__main__":
    unittest.main()
