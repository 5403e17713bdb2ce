"""Checks of users' arguments where they are given: errors name the argument, its value and the allowed ones."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
import inspect
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional, TypeVar, Union, cast

import torch.distributed as dist

from .._core import groupings, known_names
from ..codec import Codec
from ..errors import BadOptionError, ContractError, UnknownNameError
from ._codec_text import with_option

_Function = TypeVar("_Function", bound=Callable[..., Any])

# What `compress` takes: codecs by pattern of names, or these with a memory, a method and a grouping.
Rules = Mapping[str, Union[str, Codec, Mapping[str, Union[str, Codec]]]]

GROUPINGS = tuple(groupings())
_MOMENTA = ("auto", "memory", "optimizer")
_OF_A_RULE = ("codec", "feedback", "method", "grouping")

_LARGEST_SEED = 2**64 - 1
_LARGEST = 2**31 - 1  # of what counts something
_LONGEST = 1e8  # seconds


def explains_keywords(function: _Function) -> _Function:
    """Has Python's errors about an unknown keyword, and about an argument that has none, say which was meant."""
    parameters = inspect.signature(function).parameters
    names = list(parameters)
    unnamed = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]

    @functools.wraps(function)
    def call(*positional: Any, **given: Any) -> Any:
        wrong = next((name for name in given if name not in names), None)
        if wrong is None and len(positional) <= len(unnamed):
            return function(*positional, **given)
        known, what = names, function.__name__
        if what == "__init__":  # of a class that may have more of its own
            kind = type(positional[0])
            known, what = [*inspect.signature(kind.__init__).parameters, *names], kind.__name__
        known = [name for name in dict.fromkeys(known) if name not in ("self", "common")]
        if wrong is not None:
            place = names.index("codec") if "codec" in names else len(positional)
            codec = positional[place] if place < len(positional) else given.get("codec")
            meant = with_option(codec, wrong, given[wrong])
            raise TypeError(f"{what}: no argument is named '{wrong}'; " + (
                f"options are part of the codec's text: \"{meant}\"" if meant else known_names(wrong, known)))
        more = positional[len(unnamed)]
        is_optimizer = "optimizer" in names and hasattr(more, "param_groups")
        by_name = ["optimizer"] if is_optimizer else [name for name in known if name not in unnamed]
        raise TypeError(f"{what}: only {' and '.join(name for name in unnamed if name != 'self')} may come without a name; give "
                        f"the {type(more).__name__} by name: {', '.join(f'{name}=' for name in by_name)}")

    return cast(_Function, call)


