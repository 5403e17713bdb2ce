"""Reads the weights of the trainer's checkpoints as NumPy arrays, small ones too."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _core
from ._state import StateArray, read_state, write_state
from .errors import BadLengthError, BadOptionError, CorruptError, IoError, UnsupportedError

_DTYPES = ("<f4", "<f8", "<i8", "u1")  # in the order of StateType
_SMALL = re.compile(r"model-(\d{3})\.small")
_CHECKPOINT = re.compile(r"checkpoint-\d+")
_EXACT = "model.safetensors"
# Names of weights, and of all files of runs and checkpoints (src/train/output_file.cc has the same).
_WEIGHTS = re.compile(r"model\.safetensors|model-\d{3}\.small")
_SAVED = re.compile(
    rf"{_WEIGHTS.pattern}|{_CHECKPOINT.pattern}|progress\.json|optimizer\.(safetensors|small)|recipe\.toml"
    r"|metrics\.jsonl|summary\.json|decisions\.txt|log\.txt|state-rank-.*\.safetensors|.*tfevents.*"
)
_MAGIC = b"TWSM"  # of a small model
_MANIFEST = "progress.json"
_FORMAT = ("thinwire checkpoint", 2)  # of a manifest, with its version

Marks = dict[str, tuple[int, int]]  # sizes and checksums of files


def expand_checkpoint(
    path: Union[str, "os.PathLike[str]"], to: Optional[Union[str, "os.PathLike[str]"]] = None
) -> dict[str, npt.NDArray[Any]]:
    """Returns the weights of a checkpoint by name.

    Args:
        path: a run's folder (its model.safetensors, else its newest checkpoint), a checkpoint's folder, or a file in
            it: model.safetensors or model-003.small, which needs the files before it. A small model that stands alone
            may have another name. Where a checkpoint's folder has progress.json, its files are compared with that.
        to: a file to write them to as well, in safetensors format. In a run's or a checkpoint's folder it needs a
            name that is not one of their files', such as weights.safetensors.

    Raises:
        IoError: there is no such file, or `to` cannot be written.
        BadOptionError: `to` would take the place of a file of a run or a checkpoint, or be read in its place.
        BadLengthError, CorruptError, MismatchError, UnsupportedError: a file is damaged, does not fit the one before
            it, is of another version, or has a shape that NumPy cannot hold. The text names it.
    """
    if to is not None:
        _protect_saved_files(pathlib.Path(to))
    file, marks = _find(pathlib.Path(path))
    if to is not None and pathlib.Path(to).exists() and os.path.samefile(file, to):
        raise BadOptionError(f"{to}: is the file that is read, and would be lost; choose another name")
    arrays = _read(file, marks)
    weights = {array[0]: _to_numpy(file, array) for array in arrays}
    if to is not None:
        _replace(pathlib.Path(to), write_state(arrays))
    return weights


def _to_numpy(file: pathlib.Path, array: StateArray) -> npt.NDArray[Any]:
    name, dtype, _, shape, data = array
    try:
        return np.ndarray(tuple(shape), _DTYPES[dtype], data).copy()
    except ValueError as error:
        raise CorruptError(f"{file}: array '{name}' has a shape that NumPy cannot hold: {error}") from None


def _protect_saved_files(to: pathlib.Path) -> None:
    """Refuses a path where a file would take the place of one of a run or a checkpoint, or be read in its place."""
    folder = to.absolute().parent
    if not folder.is_dir():
        return
    run = _is_run(folder)
    signals = folder.name == "signals" and _is_run(folder.parent)
    checkpoint = any(
        name in ("progress.json", "optimizer.safetensors") or _SMALL.fullmatch(name)
        for name in (entry.name for entry in folder.iterdir())
    )
    if not signals and not (_SAVED.fullmatch(to.name) and (run or checkpoint)):
        return
    if _WEIGHTS.fullmatch(to.name) and not to.exists():
        hidden = "run's checkpoints" if run else "checkpoint"
        raise BadOptionError(
            f"{to}: would be read in the place of the {hidden} in that folder; choose another name, such as "
            "weights.safetensors, or another folder"
        )
    owner = "run" if run or signals else "checkpoint"
    raise BadOptionError(
        f"{to}: has the name of a file of the {owner} in that folder, and would take its place; choose another name "
        "or another folder"
    )


def _is_run(folder: pathlib.Path) -> bool:
    return any(entry.name == "metrics.jsonl" or _CHECKPOINT.fullmatch(entry.name) for entry in folder.iterdir())


def _replace(to: pathlib.Path, content: bytes) -> None:
    """Writes under a temporary name first, so that the path has either its old content or the whole of this one."""
    growing = to.with_name(to.name + ".tmp")
    try:
        with open(growing, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(growing, to)
    except OSError as error:
        with contextlib.suppress(OSError):
            growing.unlink()
        raise IoError(f"{to}: cannot be written: {error.strerror}") from None


def _find(path: pathlib.Path) -> tuple[pathlib.Path, Marks]:
    """The file with the weights, and what a manifest beside it says of it and of those that it follows."""
    if not path.is_dir():
        return path, _marks(path.parent) if path.name == _EXACT else {}
    marks = _marks(path)
    if marks:
        return path / max(marks), marks
    if (path / _EXACT).exists():
        return path / _EXACT, {}
    small = sorted(file for file in path.iterdir() if _SMALL.fullmatch(file.name))
    if small:
        return small[-1], {}
    checkpoints = sorted(folder for folder in path.iterdir() if _CHECKPOINT.fullmatch(folder.name))
    if not checkpoints:
        raise IoError(f"{path}: holds neither weights nor a checkpoint")
    return _find(checkpoints[-1])


def _marks(folder: pathlib.Path) -> Marks:
    """Of the files with the weights: a whole chain, or the exact one. Empty if the folder has no manifest."""
    path = folder / _MANIFEST
    if not path.exists():
        return {}
    try:
        manifest = json.loads(_content(path))
        form = (manifest["format"], manifest["version"])
        marks = {
            name: (int(file["bytes"]), int(file["xxh3"], 16))
            for name, file in manifest["files"].items()
            if name == _EXACT or _SMALL.fullmatch(name)
        }
        length = manifest["small"]["follows"] + 1 if "small" in manifest else 0
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise CorruptError(f"{path}: truncated or foreign") from None
    if form != _FORMAT:
        wrong = UnsupportedError if form[0] == _FORMAT[0] else CorruptError
        raise wrong(f"{path}: of another program, or another version of thinwire")
    chain = [f"model-{place:03}.small" for place in range(len(marks))]
    if sorted(marks) != (chain if length else [_EXACT]) or length not in (0, len(marks)):
        raise CorruptError(f"{path}: damaged: it does not list the files of a checkpoint")
    return marks


def _read(path: pathlib.Path, marks: Marks) -> list[StateArray]:
    own = _content(path, marks)
    is_small = own[:4] == _MAGIC
    if not is_small and path.suffix != ".small":
        return read_state(str(path), own)
    place = _SMALL.fullmatch(path.name)
    alone = is_small and own[8:16] == bytes(8)
    earlier = range(int(place[1])) if place and not alone else range(0)
    before = [path.with_name(f"model-{number:03}.small") for number in earlier]
    files = [(str(file), _content(file, marks)) for file in before]
    return list(_core.expand_small_model([*files, (str(path), own)]))


def _content(path: pathlib.Path, marks: Optional[Marks] = None) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise IoError(f"{path}: cannot be read: {error.strerror}") from None
    if marks and path.name in marks:
        size, checksum = marks[path.name]
        if len(content) != size:
            raise BadLengthError(f"{path}: truncated or foreign: {len(content)} bytes, not {size}")
        if _core.file_checksum(content) != checksum:
            raise CorruptError(f"{path}: damaged: its checksum is wrong")
    return content
