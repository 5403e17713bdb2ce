"""The parameters whose gradients DistributedDataParallel averages, and a check for other trained parameters."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import ContractError, UnsupportedError
from ._kinds import check_type
from ._parameters import Parameter, every_parameter, listed, plainly_named


class Unwatched:
    """What stands for it in a copy of the model, or a saved one, which has no link."""

    def __call__(self, *_: Any) -> None:
        pass


_Unwatched = Unwatched  # of models that were saved whole before it had this name


class Averaged:
    """What DistributedDataParallel found to be trained when it was made; what is frozen or replaced later it does
    not notice.

    Raises:
        ContractError: a parameter is trained that it does not know, so that ranks would drift apart.
        UnsupportedError: a parameter's type is none that gradients may have.
    """

    def __init__(self, model: DistributedDataParallel) -> None:
        # Weak, as all that is kept of modules: torch keeps the link as long as the model.
        self._model = weakref.ref(model)
        known = _known_to(model)
        self._ids = {id(tensor) for tensor in known}
        self.parameters: list[Parameter] = []
        self._others: list[tuple[str, nn.Parameter]] = []  # frozen when it was made
        self._layout: list[tuple[weakref.ref, list[int]]] = []
        found: set[int] = set()
        for one in every_parameter(model.module):
            if id(one.tensor) in self._ids and id(one.tensor) not in found:
                found.add(id(one.tensor))
                self.parameters.append(one)
        self._uncompiled = torch.compiler.disable(self._check)
        self._look()
        for one in self.parameters:
            check_type(one)
        if len(self.parameters) < len(self._ids):
            raise ContractError(
                f"compress: {len(self._ids) - len(self.parameters)} parameters were replaced since "
                "DistributedDataParallel was made, which averages those that were there then; replace them before"
            )
        self.parameters = plainly_named(self.parameters)
        self._types = [one.tensor.dtype for one in self.parameters]

    def __call__(self, *_: Any) -> None:
        """Before each forward pass: raises ContractError when a parameter is trained by now that is not averaged."""
        self._uncompiled()

    def __reduce__(self) -> tuple[type[Unwatched], tuple[()]]:
        return (Unwatched, ())

    def _check(self) -> None:
        if torch.is_grad_enabled():
            self._require_types()
        if torch.is_grad_enabled() and (any(tensor.requires_grad for _, tensor in self._others)
                                        or not self._is_as_it_was()):
            self._look()

    def _require_types(self) -> None:
        """Module.to changes parameters in their place, and DistributedDataParallel's buckets stay as they were."""
        for one, kind in zip(self.parameters, self._types):
            if one.tensor.dtype != kind:
                raise ContractError(
                    f"parameter '{one.name}' was of type {kind} when compress was called, and is of {one.tensor.dtype} now: "
                    "convert the model before DistributedDataParallel is made of it")

    def _is_as_it_was(self) -> bool:
        for owner, ids in self._layout:
            module = owner()
            if module is None or _ids_in(module) != ids:
                return False
        return True

    def _look(self) -> None:
        model = self._model()
        if model is None:
            return
        ignored = set(getattr(model, "parameters_to_ignore", ()))
        self._others = [(one.name, one.tensor) for one in every_parameter(model.module)
                        if id(one.tensor) not in self._ids and not ignored & {one.name, f".{one.name}"}]
        strangers = [name for name, tensor in self._others if tensor.requires_grad]
        if strangers:
            raise ContractError(
                f"DistributedDataParallel does not average {listed(strangers)}: what was frozen when it was made, or "
                "came to the model later, and is trained now would drift apart between ranks. Make it of the model "
                "with all that will ever be trained, and freeze afterwards (find_unused_parameters=True)"
            )
        # A number that another object has by now is that of a module that is gone, which its own entry shows.
        self._layout = [(weakref.ref(module), _ids_in(module)) for module in model.module.modules()]


def _known_to(model: DistributedDataParallel) -> list[nn.Parameter]:
    """The reducer's own list, where torch shows it: not with sparse gradients, for which it has no buckets yet."""
    try:
        buckets = model.reducer._get_zeros_like_grad_buckets()
        return [parameter for bucket in buckets for parameter in bucket.parameters()]
    except RuntimeError:
        pass
    ignored = set(model.parameters_to_ignore)
    whole = {id(one.tensor): one.tensor for one in every_parameter(model.module)
             if not ignored & {one.name, f".{one.name}"}}
    count = model._get_ddp_logging_data()["num_parameter_tensors"]
    for choice in (list(whole.values()), [tensor for tensor in whole.values() if tensor.requires_grad]):
        if len(choice) == count:
            return choice
    raise ContractError(
        f"compress: DistributedDataParallel averages {count} parameters, and "
        f"{sum(tensor.requires_grad for tensor in whole.values())} are trained. Which they are cannot be told where a "
        "gradient is sparse: freeze and unfreeze before DistributedDataParallel(model), or between compress and the "
        "first step"
    )


def _ids_in(module: nn.Module) -> list[int]:
    return [*map(id, module._parameters.values()), *map(id, module._modules.values())]
