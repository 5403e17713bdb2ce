"""Runs thinwire for the tests of this folder. SPDX-License-Identifier: Apache-2.0"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

# Small enough for seconds: a narrow network, few steps, one test at the end.
TINY = {"model.name": "mlp", "model.hidden": "16", "train.batch": "32", "train.max_steps": "6",
        "train.evaluate_every": "0", "run.threads": "1", "exchange.deadline_seconds": "20"}


def settings(**changes):
    """--set arguments: TINY with changes, dots written as double underscores."""
    merged = {**TINY, **{key.replace("__", "."): str(value) for key, value in changes.items()}}
    return [word for key, value in merged.items() for word in ("--set", f"{key}={value}")]


class ProgramTest(unittest.TestCase):
    """Each test has an empty folder and a time limit."""
    program = mpirun = ""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)

    def tearDown(self):
        self._folder.cleanup()

    def environment(self):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "THINWIRE_"))}
        return {**clean, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_rmaps_base_oversubscribe": "1"}

    def start(self, command):
        return subprocess.Popen(command, cwd=self.folder, env=self.environment(), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def run_command(self, command, code=0, limit=120):
        """Output and errors of a command that must end with this code in time."""
        process = self.start(command)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.fail(f"{command} still ran after {limit} s:\n{out}{err}")
        if code is not None:
            self.assertEqual(process.returncode, code, f"{command}\n{out}{err}")
        return out, err

    def thinwire(self, *arguments, code=0):
        return self.run_command([self.program, *arguments], code)

    def under_mpirun(self, *arguments, ranks=2, code=0):
        return self.run_command([self.mpirun, "-n", str(ranks), self.program, *arguments], code)

    def summary(self, out):
        return json.loads((self.folder / out / "summary.json").read_text())

    def metrics(self, out):
        lines = (self.folder / out / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def main():
    """usage: SCRIPT PROGRAM [MPIRUN]"""
    ProgramTest.program = os.path.abspath(sys.argv[1])
    ProgramTest.mpirun = sys.argv[2] if len(sys.argv) > 2 else ""
    unittest.main(argv=sys.argv[:1], module="__main__", verbosity=2)
