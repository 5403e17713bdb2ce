#!/usr/bin/env python3
"""Tests of the tables that small_checkpoints.py makes of runs. SPDX-License-Identifier: Apache-2.0"""
import unittest

import small_checkpoints as study


def save(size, follows, loss=1.0):
    return {"bytes": size, "exact_bytes": 1000, "loss": loss, "exact_loss": 1.0, "follows": follows, "trials": 4, "seconds": 0.5}


def run(setting, restores, seed, error, steps=330, saves=()):
    return {"setting": setting, "steps": steps, "restores": restores, "seed": seed, "error": error, "saves": list(saves),
            "processor": "P", "cores": 2, "commit": "abc"}


RUNS = [run("exact", 0, 1, 0.10), run("exact", 0, 2, 0.12),
        run("tolerance 0.01", 0, 1, 0.11, saves=[save(100, 0), save(20, 1, loss=1.01)]),
        run("tolerance 0.01", 0, 2, 0.11, saves=[save(100, 0), save(30, 1)]),
        run("tolerance 0.01", 10, 1, 0.13, saves=[save(1, 0)]),
        run("tolerance 0.01", 10, 1, 0.20, steps=1320)]


class SmallCheckpoints(unittest.TestCase):

    def test_sizes_are_those_of_runs_without_restores(self):
        sizes, _, _ = study.tables(RUNS)
        self.assertEqual(sizes, ["| tolerance 0.01 | 330 | 10.0 | 41.7 | 16.0 | 50.0 | 1.00 % | 4.0 | 0.50 |"])

    def test_errors_are_by_restores_and_cells_that_were_not_run_are_empty(self):
        _, head, errors = study.tables(RUNS)
        self.assertEqual(head[0], "| setting | steps | seeds | 0 | 10 |")
        self.assertEqual(errors, ["| exact | 330 | 2 | 11.00 ± 1.41 | 11.00 ± 1.41 |",
                                  "| tolerance 0.01 | 330 | 2 | 11.00 ± 0.00 | 13.00 |",
                                  "| tolerance 0.01 | 1,320 | 1 |  | 20.00 |"])

    def test_the_page_names_where_and_from_which_commit(self):
        page = "\n".join(study.page_of(RUNS, "runs/kept.jsonl"))
        self.assertIn("Processor: P, 2 cores.\nCommit: abc (each run's own is in `runs/kept.jsonl`).", page)


if __name__ == "__main__":
    unittest.main()
