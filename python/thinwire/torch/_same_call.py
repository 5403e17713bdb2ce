"""What a rank says of its call before a sum: all ranks read what all say, so that they raise the same errors."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Optional

import torch

from .. import errors
from ..errors import CorruptError, MismatchError

HEAD_LIMIT = 1 << 20  # bytes

_LONGEST = 2000  # characters of a problem
_MUST_AGREE = ("index", "call", "of", "arguments", "step", "shape", "dtype")  # the first that differs explains the others


def head_of(said: dict[str, Any], size: int, problem: Optional[Exception]) -> torch.Tensor:
    """As bytes.

    Args:
        said: index, call, of, arguments, step, and without a problem also shape and dtype.
        size: bytes of the message.
        problem: why there is none.
    """
    head = {**said, "size": size}
    if problem is not None:
        head["problem"] = [type(problem).__name__, str(problem)[:_LONGEST]]
    return torch.frombuffer(bytearray(json.dumps(head).encode()), dtype=torch.uint8)


def require_same(heads: Sequence[torch.Tensor], limit: int, own_problem: Optional[Exception]) -> list[int]:
    """The sizes of the messages.

    Raises:
        thinwire.errors.Error: a rank has a problem, or ranks differ. All ranks raise the same.
    """
    said = [_read(rank, head) for rank, head in enumerate(heads)]
    where = f"TensorParallel {said[0]['index']}: call {said[0]['call']}, a sum of {said[0]['of']}"
    for rank, one in enumerate(said):
        if "problem" in one:
            name, text = one["problem"]
            raise _class_named(name)(f"{where}: rank {rank}: {text}") from own_problem
    for key in _MUST_AGREE:
        _require_one(where, key, [one[key] for one in said])
    for rank, one in enumerate(said):
        if not 0 <= one["size"] <= limit:
            raise CorruptError(f"{where}: rank {rank} announces {one['size']} bytes where at most {limit} are possible")
    return [one["size"] for one in said]


def _read(rank: int, head: torch.Tensor) -> dict[str, Any]:
    try:
        said = json.loads(head.numpy().tobytes())
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"TensorParallel: what rank {rank} says of its call cannot be read: {error}") from None
    whole = isinstance(said, dict) and all(type(said.get(key)) is int for key in ("index", "call", "step", "size"))
    if whole and "problem" in said:
        problem = said["problem"]
        whole = isinstance(problem, list) and len(problem) == 2 and all(isinstance(one, str) for one in problem)
    elif whole:
        whole = all(key in said for key in _MUST_AGREE)
    if not whole or not isinstance(said.get("of"), str):
        raise CorruptError(f"TensorParallel: what rank {rank} says of its call lacks an entry, or has one of a wrong type")
    return said


def _class_named(name: str) -> type[errors.Error]:
    """Error itself for what is none of thinwire's."""
    found = getattr(errors, name, None)
    return found if isinstance(found, type) and issubclass(found, errors.Error) else errors.Error


def _require_one(where: str, key: str, values: Sequence[Any]) -> None:
    ranks: dict[str, list[str]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(str(value), []).append(str(rank))
    if len(ranks) > 1:
        found = "; ".join(f"{value} on rank{'s' * (len(those) > 1)} {', '.join(those)}" for value, those in ranks.items())
        raise MismatchError(f"{where}: ranks differ in '{key}': {found}; all ranks must make the same calls in the same order")
