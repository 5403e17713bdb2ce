"""A model's parameters as one vector, the form in which a local method works on them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import UnsupportedError
from ._kinds import REAL, check_type
from ._memory import device_of, staged
from ._parameters import Parameter


def _require_apart(parameters: Sequence[Parameter], caller: str) -> None:
    """Raises where two parameters share memory: in the vector they would be apart. Those with gaps in their memory are not
    looked at; of two that lie in the gaps of each other none is in the other's way."""
    found = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size(), one.name)
                   for one in parameters
                   if (tensor := one.tensor).numel() > 0 and torch.ops.aten.is_non_overlapping_and_dense(tensor))
    for (_, end, first), (begin, _, second) in zip(found, found[1:]):
        if begin < end:
            raise UnsupportedError(f"{caller}: parameters '{first}' and '{second}' share memory, and the method would give each "
                                   "its own; make one Parameter of both, as by b.weight = a.weight, or clone one of them")


class FlatParameters:
    """One float32 vector with the values of all parameters, one after another.

    It lies in CPU memory. Contiguous float32 parameters there are moved into it and are views from then on,
    so that nothing is copied in a step; others, those on a GPU, and those that somebody gives memory of their own again,
    are copied before and after.

    Args:
        caller: who asks, for errors.

    Raises:
        UnsupportedError: one is of another type than float32, bfloat16 and float16, or two share memory.
    """

    def __init__(self, parameters: Sequence[Parameter], caller: str) -> None:
        for one in parameters:
            check_type(one, caller, REAL)
        _require_apart(parameters, caller)
        device = device_of(((one.name, one.tensor) for one in parameters), caller)
        self._parameters = [one.tensor for one in parameters]
        self._known = {id(parameter) for parameter in self._parameters}
        self.values = staged(torch.empty(0, device=device), sum(p.numel() for p in self._parameters))
        self._views = self.split(self.values)
        for parameter, view in zip(self._parameters, self._views):
            view.copy_(parameter.detach())
            if parameter.dtype == torch.float32 and parameter.is_contiguous() and parameter.device.type == "cpu":
                parameter.data = view

    def split(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """The places of the parameters in a vector of this length."""
        sizes = [p.numel() for p in self._parameters]
        parts = vector.split(sizes) if sizes else ()
        return [part.view(p.shape) for part, p in zip(parts, self._parameters)]

    def gather(self) -> torch.Tensor:
        """The vector, with what the parameters are now."""
        for parameter, view in self._strangers():
            view.copy_(parameter.detach())
        return self.values

    def scatter(self) -> None:
        """The parameters become what the vector is."""
        for parameter, view in self._strangers():
            parameter.data.copy_(view)

    def gather_gradients(self, into: torch.Tensor) -> None:
        for parameter, place in zip(self._parameters, self.split(into)):
            if parameter.grad is None:
                place.zero_()
            else:
                place.copy_(parameter.grad)

    def scatter_gradients(self, vector: torch.Tensor) -> None:
        """Of parameters that have one: the inner optimiser leaves others alone, which are frozen or were not used."""
        for parameter, place in zip(self._parameters, self.split(vector)):
            if parameter.grad is not None:
                parameter.grad.copy_(place)

    def knows(self, parameter: torch.Tensor) -> bool:
        return id(parameter) in self._known

    def _strangers(self) -> list[tuple[torch.nn.Parameter, torch.Tensor]]:
        return [
            (parameter, view)
            for parameter, view in zip(self._parameters, self._views)
            if parameter.data_ptr() != view.data_ptr()
        ]
