"""Tests check_gpu.py on the output of a program that stands in for check_gpu."""

# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("check_gpu.py")


def run(rows: list[dict], code: int) -> tuple[int, str, bool]:
    """Exit status, what was printed, and whether a page was written."""
    with tempfile.TemporaryDirectory() as folder:
        output = "\n".join(map(json.dumps, rows))
        program = pathlib.Path(folder, "check_gpu")
        program.write_text(f"#!{sys.executable}\nimport sys\nprint({output!r}) if {bool(rows)} else None\nsys.exit({code})\n")
        program.chmod(0o755)
        page = pathlib.Path(folder, "page.md")
        done = subprocess.run([sys.executable, SCRIPT, folder, "--page", page], stdout=subprocess.PIPE, text=True)
        return done.returncode, done.stdout, page.exists()


def row(values: int, equal: bool, ms: float) -> dict:
    return {"kernel": "int8 encode, with rest", "values": values, "equal": equal, "ms": ms, "share": 0.75}


DEVICE = {"device": "Fake GPU", "architecture": "sm_90", "copy_gb_per_s": 3000.0}


class CheckGpu(unittest.TestCase):
    def test_counts_equal_runs_and_shows_the_largest_size(self) -> None:
        code, text, written = run([DEVICE, row(1, True, 0.01), row(100, True, 0.5), row(107, True, 0.1)], 0)
        self.assertEqual((code, written), (0, True))
        self.assertIn("| int8 encode, with rest | 3 of 3 | 0.500 | 75% |", text)
        self.assertIn("| ms at 100 values |", text)

    def test_unequal_bits_are_an_error_that_the_page_shows(self) -> None:
        code, text, _ = run([DEVICE, row(1, True, 0.01), row(10, False, 0.5)], 1)
        self.assertEqual(code, 1)
        self.assertIn("| 1 of 2 |", text)

    def test_without_a_gpu_no_page_is_written(self) -> None:
        self.assertEqual(run([], 2), (2, "", False))


if __name__ == "__main__":
    unittest.main()
