"""Tests of sweeps' reports on current runs, missing data and failures. SPDX-License-Identifier: Apache-2.0"""
import json
import re
import signal
import time

import program
from sweep_runs import toml


class Reports(program.ProgramTest):

    def sweep(self, *arguments, code=0, **changes):
        (self.folder / "two.toml").write_text(toml(**changes))
        return self.thinwire("sweep", "two.toml", "--out", "all", *arguments, code=code)

    def test_a_variant_whose_runs_all_fail_stays_in_the_table_with_the_reason(self):
        for seed in (1, 2):
            (self.folder / "all" / f"sparse-seed{seed}" / "metrics.jsonl").mkdir(parents=True)
        fewer = ("--set", "train.max_steps=2")
        out, _ = self.sweep(*fewer, code=1)
        self.assertRegex(out, r"plain +2 +\d+\.\d\d ± ")
        self.assertRegex(out, r"sparse +0 \(2 failed\) *\n")
        for name in ("sparse-seed1", "sparse-seed2"):
            self.assertRegex(out, rf"\n  ! sparse, 1 failed \({name}\): .*metrics\.jsonl.*\n")
        rows = json.loads((self.folder / "all" / "sweep.json").read_text())
        self.assertEqual(rows[1]["runs"], [])
        self.assertEqual([one["run"] for one in rows[1]["failed"]], ["sparse-seed1", "sparse-seed2"])
        self.assertIn("metrics.jsonl", rows[1]["failed"][0]["reason"])
        self.assertIn("\n- sparse, 1 failed (sparse-seed1): ", (self.folder / "all" / "sweep.md").read_text())
        again, _ = self.sweep(*fewer, "--table-only")  # what failed before is in the logs
        self.assertEqual(again, out)

        for seed in (1, 2):
            (self.folder / "all" / f"sparse-seed{seed}" / "metrics.jsonl").rmdir()
        out, _ = self.sweep(*fewer)
        self.assertNotIn("failed", out)

    def test_a_sweep_where_all_fail_has_a_table(self):
        for name in ("plain", "sparse"):
            (self.folder / "all" / f"{name}-seed1" / "metrics.jsonl").mkdir(parents=True)
        (self.folder / "two.toml").write_text(toml().replace("[1, 2]", "[1]"))
        out, _ = self.thinwire("sweep", "two.toml", "--out", "all", code=1)
        self.assertRegex(out, r"plain +0 \(1 failed\)")
        self.assertRegex(out, r"sparse +0 \(1 failed\)")
        self.assertIn("0 of 2 runs", out)

    def test_missing_data_are_told_once_and_nothing_runs(self):
        (self.folder / "empty").mkdir()
        changes = ("--set", "data.name=mnist")
        _, err = self.sweep("--data", "empty", *changes, code=1)
        self.assertEqual(err, "thinwire: nothing was run, as data are missing: mnist for 4 of 4 runs; "
                              "'thinwire data mnist --data empty' says which files to get and where "
                              "to put them\n")
        self.assertFalse((self.folder / "all").exists())
        plan, _ = self.sweep("--data", "empty", *changes, "--dry-run")
        self.assertEqual(plan.count("to do"), 4)

    def test_a_sweep_says_how_its_runs_get_on(self):
        changes = {"train__max_steps": 100000, "train__epochs": 100000, "train__evaluate_every": 0.01}
        (self.folder / "two.toml").write_text(toml(**changes))
        process = self.start([self.program, "sweep", "two.toml", "--out", "all", "--at-once", "2",
                              "--report-every", "0.2"])
        seen = []
        wanted = [r"\[1/4\] plain-seed1: seed 1, begins$", r"\[2/4\] sparse-seed1: seed 1, begins$",
                  r"\[1/4\] plain-seed1: seed 1, [\d.]+ s, epoch [\d.]+ +test error [\d.]+%",
                  r"\[2/4\] sparse-seed1: seed 1, [\d.]+ s, epoch [\d.]+ +test error [\d.]+%"]
        give_up = time.monotonic() + 90
        while time.monotonic() < give_up and wanted:
            seen.append(process.stderr.readline())
            wanted = [line for line in wanted if not re.search(line, seen[-1])]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=90)
        self.assertEqual(wanted, [], "".join(seen) + err)
        self.assertRegex(err, r"\[1/4\] plain-seed1: stopped after ")

    def test_a_table_that_cannot_be_printed_is_a_failure(self):
        self.sweep("--set", "train.max_steps=2", "--at-once", "2")
        command = [self.program, "sweep", "two.toml", "--out", "all", "--set", "train.max_steps=2",
                   "--table-only"]
        _, err = self.run_command(["bash", "-c", '"$@" >/dev/full', "bash", *command], code=1)
        self.assertEqual(err, "thinwire: standard output cannot be written: No space left on device\n")


if __name__ == "__main__":
    program.main()
