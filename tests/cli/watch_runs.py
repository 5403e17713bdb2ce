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
        seen, code = self.on_a_terminal("watch", "all", "--every", "0.2", until="epoch",
                                        then=lambda _: run.send_signal(signal.SIGCONT))
        out, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 0, out + err)
        self.assertEqual(code, 0)
        self.assertIn("\x1b[J", seen)  # it draws over what it drew
        self.assertRegex(seen.splitlines()[-1], r"run.*  done  3,000 steps  error \d+\.\d+% \(best")

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
