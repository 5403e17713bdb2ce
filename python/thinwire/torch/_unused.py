"""Gives parameters that no rank used in a step what memories owe to them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from ._parameters import Parameter
from ._step import Step


def looks_for_unused(model: DistributedDataParallel) -> bool:
    return bool(model.find_unused_parameters and not model.static_graph)


def _lies_in(gradient: torch.Tensor, place: torch.Tensor) -> bool:
    """Whether it is the view of a bucket, which has the mean without being told (gradient_as_bucket_view)."""
    return not gradient.is_sparse and gradient.data_ptr() == place.data_ptr()


def hand_over(model: DistributedDataParallel, parameters: list[Parameter], step: Step) -> None:
    """DistributedDataParallel leaves the gradient of such a parameter as it was, though the mean has what was left out
    in earlier steps. Frozen parameters get nothing, nor does any in a skipped step, whose buckets may have NaN. Called when
    it has ended the backward pass; the same on every rank.

    Args:
        parameters: those that it averages, in its own order.
    """
    used = model.reducer._get_local_used_map()  # by then of all ranks together
    if used is None or used.numel() != len(parameters):
        return
    for index in (used == 0).nonzero().flatten().tolist():
        parameter = parameters[index].tensor
        gradient, mean = parameter.grad, step.mean_of(parameter)
        if step.skipped or not parameter.requires_grad:
            if gradient is not None and _lies_in(gradient, mean):
                gradient.zero_()
        elif not mean.any():
            continue
        elif gradient is None:
            parameter.grad = mean.clone()
        elif gradient.is_sparse:
            parameter.grad = mean.to_sparse(1)
        else:
            gradient.copy_(mean)
