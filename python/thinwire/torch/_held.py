"""The parameters that the inner optimiser of a local method holds: those of the model, and no others."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref

import torch
from torch import nn

from ..errors import ContractError


class Held:
    """Raises where the optimiser steps what is not the model's: workers would never talk about it."""

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        names = {id(tensor): name for name, tensor in model.named_parameters(remove_duplicate=False)}
        held = [(f"parameter {place} of group {index}", tensor)
                for index, group in enumerate(optimizer.param_groups)
                for place, tensor in enumerate(group["params"])]
        strangers = [(where, tensor) for where, tensor in held if id(tensor) not in names]
        if strangers:
            where, tensor = strangers[0]
            raise ContractError(
                f"{len(strangers)} of the optimiser's {len(held)} parameters are not the model's, the first is "
                f"{where}, of shape {list(tensor.shape)}: workers would never agree on them; build the optimiser "
                "over the parameters that this model has now"
            )
        self._model = weakref.ref(model)
        self._known = {id(tensor): (tensor, tensor.dtype) for tensor in model.parameters()}
        self._frozen = [(names[id(tensor)], tensor) for _, tensor in held if not tensor.requires_grad]

    def check(self) -> None:
        """Raises where a parameter is trained by now that was frozen when workers said what they talk about, or is
        another one, or of another type. Its name may be another: wrappers add to names."""
        model = self._model()
        for name, tensor in () if model is None else model.named_parameters():
            _, kind = self._known.get(id(tensor), (None, None))
            if kind is None:
                raise ContractError(
                    f"parameter '{name}' is not the one that the model had when the local method was built, as "
                    "load_state_dict(assign=True) leaves it: workers would never agree on it; build optimiser and "
                    "local method anew"
                )
            if tensor.dtype != kind:
                raise ContractError(
                    f"parameter '{name}' was of type {kind} when the local method was built, and is of {tensor.dtype} now: "
                    "convert the model before"
                )
        for name, tensor in self._frozen:
            if tensor.requires_grad:
                raise ContractError(
                    f"parameter '{name}' was frozen when the local method was built, and is trained now: workers "
                    "would never agree on it; unfreeze it before, or build the local method anew"
                )