class Arguments:
    """Those of one call; `call` is what it is named in errors."""

    def __init__(self, call: str) -> None:
        self._call = call

    def refuse(self, name: str, value: Any, wanted: str) -> BadOptionError:
        return BadOptionError(f"{self._call}: {name} is {value!r}, must be {wanted}")

    def texts(self, **given: Any) -> None:
        for name, value in given.items():
            if not isinstance(value, str):
                raise self.refuse(name, value, "a text")

    def kind(self, name: str, value: Any, kind: type) -> None:
        if not isinstance(value, kind):
            raise ContractError(f"{self._call}: {name} is a {type(value).__name__}, must be a {kind.__name__}")

    def choice(self, name: str, value: Any, choices: Sequence[str]) -> None:
        self.texts(**{name: value})
        if value not in choices:
            raise UnknownNameError(f"{self._call}: {name} is '{value}'; {known_names(value, choices)}")

    def flags(self, **given: Any) -> None:
        for name, value in given.items():
            if not isinstance(value, bool):
                raise self.refuse(name, value, "True or False")

    def whole(self, least: int, most: int, **given: Any) -> None:
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not least <= value <= most:
                raise self.refuse(name, value, f"a whole number from {least} to {most}")

    def counts(self, least: int = 0, **given: Any) -> None:
        self.whole(least, _LARGEST, **given)

    def seed(self, seed: Any) -> None:
        self.whole(0, _LARGEST_SEED, seed=seed)

    def seconds(self, **given: Any) -> None:
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < value <= _LONGEST:
                raise self.refuse(name, value, "seconds, above 0")

    def weight(self, weight: Any) -> float:
        if isinstance(weight, bool) or not isinstance(weight, numbers.Real) or not 0 < weight < math.inf:
            raise self.refuse("weight", weight, "a number above 0; a rank that has nothing abstains")
        return float(weight)

    def shape(self, **given: Any) -> None:
        for name, value in given.items():
            if isinstance(value, str) or not isinstance(value, Sequence) or not all(
                    isinstance(extent, numbers.Integral) and extent > 0 for extent in value):
                raise self.refuse(name, value, "whole numbers above 0, as in [256, 14, 14]")

    def peer(self, name: str, rank: Any, group: Optional[dist.ProcessGroup]) -> None:
        """Another rank of the group."""
        if not dist.is_initialized():
            raise ContractError(f"{self._call}: {name} needs torch.distributed.init_process_group first")
        self.whole(0, dist.get_world_size(group) - 1, **{name: rank})
        if rank == dist.get_rank(group):
            raise ContractError(f"{self._call}: {name} is {rank}, which is this rank itself")

    def codec(self, codec: Any, name: str = "codec") -> str:
        """As text."""
        if isinstance(codec, Codec):
            return codec.spec
        if not isinstance(codec, str):
            raise self.refuse(name, codec, "a text, as in \"topk:density=0.01\", or a thinwire.Codec")
        return codec

    def optimizer(self, optimizer: Any) -> None:
        """One of torch, or another that has parameter groups; without its wrappers."""
        if optimizer is None or (not isinstance(optimizer, type)
                                 and isinstance(getattr(optimizer, "param_groups", None), list)):
            return
        if isinstance(optimizer, type):
            found = f"the class {optimizer.__name__}, must be an optimizer made of it, as {optimizer.__name__}(model.parameters(), ...)"
        elif isinstance(optimizer, (list, tuple)):
            found = (f"a {type(optimizer).__name__} of {len(optimizer)}, must be one optimizer: make one with a parameter group "
                     "for each, or give the one that steps most values, whose momentum alone then moves")
        else:
            found = f"a {type(optimizer).__name__}, must be the optimizer that steps the model's parameters"
        raise BadOptionError(f"{self._call}: optimizer is {found}; or None")

    def momentum(self, momentum: Any) -> None:
        if not isinstance(momentum, str):
            raise BadOptionError(f"{self._call}: momentum is {momentum!r}, of type {type(momentum).__name__}; it says where the "
                                 f"optimizer's own momentum acts; known: {', '.join(_MOMENTA)}")
        self.choice("momentum", momentum, _MOMENTA)

    def rules(self, rules: Any) -> dict[str, dict[str, str]]:
        """The settings of each pattern, with codecs as text."""
        if not isinstance(rules, Mapping) or not all(isinstance(pattern, str) for pattern in rules):
            raise self.refuse("rules", rules, 'codecs by pattern of names, as in {"*.bias": "fp32"}')
        return {pattern: self._rule(f"rules[{pattern!r}]", given) for pattern, given in rules.items()}

    def _rule(self, name: str, given: Any) -> dict[str, str]:
        if isinstance(given, (str, Codec)):
            return {"codec": self.codec(given)}
        if not isinstance(given, Mapping) or "codec" not in given:
            raise self.refuse(name, given, 'a codec, or settings, as in {"codec": "int8", "feedback": "ef21"}')
        for key in given:
            self.choice(f"the key of {name}", key, _OF_A_RULE)
        found = {**given, "codec": self.codec(given["codec"], f"{name}['codec']")}
        self.texts(**{f"{name}[{key!r}]": value for key, value in found.items()})
        self.choice(f"{name}['grouping']", found.get("grouping", "auto"), GROUPINGS)
        return found

    def steps_per_epoch(self, given: Any) -> int:
        """The number, also of what gives as many batches: a DataLoader. 0: not given."""
        if given is None:
            return 0
        if not isinstance(given, numbers.Integral) and hasattr(given, "__len__"):
            try:
                given = len(given)
            except TypeError:  # a DataLoader of a data set without a length
                pass
        try:
            self.counts(1, steps_per_epoch=given)
        except BadOptionError as error:
            raise BadOptionError(f"{error}, or a DataLoader with a length") from None
        return int(given)


def exchange_options(call: str, *, scaler: Optional[Any], deadline_seconds: Any, steps_per_epoch: Any,
                     **given: Any) -> dict[str, Any]:
    """What `compress` was given, as the engine takes it."""
    check = Arguments(call)
    check.texts(feedback=given["feedback"], method=given["method"], combine=given["combine"])
    check.choice("grouping", given["grouping"], GROUPINGS)
    check.counts(1, bucket_kb=given["bucket_kb"])
    check.whole(1, 2**15, inside=given["inside"])
    check.counts(max_skipped=given["max_skipped"])
    check.seed(given["seed"])
    check.flags(norms=given["norms"], weighted=given["weighted"])
    check.seconds(deadline_seconds=deadline_seconds)
    if scaler is not None and not hasattr(scaler, "get_scale"):
        raise check.refuse("scaler", scaler, "a torch.amp.GradScaler, or None")
    return {**given, "steps_per_epoch": check.steps_per_epoch(steps_per_epoch)}
