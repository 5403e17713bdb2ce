#!/usr/bin/env python3
"""Fails when a file includes a layer, a folder of its layer, or a third-party header, that it may not use, when
the tables of what may be included have a circle, and when two types of one namespace have the same name."""
import pathlib
import re
import sys

from type_names import defined_types

# Each layer and the layers it may include, besides itself and include/thinwire: only some that stand before it, so
# that there is no circle.
MAY_INCLUDE = {
    "core": set(),
    "kernel": {"core"},
    "device": {"core", "kernel"},
    "codec": {"core", "kernel", "device"},
    "feedback": {"core", "kernel", "device"},
    "comm": {"core"},
    "stream": {"core", "kernel", "codec", "feedback"},
    "exchange": {"core", "kernel", "device", "codec", "feedback", "stream", "comm"},
    "sync": {"core", "kernel", "codec", "feedback", "stream", "comm", "exchange"},
    "pipeline": {"core", "kernel", "codec", "feedback", "stream"},
    "plan": {"core", "codec", "stream", "comm", "exchange", "sync", "pipeline"},
    "shrink": {"core"},
    "train": {"core", "kernel", "codec", "feedback", "comm", "exchange", "sync", "pipeline", "shrink"},
}
# Of a layer that is built up in folders: each folder and the folders of this layer it may include, besides itself;
# again only some that stand before it. A test may include all that stand before its folder, and `testing`, which
# includes all and which tests alone include.
FOLDERS = {
    "exchange": {
        "layout": set(),
        "rules": set(),
        "state": {"layout"},
        "step": {"layout"},
        "wire": {"layout", "rules", "state", "step"},
        "owner": {"layout", "rules", "state", "step", "wire"},
        "faulty": {"rules", "step"},
        "methods": {"layout", "rules", "state", "step", "wire", "owner", "faulty"},
        "terms": {"layout", "rules", "wire", "methods"},
        "runner": {"layout", "rules", "state", "step", "wire", "owner", "faulty", "methods", "terms"},
        "levels": {"layout", "state", "step", "wire", "owner", "methods", "terms", "runner"},
        "members": set(),
        "engine": {"layout", "rules", "state", "step", "terms", "runner", "levels", "members"},
    },
}
# Each third-party include prefix and the only folders that may name it.
CONFINED = {
    "hwy/": ("src/kernel/",),
    "dlfcn.h": ("src/device/cuda/",),
    "Random123/": ("src/core/",),
    "xxhash.h": ("src/core/",),
    "boost/math": ("src/codec/",),
    "mpi.h": ("src/comm/mpi/",),
    "torch/": ("src/comm/c10d/", "src/train/", "python/torch/", "include/thinwire/torch.h",
               "include/thinwire/c10d.h"),
    "ATen/": ("src/comm/c10d/", "src/train/", "python/torch/", "include/thinwire/torch.h"),
    "nlohmann/": ("src/train/", "cli/"),
    "zlib.h": ("src/train/data/",),
    "lzma.h": ("src/train/data/",),
    "sndfile": ("src/train/data/",),
    "openssl/": ("src/train/data/",),
    "CLI/": ("cli/",),
    "toml++/": ("cli/",),
    "spdlog/": ("cli/",),
    "nanobind/": ("python/src/",),
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
TEST = re.compile(r"_(test|bench|fuzz)\.cc$")


def order_errors(table: dict[str, set[str]]) -> list[str]:
    """Rows that may include what does not stand before them. A table without such rows has no circle."""
    errors = []
    before = set()
    for name, below in table.items():
        errors += [f"check_layers.py: {name} may include {other}, which does not stand before it"
                   for other in sorted(below - before)]
        before.add(name)
    return errors


def folder_errors(here: str, included: list[str]) -> list[str]:
    """What a file of a layer with folders includes of this layer and may not."""
    _, layer, folder, *file = here.split("/")
    order = list(FOLDERS[layer])
    if not file or folder not in (*order, "testing"):
        return [f"{here}: not in a folder of {layer} that FOLDERS has"]
    if folder == "testing":
        return []
    allowed = {folder, *FOLDERS[layer][folder]}
    if TEST.search(here):
        allowed = {"testing", folder, *order[:order.index(folder)]}
    return [f"{here}: {layer}/{folder} may not include {name}" for name in included
            if name.startswith(f"{layer}/") and name.split("/")[1] not in allowed]


def check(root: pathlib.Path) -> list[str]:
    errors = [error for table in (MAY_INCLUDE, *FOLDERS.values()) for error in order_errors(table)]
    names = {}
    types = {}  # where each was defined first
    folders = ("src", "include", "cli", "python", "examples")
    files = [p for d in folders for p in (root / d).rglob("*") if p.suffix in {".h", ".cc"}]
    for file in sorted(files):
        here = file.relative_to(root).as_posix()
        part = here.split("/")
        layer = part[1] if part[0] == "src" else ""
        public = part[0] in ("cli", "python", "examples", "include")
        if part[0] == "src" and file.name in names:
            errors.append(f"{here}: {names[file.name]} has the same name")
        names[file.name] = here
        text = file.read_text()
        # Examples are programs of one file each.
        for namespace, name, line in defined_types(text) if part[0] != "examples" else ():
            place = types.setdefault((namespace, name), f"{here}:{line}")
            if place != f"{here}:{line}":
                whole = f"{namespace}::{name}" if namespace else name
                errors.append(f"{here}:{line}: {whole} is defined in {place} too")
        included = INCLUDE.findall(text)
        if layer in FOLDERS:
            errors += folder_errors(here, included)
        for name in included:
            other = name.split("/")[0] if "/" in name else ""
            if other in MAY_INCLUDE and public:
                errors.append(f"{here}: sees only include/thinwire, not {name}")
            elif other in MAY_INCLUDE and other != layer and other not in MAY_INCLUDE[layer]:
                errors.append(f"{here}: {layer} may not include {name}")
            for prefix, homes in CONFINED.items():
                if name.startswith(prefix) and not here.startswith(homes):
                    if "_test." not in here and part[0] != "examples":
                        errors.append(f"{here}: {prefix} belongs in {' or '.join(homes)}")
    return errors


if __name__ == "__main__":
    found = check(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or "layers ok")
    sys.exit(bool(found))
