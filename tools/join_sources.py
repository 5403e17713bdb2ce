#!/usr/bin/env python3
"""Writes C++ files that include several sources each, so that headers are read once for all of them.

    join_sources.py write FOLDER ROOT LINES [COUNT COUNT] -- SOURCE...
    join_sources.py with-torch ROOT -- SOURCE...

The first writes FOLDER/torch_0.cc and so on of sources that include libtorch, directly or not, and FOLDER/plain_0.cc
and so on of the others, each with sources of some LINES lines. It prints the two numbers of files, unless they are
given as COUNTs, as when the files are made again. The second prints which sources include libtorch.

Joined sources must mean what they mean alone. Two of them share a file only if neither mentions a name that
the other one keeps to itself (declared in an unnamed namespace, static, or a macro). All headers stand first,
so that no header sees such a name either.
"""
import functools
import pathlib
import re
import sys

from type_names import HIDDEN

TOKEN = re.compile(r"[A-Za-z_]\w*|::|\S")
WORD = re.compile(r"[A-Za-z_]\w*")
# Neither a member nor qualified: what a name of another file could be meant by.
FREE_WORD = re.compile(r"(?:(?<![\w.>:])|(?<=[^-]>)|(?<=[^:]:))[A-Za-z_]\w*")
INCLUDE = re.compile(r'^#include ([<"]([^>"]+)[>"])', re.M)
NO_NAMES = {"operator", "static_assert"}


def private_names(text: str) -> dict[str, str]:
    """Names that a source declares for itself alone; of other names for a type or namespace, their meaning."""
    names = dict.fromkeys(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.M), "")
    text = HIDDEN.sub(" ", text)
    scopes = []  # of open braces: "unnamed" and "named" namespaces, "body"
    head = []  # tokens of the declaration so far
    for token in TOKEN.findall(text):
        outside = "body" not in scopes
        if token == "{" and outside and "namespace" in head[:2]:
            scopes.append("unnamed" if head[-1] == "namespace" else "named")
            head = []
        elif token == "{":
            default = outside and head.count("(") > head.count(")")  # of an argument
            if outside and not default:
                names |= declared(head + ["{"], "unnamed" in scopes)
                head = []
            scopes.append("body")
        elif token == "}":
            scopes.pop()
        elif token == ";" and outside:
            names |= declared(head + [";"], "unnamed" in scopes)
            head = []
        elif outside:
            head.append(token)
    return names


def declared(head: list[str], unnamed: bool) -> dict[str, str]:
    """The name that one declaration at namespace scope adds to its file's own, if any."""
    if len(head) > 5 and head[0] in ("TEST", "TEST_F", "TEST_P"):
        return {f"{head[2]}_{head[4]}_Test": ""}
    if head[0] == "INSTANTIATE_TEST_SUITE_P":
        return {head[2] + head[4]: ""}
    if head[0] in ("using", "namespace") and head[2:3] == ["="]:
        meaning = f"{head[0]} {''.join(head[3:-1])}"
        return {head[1]: meaning} if unnamed or head[0] == "namespace" else {}
    if head[0] == "using" or not unnamed and "static" not in head:
        return {}
    if head[0] in ("struct", "class", "enum"):
        return {next(w for w in head[1:] if WORD.fullmatch(w) and w not in ("struct", "class")): ""}
    depth = 0  # of template arguments
    for token, following in zip(head, head[1:]):
        depth += (token == "<") - (token == ">")
        if depth == 0 and WORD.fullmatch(token) and following in ("(", "=", "{", ";", "["):
            return {} if token in NO_NAMES else {token: ""}
    return {}


@functools.cache
def reach(path: pathlib.Path, root: pathlib.Path) -> tuple[frozenset[str], bool]:
    """The namespaces inside others that a file opens, itself or by its headers, and whether it includes libtorch."""
    text = path.read_text()
    namespaces = set(re.findall(r"^namespace [\w:]+::(\w+) \{", text, re.M))
    torch = False
    for _, name in INCLUDE.findall(text):
        torch = torch or name.startswith(("torch/", "ATen/", "c10/"))
        for folder in (path.parent, root, root / "src", root / "include", root / "tests"):
            if (folder / name).is_file():
                of_header = reach(folder / name, root)
                namespaces |= of_header[0]
                torch = torch or of_header[1]
                break
    return frozenset(namespaces), torch


