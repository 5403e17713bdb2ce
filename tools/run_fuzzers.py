#!/usr/bin/env python3
"""Fuzzes every codec's decoder and round trip, frames, rounds, small models and messages of
boundaries, for some seconds each.

usage: run_fuzzers.py BUILD_FOLDER SECONDS

Corpora grow in BUILD_FOLDER/corpus, so that a second run goes on where the first ended. An input that
finds a bug is left in BUILD_FOLDER; add it to fuzz/corpus/<target>/ with the repair.
"""
import os
import pathlib
import subprocess
import sys


def jobs(build: pathlib.Path) -> list[tuple[str, list[str]]]:
    names = subprocess.run([build / "decode_fuzz", "--list"], capture_output=True, text=True,
                           check=True).stdout.split()
    per_codec = [(f"{target}-{name}", [str(build / f"{target}_fuzz"), f"--codec={name}"])
                 for target in ("decode", "roundtrip") for name in names]
    return per_codec + [(name, [str(build / f"{name}_fuzz")]) for name in ("frame", "rounds", "small", "boundary")]


def main() -> None:
    build, seconds = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])
    width = max(1, os.cpu_count() or 1)
    waiting, running, failed = jobs(build), [], []
    while waiting or running:
        while waiting and len(running) < width:
            name, command = waiting.pop(0)
            corpus = build / "corpus" / name
            if not corpus.exists():
                corpus.mkdir(parents=True)
                subprocess.run(command + [f"--seeds={corpus}"], check=True)
            log = open(build / f"{name}.log", "w")
            command += [f"-max_total_time={seconds}", "-timeout=10", "-max_len=8192",
                        f"-artifact_prefix={build}/{name}-", str(corpus)]
            running.append((name, subprocess.Popen(command, stderr=log, stdout=log, cwd=build)))
        name, process = running.pop(0)
        code = process.wait()
        runs = [line for line in (build / f"{name}.log").read_text(errors="replace").splitlines()
                if line.startswith("Done ")]
        print(f"{name:24} {'FAILED, see ' + name + '.log' if code else (runs or ['ok'])[-1]}",
              flush=True)
        failed += [name] * (code != 0)
    sys.exit(f"{len(failed)} failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
