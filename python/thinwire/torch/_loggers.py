"""Writers of a run's numbers: TensorBoard, Weights & Biases, and objects like theirs."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Callable, NamedTuple

from ..errors import ContractError
from ._warn import warn_user

Rows = Iterable[tuple[str, float]]  # names and numbers of one step


class Numbers(NamedTuple):
    """`Link.metrics` of a step."""

    step: int
    metrics: dict[str, Any]


class _Writer(NamedTuple):
    write: Callable[[dict[str, float], int], None]
    tag: str
    layers: bool


def _log(target: Any, row: dict[str, float]) -> None:
    """Beside what a script gives W&B itself: a row with a step of its own would be dropped where that is past, and one that
    ends W&B's step would make it past for the script's own steps. So a row joins the step that the script is at."""
    try:
        joins = "commit" in inspect.signature(target.log).parameters
    except (TypeError, ValueError):  # of a function that says nothing of itself
        joins = False
    target.log(row, commit=False) if joins else target.log(row)


def _writes_to(target: Any) -> Callable[[dict[str, float], int], None]:
    if callable(getattr(target, "add_scalar", None)):
        def scalars(row: dict[str, float], step: int) -> None:
            for name, value in row.items():
                target.add_scalar(name, value, step)
        return scalars
    if callable(getattr(target, "log", None)):
        return lambda row, step: _log(target, row)
    raise ContractError(
        f"log_to takes what has add_scalar(name, value, step), as TensorBoard's SummaryWriter, or log(dict), as "
        f"wandb or one of its runs, not a {type(target).__name__}"
    )


class Loggers:
    """All writers of one link or local optimiser. One that fails is a warning: training does not depend on it."""

    def __init__(self) -> None:
        self._writers: list[_Writer] = []
        self._failed: set[int] = set()  # of writers, those that were warned of

    def add(self, target: Any, tag: str, layers: bool = False) -> None:
        self._writers.append(_Writer(_writes_to(target), tag, layers))

    def __bool__(self) -> bool:
        return bool(self._writers)

    def write(self, step: int, rows: Callable[[bool], Rows]) -> None:
        """Writes what `rows(layers)` gives."""
        for index, writer in enumerate(self._writers):
            row = {f"{writer.tag}/{name}": float(value) for name, value in rows(writer.layers)}
            row[f"{writer.tag}/step"] = float(step)
            try:
                writer.write(row, step)
            except Exception as error:  # noqa: BLE001 - whatever a writer of somebody else's raises
                self._warn(index, step, error)

    def _warn(self, index: int, step: int, error: Exception) -> None:
        if index in self._failed:
            return
        self._failed.add(index)
        text = (f"log_to: the numbers of step {step} could not be written ({type(error).__name__}: {error}); "
                "training goes on, and further failures of this writer are not reported")
        try:
            warn_user(text)
        except Warning:  # where warnings are errors; there is nobody here to catch one
            print(f"thinwire: {text}")
