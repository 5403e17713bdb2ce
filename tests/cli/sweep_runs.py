"""Tests of sweeps: runs that are kept, skipped, stopped and continued. SPDX-License-Identifier: Apache-2.0"""
import csv
import json
import signal
import time

import program
from program import TINY


def toml(**changes):
    """A sweep of two variants and two seeds, each a few steps long."""
    merged = {**TINY, **{key.replace("__", "."): value for key, value in changes.items()}}
    quoted = ("model.name", "exchange.codec")
    lines = [f'"{key}" = "{value}"' if key in quoted else f'"{key}" = {value}'
             for key, value in merged.items()]
    return "\n".join(['title = "Two codecs"', 'recipe = "demo"', 'first = "plain"', "workers = 2",
                      "seeds = [1, 2]", "[settings]", *lines, "[variants.plain]",
                      '"exchange.codec" = "fp32"', "[variants.sparse]",
                      '"exchange.codec" = "topk:density=0.05"', ""])


class Sweep(program.ProgramTest):

    def sweep(self, *arguments, code=0, **changes):
        (self.folder / "two.toml").write_text(toml(**changes))
        return self.thinwire("sweep", "two.toml", "--out", "all", *arguments, code=code)

    def test_one_table_of_all_runs_and_a_second_call_makes_none(self):
        out, err = self.sweep("--at-once", "2")
        self.assertIn("Two codecs: 4 runs, 2 at once", err)
        self.assertRegex(err, r"\[4/4\] \w+-seed\d: error \d")
        self.assertRegex(out, r"variant +seeds +test error % +difference in points +bytes per step")
        self.assertRegex(out, r"plain +2 +\d+\.\d\d ± \d+\.\d\d +[\d,]+ +0\.99x")
        rows = json.loads((self.folder / "all" / "sweep.json").read_text())
        self.assertEqual([row["variant"] for row in rows], ["plain", "sparse"])
        self.assertEqual(rows[1]["runs"], ["sparse-seed1", "sparse-seed2"])
        errors = [self.summary(f"all/{name}")["final_test_error"] for name in rows[1]["runs"]]
        self.assertAlmostEqual(rows[1]["final_test_error"]["mean"], sum(errors) / 2)
        self.assertIn("final_test_error_difference", rows[1])
        table = (self.folder / "all" / "sweep.md").read_text().splitlines()
        self.assertEqual(table[0], "# Two codecs")
        self.assertEqual(len(table), 6)
        with open(self.folder / "all" / "sweep.csv") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual([line["run"] for line in lines],
                         ["plain-seed1", "sparse-seed1", "plain-seed2", "sparse-seed2"])
        self.assertEqual(float(lines[1]["final_test_error"]), errors[0])
        self.assertEqual(json.loads((self.folder / "all" / "runs.json").read_text()),
                         {"runs": [line["run"] for line in lines], "ended": True})

        made = {path: path.stat().st_mtime_ns for path in self.folder.glob("all/*/summary.json")}
        again, err = self.sweep()
        self.assertNotIn("[4/4]", err)
        self.assertEqual(again, out)
        self.assertEqual(made, {path: path.stat().st_mtime_ns for path in made})
        plan, _ = self.sweep("--dry-run", train__max_steps=7)
        self.assertEqual(plan.count("to do"), 4)  # another recipe: none of them counts

    def test_kept_summaries_count_and_another_recipe_s_do_not(self):
        self.sweep("--set", "train.max_steps=2")
        (self.folder / "kept").mkdir()
        (self.folder / "all" / "plain-seed1" / "summary.json").rename(
            self.folder / "kept" / "plain-seed1.json")
        plan, _ = self.sweep("--kept", "kept", "--dry-run", "--set", "train.max_steps=2")
        self.assertEqual(plan.count("done"), 4)
        _, err = self.sweep("--kept", "kept", "--dry-run", "--set", "train.max_steps=3")
        self.assertIn("kept/plain-seed1.json: is of another recipe (train.max_steps: 2 before, "
                      "3 now)", err)
        # The table says which summary counts where both places have one.
        self.sweep("--kept", "kept", "--set", "train.max_steps=2")
        rows = json.loads((self.folder / "all" / "sweep.json").read_text())
        self.assertEqual([row.get("kept", []) for row in rows], [["plain-seed1"], []])

    def test_ctrl_c_stops_the_runs_and_the_same_command_goes_on(self):
        changes = {"train__max_steps": 100000, "train__epochs": 100000}
        (self.folder / "two.toml").write_text(toml(**changes))
        process = self.start([self.program, "sweep", "two.toml", "--out", "all", "--at-once", "2"])
        logs = [self.folder / "all" / name / "metrics.jsonl" for name in
                ("plain-seed1", "sparse-seed1")]
        give_up = time.monotonic() + 90
        while not all(log.exists() for log in logs) and process.poll() is None \
                and time.monotonic() < give_up:
            time.sleep(0.02)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=90)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("go on with the same command", err)
        steps = [self.summary(f"all/{name}")["steps"] for name in ("plain-seed1", "sparse-seed1")]
        self.assertFalse(self.summary("all/plain-seed1")["finished"])
        plan, _ = self.sweep("--dry-run", **changes)
        self.assertEqual((plan.count("unfinished"), plan.count("to do")), (2, 2))
        plan, _ = self.sweep("--dry-run", **changes, checkpoint__keep=5)  # which says nothing of what is computed
        self.assertEqual(plan.count("unfinished"), 2)
        (self.folder / "two.toml").write_text(toml(**changes))

        process = self.start([self.program, "sweep", "two.toml", "--out", "all", "--at-once", "2"])
        resumed = self.folder / "all" / "plain-seed1" / "log.txt"
        give_up = time.monotonic() + 90
        while f"resumed at step {steps[0]}" not in resumed.read_text() and time.monotonic() < give_up:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=90)
        self.assertIn(f"resumed at step {steps[0]}", resumed.read_text())
        self.assertIn("plain-seed1: seed 1, goes on", err)
        self.assertGreaterEqual(self.summary("all/plain-seed1")["steps"], steps[0])

        # With other settings they would be runs of neither recipe.
        _, err = self.sweep(train__max_steps=6, train__epochs=100000)
        self.assertIn("! all/plain-seed1: the unfinished run is of another recipe (train.max_steps: "
                      "100000 before, 6 now)", err)
        self.assertIn("plain-seed1: seed 1, begins", err)
        for name in ("plain-seed1", "sparse-seed1", "plain-seed2", "sparse-seed2"):
            self.assertEqual(self.summary(f"all/{name}")["steps"], 6)

    def test_a_run_that_fails_is_named_and_leaves_the_others(self):
        (self.folder / "all" / "plain-seed2" / "metrics.jsonl").mkdir(parents=True)  # in its way
        out, err = self.sweep("--set", "train.max_steps=2", code=1)
        self.assertEqual(err.count("! plain-seed2: exit 1: "), 1)
        self.assertIn("all/plain-seed2/log.txt", err)
        self.assertIn("3 of 4 runs", out)

    def test_mistakes_are_found_before_anything_runs(self):
        (self.folder / "bad.toml").write_text('recipe = "demo"\n[grid]\n"train.batc" = [1]\n')
        _, err = self.thinwire("sweep", "bad.toml", code=2)
        self.assertIn("bad.toml:3: unknown key 'train.batc'; did you mean 'train.batch'?", err)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    program.main()
