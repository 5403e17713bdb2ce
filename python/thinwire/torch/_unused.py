"""Gives parameters that no rank used in a step what memories owe to them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.parallel import DistributedDataParallel

from ._parameters import Parameter


def looks_for_unused(model: DistributedDataParallel) -> bool:
    return bool(model.find_unused_parameters and not model.static_graph)


def hand_over(
    model: DistributedDataParallel, parameters: list[Parameter], mean_of: Callable[[torch.nn.Parameter], torch.Tensor]
) -> None:
    """DistributedDataParallel leaves the gradient of such a parameter as it was, though the mean has what was left out
    in earlier steps. Called when it has ended the backward pass; the same on every rank.

    Args:
        parameters: those that it averages, in its own order.
    """
    used = model.reducer._get_local_used_map()  # by then of all ranks together
    if used is None or used.numel() != len(parameters):
        return
    for index in (used == 0).nonzero().flatten().tolist():
        parameter = parameters[index].tensor
        mean = mean_of(parameter)
        if not parameter.requires_grad or not mean.any():
            continue
        if parameter.grad is None:
            parameter.grad = mean.clone()
        else:
            parameter.grad.copy_(mean)
