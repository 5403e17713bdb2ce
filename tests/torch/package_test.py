"""Tests of the package's errors where it cannot work, and of its stub. SPDX-License-Identifier: Apache-2.0"""
import ast
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import thinwire
import thinwire.torch._engine as engine

PACKAGE = pathlib.Path(thinwire.__file__).parent


def why_not(stub=None, leave_out="nothing"):
    """The error of importing thinwire.torch with this torch, and without these files of the package."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, pathlib.Path(folder) / "thinwire",
                        ignore=shutil.ignore_patterns(leave_out, "__pycache__"))
        if stub is not None:
            (pathlib.Path(folder) / "torch.py").write_text(stub)
        ended = subprocess.run([sys.executable, "-c", "import thinwire.torch"], text=True,
                               capture_output=True, env={**os.environ, "PYTHONPATH": folder})
    return ended.stderr.strip().splitlines()[-1] if ended.returncode else ""


class Package(unittest.TestCase):
    def test_codec_threads_are_those_of_both_engines(self):
        code = ("import thinwire; thinwire.set_codec_threads(3); import thinwire.torch._native as n; "
                "print(n._engine.codec_threads()); thinwire.set_codec_threads(2); "
                "print(n._engine.codec_threads(), thinwire.codec_threads())")
        ended = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
        self.assertEqual(ended.stdout.split(), ["3", "2", "2"], ended.stderr)

    def test_it_can_be_copied(self):
        self.assertEqual(why_not(), "")

    def test_without_torch_it_says_so(self):
        self.assertIn("needs torch", why_not("raise ImportError('no torch')"))

    def test_without_its_engine_it_says_so(self):
        self.assertIn("installed where there was no torch", why_not(leave_out="_engine*.so"))

    def test_another_torch_is_refused(self):
        self.assertRegex(why_not("__version__ = '1.0'"), "(this is|for torch) 1.0")

    def test_the_stub_is_what_the_engine_has(self):
        tree = ast.parse((PACKAGE / "torch" / "_engine.pyi").read_text())
        stub = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                stub[node.name] = {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
        real = {name: {m for m in vars(kind) if not m.startswith("_") or m == "__init__"}
                for name, kind in vars(engine).items() if isinstance(kind, type)}
        self.assertEqual(stub, real)


if __name__ == "__main__":
    unittest.main()
