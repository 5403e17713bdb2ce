#!/usr/bin/env python3
"""Tests study.py: how near steps came to their target, what was owed at the end. SPDX-License-Identifier: Apache-2.0"""
import contextlib
import io
import json
import pathlib
import tempfile
import unittest
from unittest import mock

import kept_runs
import study

STEP = {"sent_bytes": 4, "received_bytes": 4,
        "times": {"fetch": 0.0, "compute": 1.0, "compress": 0.25, "decompress": 0.25}}


class Densities(unittest.TestCase):
    def test_quantiles_and_the_share_of_steps_that_are_far(self):
        ratios = [0.5, 0.79, 1.21, 0.8, 1.2, *[1.0] * 195]
        steps = [{**STEP, "kept_over_target": ratio} for ratio in ratios]
        self.assertEqual(study.course(steps)["density"], {"low": 1.0, "median": 1.0, "high": 1.0, "far": 0.015})
        self.assertEqual(study.course(steps[:5])["density"], {"low": 0.5, "median": 0.8, "high": 1.2, "far": 0.6})

    def test_runs_without_targets_have_none_and_empty_cells(self):
        self.assertNotIn("density", study.course([STEP]))
        near = {"course": {"density": {"low": 0.9, "median": 1.0, "high": 1.1, "far": 0.01}}}
        far = {"course": {"density": {"low": 0.8, "median": 1.0, "high": 1.3, "far": 0.03}}}
        self.assertEqual(study.densities([near, {"course": {}}, far]), ["0.85 to 1.20", "2.0 %"])
        self.assertEqual(study.densities([{"course": {}}]), ["", ""])


class MegabytesToFirst(unittest.TestCase):
    def run_with(self, *tests: tuple[float, int]) -> dict:
        return {"final_test_error": tests[-1][0],
                "course": {"tests": [{"test_error": error, "sent_bytes": sent} for error, sent in tests]}}

    def test_counts_until_the_first_test_that_is_at_most_a_point_above_the_end_of_first(self):
        first = {1: self.run_with((0.5, 10_000_000), (0.3, 20_000_000)), 2: self.run_with((0.4, 20_000_000))}
        self.assertEqual(study.megabytes_to(first, first), "20.0")
        late = self.run_with((0.311, 1_000_000), (0.309, 2_000_000), (0.2, 3_000_000))
        never = self.run_with((0.411, 1_000_000))
        self.assertEqual(study.megabytes_to(first, {1: late}), "2.0")
        self.assertEqual(study.megabytes_to(first, {1: late, 2: never}), "2.0 (1 of 2 seeds)")
        self.assertEqual(study.megabytes_to(first, {2: never}), "not reached")
        self.assertEqual(study.megabytes_to(first, {3: never}), "")


class PeakBytes(unittest.TestCase):
    def test_the_most_of_all_runs_unless_one_did_not_keep_it(self):
        self.assertEqual(study.peak_bytes([{"peak_sent_bytes": 1000}, {"peak_sent_bytes": 2500}]), "2,500")
        self.assertEqual(study.peak_bytes([{"peak_sent_bytes": 0}]), "0")
        self.assertEqual(study.peak_bytes([{"peak_sent_bytes": 1000}, {}]), "")


class Attacks(unittest.TestCase):
    def run_with(self, error: float, attack: str = "", codec: str = "fp32") -> dict:
        return {"final_test_error": error, "world_size": 9,
                "settings": {"run.attack": attack, "exchange.codec": codec}}

    def test_attacks_that_are_joined_have_a_column_and_all_their_attackers(self):
        one, both = "noise:ranks=1", "noise:ranks=1 and silence"
        found = {"a": {"median": {1: self.run_with(0.1, one)}}, "b": {"median": {1: self.run_with(0.3, both)}}}
        lines = study.attack_table({"first": "mean"}, found)
        self.assertIn("## 1 of 9 attack", lines)
        self.assertIn("## 2 of 9 attack", lines)
        self.assertIn("| codec | rule | noise | noise and silence |", lines)
        found["c"] = {"median": {1: self.run_with(0.2, "noise:std=3,ranks=1")}}
        with self.assertRaisesRegex(ValueError, "differ by strength"):
            study.attack_table({"first": "mean"}, found)

    def test_each_rule_has_a_row_of_errors_beside_the_mean_without_an_attack(self):
        flip, noise = "sign_flip:ranks=2,scale=10", "noise:std=20,ranks=2"
        found = {"no attack": {"mean, codec fp32": {1: self.run_with(0.05), 2: self.run_with(0.07)},
                               "median, codec fp32": {1: self.run_with(0.06)}},
                 "flip": {"mean, codec fp32": {1: self.run_with(0.9, flip)},
                          "median, codec fp32": {1: self.run_with(0.0625, flip), 2: self.run_with(0.0875, flip)},
                          "median, codec sign": {1: self.run_with(0.5, flip, "sign")}},
                 "noise": {"median, codec fp32": {2: self.run_with(0.16, noise)}},
                 "alie": {"median, codec fp32": {2: self.run_with(0.171, "alie")}}}
        self.assertIs(study.table_for(found, {}), study.attack_table)
        self.assertIs(study.table_for({"no attack": found["no attack"]}, {}), study.table)
        lines = study.attack_table({"first": "mean"}, found)
        self.assertIn("9 runs; their seeds: 1, 2.", lines[0])
        self.assertEqual(lines[1:], [
            "", "## No attack", "", "| codec | rule | error |", "| --- | --- | ---: |",
            "| fp32 | mean | 6.0 (+0.0) |", "| fp32 | median | 6.0 (+1.0) |",
            "", "## 1 of 9 attack", "", "| codec | rule | sign_flip | noise | alie |", "| --- | --- | ---: | ---: | ---: |",
            "| fp32 | median |  |  | **17.1 (+10.1)** |",
            "", "## 2 of 9 attack", "", "| codec | rule | sign_flip | noise | alie |", "| --- | --- | ---: | ---: | ---: |",
            "| fp32 | mean | **90.0 (+85.0)** |  |  |", "| fp32 | median | 7.5 (+1.5) | 16.0 (+9.0) |  |",
            "| sign | median | 50.0 |  |  |"])


