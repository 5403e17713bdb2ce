#!/usr/bin/env python3
"""Tests kept_runs.py: results are kept, read and unpacked for sweeps. SPDX-License-Identifier: Apache-2.0"""
import json
import pathlib
import tempfile
import unittest

import kept_runs


class KeptRuns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "runs/study.jsonl"

    def test_what_is_put_is_read_sorted_and_replaced_by_name(self):
        self.assertEqual(kept_runs.read(self.file), {})
        for name, loss in (("b", 0.1 + 0.2), ("a", 1e-300), ("b", 2.0)):
            kept_runs.put(self.file, name, {"loss": loss, "settings": {"train.seed": 1}})
        self.assertEqual(list(kept_runs.read(self.file).items()),
                         [("a", {"loss": 1e-300, "settings": {"train.seed": 1}}),
                          ("b", {"loss": 2.0, "settings": {"train.seed": 1}})])
        self.assertEqual(len(self.file.read_text().splitlines()), 2)

    def test_sweeps_find_each_run_in_a_file_and_no_run_of_before(self):
        kept_runs.put(self.file, "a", {"loss": 0.5})
        (self.folder / "gone.json").write_text("{}")
        kept_runs.unpack(self.file, self.folder)
        self.assertEqual([path.name for path in self.folder.glob("*.json")], ["a.json"])
        self.assertEqual(json.loads((self.folder / "a.json").read_text()), {"loss": 0.5})

    def test_a_broken_line_is_named(self):
        kept_runs.put(self.file, "a", {"loss": 0.5})
        whole = self.file.read_text()
        for added, problem in (("{", "not the summary"), ("[]", "not the summary"), ('{"loss": 1}', "not the summary"),
                               (whole, "a second line of run a")):
            self.file.write_text(whole + added)
            with self.assertRaisesRegex(ValueError, f"study.jsonl, line 2: {problem}"):
                kept_runs.read(self.file)

    def test_every_run_on_file_has_what_pages_need(self):
        studies = [path.stem for path in (kept_runs.FOLDER.parents[2] / "studies").glob("*.toml")]
        for study in studies:
            for name, run in kept_runs.read(kept_runs.FOLDER / f"{study}.jsonl").items():
                with self.subTest(study=study, run=name):
                    self.assertLessEqual({"commit", "settings", "totals"}, run.keys())
                    self.assertTrue(run["finished"])
        self.assertGreater(len(studies), 10)


if __name__ == "__main__":
    unittest.main()
