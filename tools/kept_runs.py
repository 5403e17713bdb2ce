"""Results of studies' runs: docs/results/runs/STUDY.jsonl has a line for each run, sorted by the runs' names.

A line is the run's summary (study.py says what is in it) with its name as `run` before it.
"""
import json
import os
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs/results/runs"


def read(file: pathlib.Path) -> dict[str, dict]:
    """{name: summary}, sorted by name; empty without the file."""
    found: dict[str, dict] = {}
    for number, line in enumerate(file.read_text().splitlines() if file.exists() else [], 1):
        try:
            summary = json.loads(line)
            name = summary.pop("run")
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{file}, line {number}: not the summary of a run ({error!r})") from error
        if name in found:
            raise ValueError(f"{file}, line {number}: a second line of run {name}")
        found[name] = summary
    return dict(sorted(found.items()))


def put(file: pathlib.Path, name: str, summary: dict) -> None:
    """Adds the run, or replaces it. Whoever stops this leaves the file as it was."""
    runs = dict(sorted({**read(file), name: summary}.items()))
    file.parent.mkdir(parents=True, exist_ok=True)
    made = file.with_suffix(".new")
    made.write_text("".join(json.dumps({"run": name, **runs[name]}) + "\n" for name in runs))
    os.replace(made, file)


def unpack(file: pathlib.Path, folder: pathlib.Path) -> None:
    """Each run as FOLDER/NAME.json, as `thinwire sweep --kept FOLDER` reads them, and no other files there."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    for name, summary in read(file).items():
        (folder / f"{name}.json").write_text(json.dumps(summary, indent=1) + "\n")