class Flushes(unittest.TestCase):
    def run_with(self, owed: float, delivered: float, after: float, **more: float) -> dict:
        return {"flush": {"owed_norm": owed, "gradient_norm": 2.0, "delivered_norm": delivered,
                          "test_error_before": 0.1, "test_error_after": after, **more}}

    def test_means_over_runs_that_were_measured(self):
        runs = [self.run_with(4.0, 8.0, 0.09), self.run_with(6.0, 0.0, 0.12), {"course": {}}]
        self.assertEqual(study.flushes(runs), ["2.50", "0.50", "0.50 ± 19.06", ""])
        held = self.run_with(4.0, 8.0, 0.09, hold_out_error_before=0.3, hold_out_error_after=0.25)
        self.assertEqual(study.flushes([held]), ["2.00", "0.50", "-1.00", "-5.00"])

    def test_runs_without_have_empty_cells(self):
        self.assertEqual(study.flushes([{"course": {}}]), [""] * len(study.FLUSH_NAMES))


class KeptResults(unittest.TestCase):
    """A study whose sweep is a script; its folders are temporary."""

    def setUp(self):
        self._temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self._temporary.cleanup)
        self.root = pathlib.Path(self._temporary.name)
        (self.root / "docs/results").mkdir(parents=True)
        self.page = self.root / "docs/results/s.md"
        self.page.write_text("as it was")
        (self.root / "s.toml").write_text('title = "S"\nabout = "A study."\nfirst = "a"\n[variants.a]\n')

    def run_study(self, code, rows=None):
        out = self.root / "out/s"
        out.mkdir(parents=True, exist_ok=True)
        if rows is not None:
            (out / "sweep.json").write_text(json.dumps(rows))
        program = self.root / "program"
        program.write_text(f"#!/bin/sh\nexit {code}\n")
        program.chmod(0o755)
        arguments = ["study.py", str(self.root / "s.toml"), "--out", str(self.root / "out"), "--program", str(program)]
        said = io.StringIO()
        with (mock.patch.object(study, "ROOT", self.root), mock.patch.object(kept_runs, "FOLDER", self.root),
              mock.patch("sys.argv", arguments), contextlib.redirect_stderr(said)):
            return study.main(), said.getvalue()

    def test_a_sweep_without_rows_leaves_the_page(self):
        for code, rows in ((1, None), (2, [{"runs": ["a-seed1"]}])):  # data are missing; a mistake in the study
            returned, said = self.run_study(code, rows)
            self.assertEqual((returned, self.page.read_text()), (code, "as it was"))
            self.assertIn("the page stays as it is", said)

    def test_a_summary_that_the_sweep_did_not_use_replaces_none(self):
        put = []
        (self.root / "out/s/a-seed1").mkdir(parents=True)
        (self.root / "out/s/a-seed1/summary.json").write_text('{"finished": true}')
        for rows, expected in (([{"runs": ["a-seed1"], "kept": ["a-seed1"]}], []), ([{"runs": ["a-seed1"]}], ["a-seed1"])):
            with (mock.patch.object(kept_runs, "put", lambda kept, name, run: put.append(name)),
                  mock.patch.object(study, "summary_of", lambda *_: {}), mock.patch.object(study, "page_of", lambda *_: ["# S"])):
                with contextlib.redirect_stdout(io.StringIO()):
                    self.run_study(0, rows)
            self.assertEqual(put, expected)


if __name__ == "__main__":
    unittest.main()
