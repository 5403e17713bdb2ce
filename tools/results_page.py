"""What writers of results pages share: where it was measured, and what people wrote on a page, which stays."""
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTES = "\n## Notes\n"
QUESTION = "**Question.** "  # begins the paragraph below the title: the question that the page answers, and the answer


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


def machines(runs: list[dict]) -> str:
    """Those that made the runs, as the runs' summaries name them: processor, cores, and the GPU if one computed."""
    found = sorted({f"{run['processor']}, {run['cores']} cores" + (f", {run['gpu']}" if run.get("gpu") else "")
                    for run in runs})
    return ("Processor: " if len(found) == 1 else "Processors: ") + "; ".join(found)


def gpu() -> str:
    """The first GPU of this machine."""
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    except OSError:
        return "a GPU"
    return asked.stdout.strip().splitlines()[0] if asked.returncode == 0 and asked.stdout.strip() else "a GPU"


def write(page: pathlib.Path, lines: list[str]) -> None:
    """Writes the page anew, title first, and leaves its question with the answer and its notes as they are."""
    figures, heading, notes = (page.read_text() if page.exists() else "").partition(NOTES)
    below = figures.split("\n\n")[1:2]
    question = ["", below[0].rstrip("\n")] if below and below[0].startswith(QUESTION) else []
    page.write_text("\n".join([lines[0], *question, *lines[1:]]).rstrip("\n") + "\n" + heading + notes)
