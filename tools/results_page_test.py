#!/usr/bin/env python3
"""Tests results_page.py: notes and the answer stay, commits are listed once. SPDX-License-Identifier: Apache-2.0"""
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

    def test_the_question_below_the_title_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            for text in ("**Question.** Is it\nso? **Answer.** Yes.", "**Question.** Is it? **Answer.** No."):
                page.write_text(f"# Title\n\n{text}\n\nTwo runs.\n\n| 1 |\n")
                results_page.write(page, ["# Title", "", "Three runs.", "", "| 2 |", ""])
                self.assertEqual(page.read_text(), f"# Title\n\n{text}\n\nThree runs.\n\n| 2 |\n")
            page.write_text("# Title\n\n**Question.** Is it?\n\n## Notes\n\nNone.\n")
            results_page.write(page, ["# Title", "", "| 3 |"])
            self.assertEqual(page.read_text(), "# Title\n\n**Question.** Is it?\n\n| 3 |\n\n## Notes\n\nNone.\n")

    def test_a_question_elsewhere_is_of_the_figures(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text("# Title\n\nTwo runs.\n\n**Question.** Why?\n")
            results_page.write(page, ["# Title", "", "Three runs."])
            self.assertEqual(page.read_text(), "# Title\n\nThree runs.\n")

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
