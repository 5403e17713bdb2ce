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
        self.assertIn("| int8 encode, with rest | 3 of 3 | 0.500 | 75% (goal 70%) |", text)
        self.assertIn("DistributedDataParallel on CUDA tensors has not run", text)
        self.assertIn("| ms at 100 values |", text)

    def test_unequal_bits_are_an_error_that_the_page_shows(self) -> None:
        code, text, _ = run([DEVICE, row(1, True, 0.01), row(10, False, 0.5)], 1)
        self.assertEqual(code, 1)
        self.assertIn("| 1 of 2 |", text)

    def test_what_torch_found_is_on_the_page(self) -> None:
        sys.path.insert(0, str(SCRIPT.parent))
        import check_gpu
        bits = {"codec": "int8", "method": "auto", "equal": True, "same_on_all_ranks": False, "same_bytes": True,
                "on_device": 3, "streams": 4, "values": 1000, "to_host": 300, "from_host": 500, "gpu": "Fake GPU"}
        refused = {"codec": "lonely", "method": "auto", "gpu": "Fake GPU", "refused": "it takes an option"}
        page = check_gpu.page_of_bits([bits, refused])
        self.assertIn("| int8 | auto | yes | **no** | yes | 3 of 4 | 10.0% |", page)
        self.assertRegex(page[-1], "have not run: lonely")
        step = {"method": "ddp-bf16", "link": "1gbit", "ms": 812.34, "parameters": 100, "sent_mb": 0, "pcie_mb": 0,
                "gpu": "Fake GPU"}
        self.assertIn("| 1gbit | ddp-bf16 | 812.3 | 0.00 | 0.00 |", check_gpu.page_of_steps([step]))
        model = {"part": "DiLoCo", "gpu": "Fake GPU", "difference": 1e-8, "largest": 0.5, "ranks_agree": True}
        self.assertIn("| DiLoCo | 1.0e-08 | 0.50 | yes |", check_gpu.page_of_models([model]))
        self.assertEqual(check_gpu.faults_of_torch([bits, refused], [model], [step]),
                         ["int8 by auto: same_on_all_ranks is false"])
        good = {**bits, "same_on_all_ranks": True}
        self.assertEqual(check_gpu.faults_of_torch([good], [model], [step]), [])
        for rows, models, steps, fault in (([refused], [model], [step], "bits has no rows"),
                                           ([good], [model], [], "GPT has no rows"),
                                           ([good], [], [step], "models has no rows"),
                                           ([{**good, "gpu": ""}], [model], [step], "bits ran on the processor"),
                                           ([good], [model], [{**step, "gpu": ""}], "GPT ran on the processor"),
                                           ([good], [{**model, "difference": 0.1}], [step], "DiLoCo: far from"),
                                           ([good], [{**model, "difference": float("nan")}], [step], "DiLoCo: far from"),
                                           ([good], [{**model, "ranks_agree": False}], [step], "DiLoCo: ranks agree otherwise"),
                                           ([{**good, "on_device": 0}], [model], [step], "all were staged"),
                                           ([{**good, "same_bytes": False}], [model], [step], "same_bytes is false")):
            self.assertRegex(" ".join(check_gpu.faults_of_torch(rows, models, steps)), fault)

    def test_without_a_gpu_no_page_is_written(self) -> None:
        self.assertEqual(run([], 2), (2, "", False))

    def test_a_device_on_which_nothing_ran_is_an_error(self) -> None:
        code, text, written = run([DEVICE], 0)
        self.assertEqual((code, text, written), (1, "", False))


if __name__ == "__main__":
    unittest.main()
