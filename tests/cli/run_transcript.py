#!/usr/bin/env python3
"""Runs the commands of a transcript and compares what they print. SPDX-License-Identifier: Apache-2.0

usage: run_transcript.py PROGRAM TRANSCRIPT

A transcript holds comments (# ...), commands ($ thinwire ...) and what each prints, both streams
together. In expected lines * stands for any text, a line of ... alone for any number of lines.
[exit N] is the exit code; 0 when it is left out. Commands run in an empty folder of their own,
where <<NAME ... >> has written the file NAME before.
"""
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def parse(text):
    """Yields ("file", name, lines) and ("command", command, lines)."""
    lines = iter(text.splitlines())
    current = None
    for line in lines:
        if line.startswith("<<"):
            if current:
                yield current
            current = None
            content = []
            for inner in lines:
                if inner == ">>":
                    break
                content.append(inner)
            yield ("file", line[2:], content)
        elif line.startswith("$ "):
            if current:
                yield current
            current = ("command", line[2:], [])
        elif current and not line.startswith("# "):
            current[2].append(line)
    if current:
        yield current


def matches(expected, actual):
    if not expected:
        return not actual
    if expected[0] == "...":
        return any(matches(expected[1:], actual[i:]) for i in range(len(actual) + 1))
    pattern = re.sub(r"([\[\]?])", r"[\1]", expected[0])  # only * is special
    return bool(actual) and fnmatch.fnmatchcase(actual[0], pattern) and matches(
        expected[1:], actual[1:])


def without_blank_end(lines):
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def main():
    program, transcript = map(os.path.abspath, sys.argv[1:])
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "THINWIRE_"))}
    bad = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind, head, lines in parse(pathlib.Path(transcript).read_text()):
            if kind == "file":
                (pathlib.Path(folder) / head).write_text("\n".join(lines) + "\n")
                continue
            count += 1
            expected = without_blank_end(lines)
            code = 0
            if expected and (found := re.fullmatch(r"\[exit (\d+)\]", expected[-1])):
                code = int(found[1])
                expected = without_blank_end(expected[:-1])
            shell = f'thinwire() {{ "{program}" "$@"; }}; {head}'
            done = subprocess.run(["bash", "-c", shell], cwd=folder, env=clean, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=120)
            actual = without_blank_end(done.stdout.splitlines())
            if done.returncode != code or not matches(expected, actual):
                bad += 1
                print(f"$ {head}\n--- expected, exit {code}", *expected,
                      f"--- printed, exit {done.returncode}", *actual, "", sep="\n")
    if count == 0:
        sys.exit(f"{transcript}: no commands")
    print(f"{count} commands, {bad} differ")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
