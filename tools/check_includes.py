#!/usr/bin/env python3
"""Fails when a file uses a name of thinwire's headers and reaches the header by none of its own includes, or when a
header uses std::span without <span>.

The default build compiles sources of a library together, where one borrows the includes of another. A build that
compiles each by itself (a sanitizer, an installed package) would then stop.

usage: check_includes.py ROOT
"""
import collections
import pathlib
import re
import sys

FOLDERS = ("include", "src", "cli", "python", "tests", "bench", "fuzz", "examples")
IGNORED = re.compile(r'//.*|"(?:\\.|[^"\\\n])*"|\bTEST\(\w+')
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)
TYPE = re.compile(r"^(?:class|struct|enum class|enum)\s+(?:\[\[\w+\]\]\s+)?(\w+)[^;()]*(?:\{|$)", re.M)
ALIAS = re.compile(r"^using\s+(\w+)\s*=", re.M)
FUNCTION = re.compile(r"^(?!return|using|namespace|template|class|struct|enum|static_assert|#)"
                      r"[A-Za-z_][\w:<>,&*\s\[\]]*?[\s&*>](\w+)\(", re.M)
# Of a class, and what a file says is elsewhere.
MEMBER = re.compile(r"^[ ]+(?!return\b|else\b|throw\b|co_return\b)[A-Za-z_][\w:<>,&* ]*[ &*>](\w+)\(", re.M)
FORWARD = re.compile(r"^\s*(?:friend )?(?:class|struct|enum class)\s+(\w+)\s*[;:]", re.M)
LOCAL = re.compile(r"^\s+(?:const )?auto&* (\w+) =|(?:, |\()auto&+ (\w+)[,)]", re.M)
WORD = re.compile(r"(?<![\w.])(?<!->)(?<!std::)(\w+)(\s*\()?")


class File:
    def __init__(self, path: pathlib.Path) -> None:
        given = path.read_text()
        self.includes = INCLUDE.findall(given)
        text = IGNORED.sub(" ", given)
        self.types = set(TYPE.findall(text)) | set(ALIAS.findall(text))
        self.functions = set(FUNCTION.findall(text))
        self.members = set(MEMBER.findall(text))
        self.forward = set(FORWARD.findall(text))
        self.local = set().union(*LOCAL.findall(text))
        found = WORD.findall(text)
        self.words = {word for word, _ in found}
        self.called = {word for word, call in found if call}
        self.uses_span = re.search(r"\bstd::span\b", text) and "#include <span>" not in given


def check(root: pathlib.Path) -> list[str]:
    files = {path: File(path) for folder in FOLDERS for path in sorted((root / folder).rglob("*"))
             if path.suffix in (".h", ".cc")}
    errors = [f"{path.relative_to(root).as_posix()}: uses std::span and does not include <span>"
              for path, file in files.items() if path.suffix == ".h" and file.uses_span]

    def find(path: pathlib.Path, name: str) -> pathlib.Path | None:
        places = (path.parent, root / "include", root / "src", root / "tests", root, root / "python" / "src")
        return next((place / name for place in places if place / name in files), None)

    def reached(path: pathlib.Path) -> set[pathlib.Path]:
        seen, left = {path}, [path]
        while left:
            for name in files[at := left.pop()].includes:
                header = find(at, name)
                if header is not None and header not in seen:
                    seen.add(header)
                    left.append(header)
        return seen

    # Names of several words, which are those of one thing each, unless a class has a member of that name.
    types, functions = collections.defaultdict(set), collections.defaultdict(set)
    members = set().union(*(file.members for file in files.values()))
    for path, file in files.items():
        if path.suffix == ".h":
            for name in file.types:
                types[name].add(path)
            for name in file.functions - members:
                functions[name].add(path)
    for path, file in files.items():
        seen = reached(path)
        own = file.types | file.functions | file.local | set().union(*(files[one].forward for one in seen))
        for names, used in ((types, file.words), (functions, file.called)):
            for name in sorted((used & names.keys()) - own):
                if re.search(r"[a-z]_[a-z]|[a-z][A-Z]", name) and not names[name] & seen:
                    errors.append(f"{path.relative_to(root).as_posix()}: uses {name} and does not include "
                                  f"{min(names[name]).relative_to(root).as_posix()}")
    return errors


if __name__ == "__main__":
    found = check(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or "includes ok")
    sys.exit(bool(found))
