"""The program under mpirun: same bits as threads, and failures that end. SPDX-License-Identifier: Apache-2.0"""
import os
import pathlib
import shutil
import signal
import time

import program
from program import settings

LEADER = "leader:tau=4,tau_global=4,groups=1,asynchronous=true"


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

    def kill(self, ranks, victim, words, lines=0, mpirun=()):
        """Kills a rank when the run has written `lines`: the job's code and output, and how long it took."""
        process = self.start([self.mpirun, *mpirun, "-n", str(ranks), self.program, "train", "demo",
                              "--out", "run", *words])
        metrics = self.folder / "run" / "metrics.jsonl"
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up and process.poll() is None:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= lines:
                break
            time.sleep(0.02)
        processes = ranks_of(process.pid)
        if victim in processes:
            os.kill(processes[victim], signal.SIGKILL)
        killed = time.monotonic()
        out, err = process.communicate(timeout=100)
        self.assertIn(victim, processes, out + err)
        return process.returncode, out + err, time.monotonic() - killed

    def output_when_killed(self, ranks, victim, **changes):
        """Of a job whose rank `victim` dies after its first steps."""
        words = settings(train__max_steps=100000, train__epochs=100000, **changes)
        code, said, seconds = self.kill(ranks, victim, words)
        self.assertLess(seconds, 20)  # the deadline of settings
        self.assertNotEqual(code, 0)
        return said

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

    def test_a_killed_worker_ends_asynchronous_ones_without_recovery(self):
        for method in (LEADER, LEADER + ",patience=5"):
            with self.subTest(method):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                found = self.output_when_killed(2, 1, sync__method=method, exchange__codec="fp32")
                self.assertRegex(found, "rank 1")

    # A hundred steps are there when one of four is killed, and thousands are to come.
    def test_with_recovery_and_patience_the_others_end_well(self):
        words = settings(train__max_steps=3000, train__epochs=100, train__evaluate_every=0.2,
                         exchange__codec="fp32", sync__method=LEADER + ",patience=5")
        code, said, _ = self.kill(4, 2, words, lines=100, mpirun=["--enable-recovery"])
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"rank 2 is lost: .*process \d+ has ended; the others go on")
        summary = self.summary("run")
        self.assertTrue(summary["finished"])
        self.assertEqual(summary["lost_workers"], [2])
        lines = self.metrics("run")
        self.assertEqual([lost["rank"] for line in lines for lost in line.get("lost", [])], [2])
        self.assertTrue(any("test_error" in line and "round" in line for line in lines))
        rounds = [line["round"] for line in lines if "loss" in line and "round" in line]
        self.assertEqual(rounds[0]["ranks"], [0, 1, 2, 3])
        self.assertEqual(rounds[-1]["ranks"], [0, 1, 3])
        (checkpoint,) = (self.folder / "run").glob("checkpoint-*")
        self.assertEqual(len(list(checkpoint.glob("state-rank-*-of-0003.safetensors"))), 3)
        self.assertGreater((checkpoint / "model.safetensors").stat().st_size, 10000)

    # With run.elastic the others of a data-parallel run go on, whoever is killed, and the first of them speaks.
    # Where the kill falls decides the course of the rest of the run. In 42 runs of this width and rate that took other
    # courses (seeds), 500 steps ended at errors of 0.167 to 0.177; of TINY's width at its rate at 0.18 to 0.48.
    def test_with_recovery_elastic_workers_go_on(self):
        for victim, transports in ((0, ()), (2, ("--mca", "btl", "self,tcp"))):
            with self.subTest(victim=victim, transports=transports):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                words = settings(train__max_steps=900, train__epochs=100, train__evaluate_every=0.1,
                                 train__checkpoint_every=0.1, run__elastic="true", model__hidden=64,
                                 optimizer__lr=0.02, exchange__codec="topk:density=0.05")
                code, said, _ = self.kill(3, victim, words, lines=50,
                                          mpirun=["--enable-recovery", *transports])
                self.assertEqual(code, 0, said)
                self.assertRegex(said, rf"worker {victim} is lost .*; its memories owed [0-9.]+")
                self.assertIn("2 workers go on", said)
                self.assertEqual(said.count("done: 900 steps"), 1)
                summary = self.summary("run")
                self.assertTrue(summary["finished"])
                self.assertEqual(summary["skipped_steps"], 0)
                self.assertEqual(summary["lost_workers"], [victim])
                self.assertEqual(summary["world_size"], 2)
                lines = self.metrics("run")
                steps = [line["step"] for line in lines if "loss" in line]
                self.assertEqual(steps, sorted(set(steps)))
                self.assertGreaterEqual(len(steps), 899)  # rank 0 may take a line along
                self.assertEqual(steps[-1], 900)
                losses = [lost for line in lines for lost in line.get("lost", [])]
                self.assertEqual([lost["rank"] for lost in losses], [victim])
                self.assertGreater(losses[0]["owed"], 0)
                self.assertLess(summary["final_test_error"], 0.25)
                newest = max((self.folder / "run").glob("checkpoint-*"))
                self.assertEqual(len(list(newest.glob("state-rank-*-of-0002.safetensors"))), 2)

    def test_elastic_workers_have_no_replacements(self):
        _, err = self.under_mpirun("train", "demo", *settings(run__elastic="true",
                                                              run__replacements=1), code=None)
        self.assertIn("run.replacements: is for workers that are threads", err)

    def test_elastic_workers_without_recovery_end_with_the_killed_one(self):
        self.assertRegex(self.output_when_killed(3, 1, run__elastic="true"), "rank 1")

    def test_with_recovery_the_loss_of_rank_0_ends_the_others(self):
        words = settings(train__max_steps=100000, train__epochs=100000, exchange__codec="fp32",
                         sync__method=LEADER + ",patience=5")
        _, said, seconds = self.kill(3, 0, words, mpirun=["--enable-recovery"])
        self.assertLess(seconds, 40)
        for rank in (1, 2):
            self.assertRegex(said, f"thinwire: rank {rank}: .*rank 0 is gone")


if __name__ == "__main__":
    program.main()
