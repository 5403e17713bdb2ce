"""What writers of results pages share: where it was measured, and notes that stay."""
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTES = "\n## Notes\n"


def processor() -> str:
    with open("/proc/cpuinfo") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def commit() -> str:
    """That of the source tree."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip()


def commits(runs: list[dict]) -> str:
    """Those of the programs that made the runs."""
    found = sorted({run["commit"] for run in runs})
    return ("Commit: " if len(found) == 1 else "Commits: ") + ", ".join(found)


def write(page: pathlib.Path, lines: list[str]) -> None:
    """Writes the page anew, and leaves its notes as they are."""
    _, heading, notes = (page.read_text() if page.exists() else "").partition(NOTES)
    page.write_text("\n".join(lines).rstrip("\n") + "\n" + heading + notes)
