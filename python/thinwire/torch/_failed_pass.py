"""Refuses to go on with a sharded model when an error ended a backward pass, as scripts may that caught it."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn
from torch.utils.hooks import unserializable_hook

from ..errors import ContractError
from ._outputs import tensors_of_pass
from ._step import in_backward_pass


class FailedPass:
    """Its hooks are in the model's passes. FSDP2 itself has no error: it leaves gradients out in all later passes."""

    def __init__(self, model: nn.Module) -> None:
        self._task: Optional[int] = None  # autograd's number of the backward pass that has not ended
        # Before FSDP2 unshards.
        model.register_forward_pre_hook(torch.compiler.disable(self._require_ended), prepend=True)
        model.register_forward_hook(torch.compiler.disable(self._watch))

    def _require_ended(self, model: nn.Module, inputs: Any) -> None:
        # Checkpointing runs forward passes inside a backward pass.
        if self._task is not None and torch.is_grad_enabled() and not in_backward_pass():
            raise ContractError("a backward pass ended with an error, behind which FSDP2 leaves gradients out, so the link "
                                "ended; start again from the last checkpoint, with the link's state")

    def _watch(self, model: nn.Module, inputs: Any, output: Any) -> None:
        if torch.is_grad_enabled():
            for tensor in tensors_of_pass(output):
                tensor.register_hook(self._begin)

    @unserializable_hook  # an output that is saved says nothing of it
    def _begin(self, _: torch.Tensor) -> None:
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task = task
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        self._task = None
