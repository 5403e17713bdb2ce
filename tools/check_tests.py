#!/usr/bin/env python3
"""Fails when a test would not be run by the test of its file, as `ctest` runs the programs of many files, or when a Python
file of tests would run none.

usage: check_tests.py ROOT

GoogleTest wants tests of one suite in one program to have one fixture, so a suite belongs to one file. A test in a
header would count as the header's, which no test runs.
"""
import pathlib
import re
import sys

SUITE = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)", re.M)

PYTHON = ("tests", "tools", "lab", "python", "device")  # folders with tests in Python
RUN = re.compile(r"^    unittest\.main\(", re.M)


def check(root: pathlib.Path) -> list[str]:
    errors = []
    homes: dict[tuple, str] = {}
    files = (file for folder in ("src", "cli", "tests") for file in sorted((root / folder).rglob("*")))
    for file in files:
        if file.suffix not in {".h", ".cc"}:
            continue
        here = file.relative_to(root).as_posix()
        program = "/".join(here.split("/")[:-1][:2])  # src/LAYER, tests/FOLDER, cli
        for suite in dict.fromkeys(SUITE.findall(file.read_text())):
            if file.suffix == ".h":
                errors.append(f"{here}: tests of {suite} in a header are run by no test")
            home = homes.setdefault((program, suite), here)
            if home != here:
                errors.append(f"{here}: {home} has a test suite {suite} too")
    for file in sorted(file for folder in PYTHON for file in (root / folder).rglob("*_test.py")):
        text = file.read_text()
        if "unittest.TestCase" in text and not RUN.search(text):
            errors.append(f"{file.relative_to(root).as_posix()}: runs no test, since it does not call unittest.main()")
    return errors


if __name__ == "__main__":
    found = check(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or "tests ok")
    sys.exit(bool(found))
