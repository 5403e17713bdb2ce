#!/usr/bin/env python3
"""Fails when a file includes a layer, or a third-party header, that it may not use, and when two types of
one namespace have the same name."""
import pathlib
import re
import sys

from type_names import defined_types

# Each layer and the layers it may include, besides itself and include/thinwire.
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
    "plan": {"core", "codec", "stream", "comm", "exchange", "sync", "pipeline"},
    "pipeline": {"core", "kernel", "codec", "feedback", "stream"},
    "shrink": {"core"},
    "train": {"core", "kernel", "codec", "feedback", "comm", "exchange", "sync", "pipeline", "shrink"},
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


def check(root: pathlib.Path) -> list[str]:
    errors = []
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
        for name in INCLUDE.findall(text):
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
