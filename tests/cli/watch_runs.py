"""Tests of `thinwire watch` beside a run, and on a terminal. SPDX-License-Identifier: Apache-2.0"""
import json
import os
import pty
import select
import signal
import time

import program
from program import settings


class Watch(program.ProgramTest):

    def on_a_terminal(self, *arguments, until=None, then=lambda child: os.kill(child, signal.SIGINT), limit=60):
        """What the command draws until it ends, and its exit code. When `until` is seen, `then` is called, which is Ctrl-C."""
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.folder)
            os.execve(self.program, ["thinwire", *arguments],
                      {**self.environment(), "TERM": "xterm", "LANG": "C.UTF-8"})
        seen, end = b"", time.monotonic() + limit
        while time.monotonic() < end:
            ready, _, _ = select.select([terminal], [], [], 0.2)
            try:
                seen += os.read(terminal, 65536) if ready else b""
            except OSError:  # the other side closed
                break
            if until is not None and until in seen.decode(errors="replace"):
                then(child)
                until = None
        else:
            os.kill(child, signal.SIGKILL)
            self.fail(f"it still ran after {limit} s: {seen.decode(errors='replace')}")
        os.close(terminal)
        return seen.decode(errors="replace"), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def test_a_run_is_followed_to_its_end(self):
        run = self.start([self.program, "train", "demo", "--workers", "2", "--out", "all/run",
                          *settings(train__max_steps="3000", train__evaluate_every="1")])
        metrics, end = self.folder / "all/run/metrics.jsonl", time.monotonic() + 60
        while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < end:
            time.sleep(0.05)
        run.send_signal(signal.SIGSTOP)  # until it is watched: a busy machine may come to the end of the run first
        seen, code = self.on_a_terminal("watch", "all/run", "--every", "0.2", until="epoch",
                                        then=lambda _: run.send_signal(signal.SIGCONT))
        out, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 0, out + err)
        self.assertEqual(code, 0)
        self.assertIn("\x1b[J", seen)  # it draws over what it drew
        for rank in (0, 1):
            self.assertRegex(seen, rf"rank {rank} +works +\d+%  \S+ s  loss \d")
        self.assertRegex(seen.splitlines()[-1], r"run.*  done  3,000 steps  error \d+\.\d+% \(best")

    def test_a_comparison_is_followed_to_its_end(self):
        runs = self.start([self.program, "compare", "demo", "--workers", "2", "--codecs", "fp32;int8", "--out", "all",
                           *settings()])
        end = time.monotonic() + 60
        while not (self.folder / "all/runs.json").exists() and time.monotonic() < end:
            time.sleep(0.02)
        seen, code = self.on_a_terminal("watch", "all", "--every", "0.1")
        out, err = runs.communicate(timeout=60)
        self.assertEqual((runs.returncode, code), (0, 0), out + err)
        self.assertRegex(seen.splitlines()[-1], "2 of 2 runs done")
        self.assertEqual(json.loads((self.folder / "all/runs.json").read_text()),
                         {"runs": ["1-fp32", "2-int8"], "ended": True})

    def write_run(self, name, steps=1, finished=False):
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        lines = [{"step": i, "epoch": i / 10, "loss": 1.5, "seconds": i, "times": {"compute": 1}}
                 for i in range(1, steps + 1)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if finished:
            (folder / "summary.json").write_text(json.dumps({"finished": True, "steps": steps}))

    def write_list(self, folder, *runs, ended=False):
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        (self.folder / folder / "runs.json").write_text(json.dumps({"runs": runs, "ended": ended}))

    def test_it_does_not_end_between_two_runs_of_a_list(self):
        self.write_list("all", "r1", "r2")

        def begin_the_second(_):  # when the first was seen to be finished
            time.sleep(0.5)
            self.write_run("all/r2", steps=3)
            time.sleep(0.5)
            (self.folder / "all/r2/summary.json").write_text('{"finished": true, "steps": 3}')
            self.write_list("all", "r1", "r2", ended=True)

        self.write_run("all/r1", finished=True)
        (self.folder / "all/r2").mkdir()  # begun, without metrics yet
        seen, code = self.on_a_terminal("watch", "all", "--every", "0.1", until="1 of 2 runs done",
                                        then=begin_the_second)
        self.assertEqual(code, 0)
        self.assertIn("step 3", seen)
        self.assertRegex(seen.splitlines()[-1], "2 of 2 runs done")

    def test_it_ends_with_a_sweep_of_which_a_run_failed(self):
        self.write_list("all", "r1", "r2", ended=True)
        self.write_run("all/r1", finished=True)
        self.write_run("all/r2")
        seen, code = self.on_a_terminal("watch", "all")
        self.assertEqual(code, 0)
        self.assertRegex(seen.splitlines()[-1], "1 of 2 runs done; no other goes on")

    def test_runs_of_a_list_are_awaited_before_the_first_begins(self):
        self.write_list("all", "r1")
        seen, code = self.on_a_terminal("watch", "all", "--every", "0.1", until="0 of 1 runs done",
                                        then=lambda _: self.write_list("all", "r1", ended=True))
        self.assertEqual(code, 0)

    def test_runs_without_a_list_may_be_followed_by_others(self):
        self.write_run("all/r1", finished=True)
        seen, code = self.on_a_terminal("watch", "all", "--every", "0.1", "--until-idle", "2", until="done",
                                        then=lambda _: self.write_run("all/r2", steps=7))
        self.assertEqual(code, 0)
        self.assertIn("step 7", seen)

    def test_ctrl_c_ends_it(self):
        (self.folder / "run").mkdir()
        line = {"step": 1, "epoch": 0.1, "loss": 1.5, "seconds": 1, "times": {"compute": 1}}
        (self.folder / "run/metrics.jsonl").write_text(json.dumps(line) + "\n")
        seen, code = self.on_a_terminal("watch", "run", until="epoch 0.10")
        self.assertEqual(code, 0)
        self.assertIn("1.5000", seen)

    def test_without_a_terminal_it_is_shown_once(self):
        self.thinwire("train", "demo", "--workers", "2", "--out", "run", *settings())
        out, err = self.thinwire("watch", "run")
        self.assertRegex(out, r"^run  done  6 steps")
        self.assertEqual(err, "")
        _, err = self.thinwire("watch", "nowhere", code=1)
        self.assertRegex(err, "nowhere: is not there")


if __name__ == "__main__":
    program.main()
