#!/usr/bin/env python3
"""Fails when a header uses std::span and leaves it to another header to include <span>.

usage: check_includes.py ROOT
"""
import pathlib
import re
import sys

COMMENT = re.compile(r"//.*")
FOLDERS = ("include", "src", "cli", "python", "tests")


def check(root: pathlib.Path) -> list[str]:
    headers = sorted(file for folder in FOLDERS for file in (root / folder).rglob("*.h"))
    texts = {file: COMMENT.sub("", file.read_text()) for file in headers}
    return [f"{file.relative_to(root).as_posix()}: uses std::span and does not include <span>"
            for file, text in texts.items()
            if re.search(r"\bstd::span\b", text) and "#include <span>" not in text]


if __name__ == "__main__":
    found = check(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or "includes ok")
    sys.exit(bool(found))
