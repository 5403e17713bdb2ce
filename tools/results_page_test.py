#!/usr/bin/env python3
"""Tests results_page.py: notes stay, commits are listed once. SPDX-License-Identifier: Apache-2.0"""
import pathlib
import tempfile
import unittest

import results_page


class Page(unittest.TestCase):
    def test_notes_stay_when_figures_are_written_again(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            results_page.write(page, ["# Title", "", "| 1 |", ""])
            self.assertEqual(page.read_text(), "# Title\n\n| 1 |\n")
            notes = "\n## Notes\n\nOf the first run.\n\n## Notes of another kind\n"
            page.write_text(page.read_text() + notes)
            results_page.write(page, ["# Title", "", "| 2 |"])
            self.assertEqual(page.read_text(), "# Title\n\n| 2 |\n" + notes)

    def test_commits_are_those_of_the_runs(self):
        self.assertEqual(results_page.commits([{"commit": "b"}, {"commit": "a"}, {"commit": "b"}]), "Commits: a, b")
        self.assertEqual(results_page.commits([{"commit": "b"}] * 2), "Commit: b")

    def test_machines_are_listed_once_with_their_gpu(self) -> None:
        plain = {"processor": "P", "cores": 2}
        self.assertEqual(results_page.machines([plain, plain]), "Processor: P, 2 cores")
        self.assertEqual(results_page.machines([{**plain, "cores": 16, "gpu": "G"}, plain]),
                         "Processors: P, 16 cores, G; P, 2 cores")


if __name__ == "__main__":
    unittest.main()
