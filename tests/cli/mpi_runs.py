"""The program under mpirun: same bits as threads, and failures that end. SPDX-License-Identifier: Apache-2.0"""
import os
import pathlib
import shutil
import signal
import time

import program
from program import settings


def ranks_of(launcher):
    """Process ids below `launcher` by MPI rank."""
    ranks = {}
    for task in pathlib.Path("/proc").iterdir():
        try:
            parent = int((task / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (task / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError, IndexError):
            continue
        for word in words:
            if parent == launcher and word.startswith(b"OMPI_COMM_WORLD_RANK="):
                ranks[int(word.split(b"=")[1])] = int(task.name)
    return ranks


class Mpi(program.ProgramTest):

    def test_the_same_bits_as_threads(self):
        for codec in ("fp32", "adacomp"):
            with self.subTest(codec):
                words = settings(exchange__codec=codec)
                self.thinwire("train", "demo", "--workers", "2", "--out", f"{codec}-threads",
                              *words)
                out, err = self.under_mpirun("train", "demo", "--out", f"{codec}-mpi", *words)
                self.assertEqual(err.count("2 workers (mpirun)"), 1)  # rank 0 alone speaks
                self.assertEqual(out.count("test error"), 1)
                self.assertNotRegex(out + err, "\033")
                self.assertEqual(self.summary(f"{codec}-threads")["weights_xxh3"],
                                 self.summary(f"{codec}-mpi")["weights_xxh3"])

    def test_ranks_with_different_recipes_are_refused(self):
        tiny = settings()
        _, err = self.run_command(
            [self.mpirun, "-n", "1", self.program, "train", "demo", *tiny,
             ":", "-n", "1", self.program, "train", "demo", *tiny, "--set", "train.seed=7"],
            code=None)
        self.assertRegex(err, r"thinwire: rank \d: .*recipe.*train\.seed")

    def test_a_wrong_recipe_ends_all_ranks(self):
        _, err = self.run_command(
            [self.mpirun, "-n", "1", self.program, "train", "demo", *settings(),
             ":", "-n", "1", self.program, "train", "demo", "--set", "train.epochs=no"],
            code=None, limit=60)
        self.assertIn("thinwire: rank 1: --set train.epochs=no", err)

    def test_workers_must_be_as_many_as_ranks(self):
        _, err = self.under_mpirun("train", "demo", "--workers", "3", *settings(), code=None)
        self.assertIn("--workers 3, but mpirun started 2 ranks", err)

    def output_when_killed(self, ranks, victim, **changes):
        """Of a job whose rank `victim` dies after its first steps."""
        words = settings(train__max_steps=100000, train__epochs=100000, **changes)
        process = self.start([self.mpirun, "-n", str(ranks), self.program, "train", "demo",
                              "--out", "run", *words])
        metrics = self.folder / "run" / "metrics.jsonl"
        give_up = time.monotonic() + 60
        while not metrics.exists() and time.monotonic() < give_up:
            time.sleep(0.02)
        processes = ranks_of(process.pid)
        self.assertIn(victim, processes)
        os.kill(processes[victim], signal.SIGKILL)
        killed = time.monotonic()
        out, err = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - killed, 20)  # the deadline of settings
        self.assertNotEqual(process.returncode, 0)
        return out + err

    def test_a_killed_rank_ends_the_job_in_time_and_is_named(self):
        self.assertRegex(self.output_when_killed(2, 1), "rank 1")

    def test_a_killed_stage_ends_the_pipeline_in_time_and_is_named(self):
        for stage in (0, 1, 2):
            with self.subTest(stage):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                found = self.output_when_killed(
                    3, stage, pipeline__stages=3, train__micro_batches=2,
                    pipeline__forward="uniform:bits=4", pipeline__backward="uniform:bits=8")
                self.assertRegex(found, f"rank {stage}")


if __name__ == "__main__":
    program.main()
