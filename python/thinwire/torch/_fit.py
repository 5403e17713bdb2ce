"""Checks whether a saved state belongs to this model, these codecs and these memories."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import MismatchError
from ._names import stream_of

_Array = tuple[Any, ...]  # name, type, on_resize, shape, bytes
_Shapes = dict[str, list[int]]  # by name
_Shared = Mapping[str, Sequence[str]]  # tensors by the stream that they form


class Unfit(NamedTuple):
    """What `load_state_dict(..., strict=False)` left out."""

    missing_keys: list[str]  # of the model, not in the state
    unexpected_keys: list[str]  # the other way round
    mismatched_keys: list[str]  # of another shape


def memories(shapes: Iterable[tuple[str, Sequence[int]]]) -> _Shapes:
    """What feedback keeps, of all that is saved."""
    return {name: list(shape) for name, shape in shapes if name.rsplit("/", 2)[1] == "feedback"}


def memories_in(arrays: Sequence[_Array]) -> _Shapes:
    return memories((array[0], array[3]) for array in arrays)


def remembered(shapes: _Shapes) -> _Shapes:
    """The streams of memories as if they were tensors."""
    streams: _Shapes = {}
    for name, shape in shapes.items():
        streams.setdefault(stream_of(name), shape)
    return streams


def _text(shapes: _Shapes, name: str) -> str:
    return str(shapes[name]) if name in shapes else "none"


class Fit:
    """Finds what does not fit."""

    def __init__(self) -> None:
        self.unfit = Unfit([], [], [])
        self._lines: list[str] = []
        self._bad: set[str] = set()  # tensors and streams

    def compare(self, saved: _Shapes, own: _Shapes) -> None:
        """Tensors of a codec by name."""
        missing = [name for name in own if name not in saved]
        unexpected = [name for name in saved if name not in own]
        mismatched = [name for name in own if name in saved and list(own[name]) != list(saved[name])]
        self.unfit.missing_keys.extend(missing)
        self.unfit.unexpected_keys.extend(unexpected)
        self.unfit.mismatched_keys.extend(mismatched)
        self._lines += [f"size mismatch for {name}: {list(saved[name])} in the state, {list(own[name])} here"
                        for name in mismatched]
        self._bad.update(missing, unexpected, mismatched)

    def compare_shared(self, saved: _Shared, own: _Shared) -> None:
        """The tensors of streams, once tensors were compared."""
        for stream, tensors in saved.items():
            here = own.get(stream, ())
            if list(tensors) == list(here) and not self._bad.intersection(tensors):
                continue
            if not self._bad.intersection((*tensors, *here)):
                self._lines.append(f"'{stream}' is shared by other tensors, or in another order: "
                                   f"{', '.join(tensors)} in the state, {', '.join(here) or 'none'} here")
            self._bad.add(stream)

    def kept(self, arrays: Sequence[_Array], own: _Shapes) -> list[_Array]:
        """The arrays that fit, where memories that are there would save `own`."""
        saved = memories_in(arrays)
        for name in dict.fromkeys((*own, *saved)):
            stream = stream_of(name)
            if stream in self._bad or own.get(name) == saved.get(name):
                continue
            self._bad.add(stream)
            self._lines.append(f"memory '{name}': {_text(saved, name)} in the state, {_text(own, name)} here")
        return [array for array in arrays if stream_of(array[0]) not in self._bad]

    def require(self, way_out: str = "") -> None:
        lines = [f"{what}: {', '.join(names)}" for what, names in
                 (("missing in the state", self.unfit.missing_keys),
                  ("unexpected in the state", self.unfit.unexpected_keys)) if names]
        lines += self._lines
        if lines:
            raise MismatchError("\n    ".join(["the state does not fit the model:", *lines]) + way_out)