class Source:
    def __init__(self, path: pathlib.Path, root: pathlib.Path):
        raw = path.read_text()
        self.name = path.relative_to(root).as_posix()
        self.lines = raw.count("\n")
        self.words = set(FREE_WORD.findall(HIDDEN.sub(" ", raw)))
        self.private = private_names(raw)
        # Of a header beside the source, where that is seen from the root.
        self.headers = [f'"{(path.parent / name).relative_to(root).as_posix()}"' if (path.parent / name).is_file() else header
                        for header, name in INCLUDE.findall(raw.split("\nnamespace ")[0])]
        self.namespaces, self.torch = reach(path, root)
        # Of `testing::`, which is another one where thinwire::testing is known.
        self.outer = set(re.findall(r"(?<![\w:])(\w+)::", raw)) - self.namespaces


def clash(a: Source, b: Source) -> bool:
    """Whether one says a name that the other keeps to itself, unless it has the same meaning for both, as a short
    name of a namespace has also where one source knows it from a header; or that of a namespace that only the
    other one opens."""
    for x, y in ((a, b), (b, a)):
        if x.namespaces & y.outer:
            return True
        for name in x.private.keys() & y.words:
            mine = x.private[name]
            known = mine if mine.startswith("namespace ") else None
            if not mine or y.private.get(name, known) != mine:
                return True
    return False


def distribute(sources: list[Source], lines: int, count: int | None) -> list[list[Source]]:
    """The longest first, each to the shortest file that it fits, or to one of its own. Where there are to be
    `count` files, the last ones may be empty."""
    wanted = -(-sum(s.lines for s in sources) // lines)
    files: list[list[Source]] = [[] for _ in range(wanted if count is None else min(wanted, count))]
    for source in sorted(sources, key=lambda s: (-s.lines, s.name)):
        fitting = [f for f in files if not any(clash(source, other) for other in f)]
        if not fitting and len(files) == count:
            sys.exit(f"{source.name} shares a name with a source of every joined file: run cmake again")
        if not fitting:
            fitting = [[]]
            files += fitting
        min(fitting, key=lambda f: sum(s.lines for s in f)).append(source)
    return files + [[] for _ in range((count or 0) - len(files))]


def text_of(sources: list[Source]) -> str:
    sources = sorted(sources, key=lambda s: s.name)
    headers = dict.fromkeys(header for s in sources for header in s.headers)
    lines = [f"#include {header}" for header in headers] + [f'#include "{s.name}"' for s in sources]
    return "// Written by tools/join_sources.py.\n" + "\n".join(lines) + "\n"


def write(folder: pathlib.Path, root: pathlib.Path, lines: int, counts: list[int], paths: list[str]) -> None:
    sources = [Source(pathlib.Path(p), root) for p in paths]
    folder.mkdir(parents=True, exist_ok=True)
    numbers = []
    for kind, name in enumerate(("torch", "plain")):
        of_kind = [s for s in sources if s.torch == (name == "torch")]
        files = distribute(of_kind, lines, counts[kind] if counts else None)
        numbers.append(len(files))
        for i, joined in enumerate(files):
            file, text = folder / f"{name}_{i}.cc", text_of(joined)
            if not file.exists() or file.read_text() != text:
                file.write_text(text)
    if not counts:
        print(*numbers, sep=";", end="")


def main() -> None:
    at = sys.argv.index("--")
    command, *arguments = sys.argv[1:at]
    paths = sys.argv[at + 1:]
    if command == "write":
        folder, root, lines, *counts = arguments
        write(pathlib.Path(folder), pathlib.Path(root), int(lines), [int(c) for c in counts], paths)
    else:
        print(*(p for p in paths if reach(pathlib.Path(p), pathlib.Path(arguments[0]))[1]), sep=";", end="")


if __name__ == "__main__":
    main()
