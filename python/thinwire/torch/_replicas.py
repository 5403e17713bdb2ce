"""The link between the replicas of a sharded model: FSDP2 averages inside a replica, thinwire between them."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import zlib
from typing import Any, NamedTuple, Optional

import torch
from torch import nn

from ..errors import ContractError, MismatchError, UnsupportedError
from ._link import Link
from ._memory import on_host
from ._outputs import tensors_of_pass
from ._parameters import as_part_of, local_part
from ._scale import put_scaled, without_scale
from ._sharded import (
    any_on_any_rank, grid_of, require_known, require_no_offload, sharded_modules, sharded_parameters)
from ._step import in_backward_pass


class _Step:
    """One backward pass.

    Args:
        task: its number, as autograd has it.
    """

    def __init__(self, task: int) -> None:
        self.task = task
        self.begun = False  # a module has given its gradients to thinwire
        self.scale: Optional[float] = None
        self.before: dict[int, torch.Tensor] = {}  # gradients that were there, by the parameter's id
        self.given: dict[int, torch.Tensor] = {}  # shards of gradients, in which means will be
        self.exchanged: dict[int, torch.Tensor] = {}  # what the exchange has of them, without their scale


class ReplicasLink(Link):
    """That of a model sharded by fully_shard on the inner dimension of a mesh.

    FSDP2 calls the all-reduce hook of a module when it has reduced the gradients of the module's parameters to this
    rank's shards, and then, for each parameter that got one, its hook for accumulated gradients. A shard's memory is
    then given to the exchange, which puts the mean into it while the backward pass goes on.
    """

    def __init__(
        self,
        model: nn.Module,
        replicate: Any,
        options: dict[str, Any],
        deadline_seconds: float,
        scaler: Optional[torch.amp.GradScaler],
        optimizer: Optional[torch.optim.Optimizer],
        momentum: str,
    ) -> None:
        parameters = sharded_parameters(model)
        require_no_offload(parameters)
        self._grid = grid_of(parameters, replicate)
        super().__init__(self._grid.world, parameters, {**options, "columns": self._grid.shards}, deadline_seconds,
                         scaler, optimizer, momentum, averaging=self._grid.replicas)
        self._require_equal_replicas()
        self._names = {id(one.tensor): one.name for one in parameters}
        for module in sharded_modules(model):
            module.set_all_reduce_hook(self._before_accumulation)
        for one in parameters:
            one.tensor.register_post_accumulate_grad_hook(self._take)
        model.register_forward_pre_hook(self._look, prepend=True)  # before FSDP2 unshards
        model.register_forward_hook(self._watch_backward)

    def _require_equal_replicas(self) -> None:
        """fully_shard hands no values out, so that replicas start with what each of them made."""
        sums = [zlib.crc32(on_host(local_part(one.tensor)).contiguous().view(torch.uint8).numpy()) for one in self._parameters]
        told = [text.split() for text in self._exchange.tell_all(" ".join(map(str, sums)))]
        for rank, own in enumerate(told):
            first = told[rank % self._grid.shards]
            for one, a, b in zip(self._parameters, first, own):
                if a != b:
                    raise MismatchError(
                        f"compress: parameter '{one.name}' of rank {rank} is not that of rank "
                        f"{rank % self._grid.shards}, which has the same shard: replicas start with the same values; "
                        "set the same seed on all ranks, or load the same checkpoint, before fully_shard")

    def _look(self, module: nn.Module, inputs: Any) -> None:
        if torch.is_grad_enabled():
            if self._step is not None and not in_backward_pass():
                self._error = self._error or ContractError("a backward pass ended with an error")
            self._require_going_on()
            require_known(module, {*self._names})

    # At the outermost backward pass: re-entrant checkpointing has others inside, whose ends come earlier.
    def _watch_backward(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if torch.is_grad_enabled():
            for tensor in tensors_of_pass(output):
                tensor.register_hook(self._begin)

    def _begin(self, _: Optional[torch.Tensor] = None) -> None:
        task = torch._C._current_graph_task_id()
        if self._step is not None and self._step.task == task:
            return
        if self._step is not None and self._step.begun:
            self._error = self._error or ContractError(
                "a backward pass ended with an error when gradients were already on their way; start again "
                "from a checkpoint")
        if self._error is not None:
            raise self._error.with_traceback(None)
        self._step = _Step(task)
        torch.autograd.Variable._execution_engine.queue_callback(self._end)

    # Called by FSDP2 with what it has reduced, before it adds that to gradients that are there. They must not be in
    # what is averaged: earlier steps have averaged them.
    def _before_accumulation(self, _: torch.Tensor) -> None:
        if self._step is None:
            self._begin()
        step = self._step
        assert step is not None
        if step.begun:
            return
        self._tell_of_means_thrown_away()
        step.scale = self._begin_exchange()
        step.begun = True
        for one in self._parameters:
            if one.tensor.grad is not None:
                step.before[id(one.tensor)] = one.tensor.grad
                one.tensor.grad = None

    def _tell_of_means_thrown_away(self) -> None:
        """Gradients of this pass are not in .grad yet. What is there is not exchanged again."""
        if self._looks_at_passes() and not (self._skips or self._abstains) and self._brought.is_thrown_away():
            self._brought.tell_of_unused()

    def _take(self, parameter: nn.Parameter) -> None:
        step = self._step
        if step is None or not step.begun:
            raise ContractError(f"parameter '{self._names[id(parameter)]}' got a gradient that FSDP2 has not reduced; "
                                "a link takes those of backward passes of the model")
        if id(parameter) in step.given:
            # Into memory that thinwire has had since the first.
            self._error = UnsupportedError(
                f"parameter '{self._names[id(parameter)]}' got a second gradient in one backward pass, when the first "
                "was on its way; run its module once, in a module of its own that calls it as often as needed")
            raise self._error
        self._give(step, parameter, local_part(parameter.grad))

    def _give(self, step: _Step, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        exchanged = without_scale(gradient, step.scale)
        step.given[id(parameter)], step.exchanged[id(parameter)] = gradient, exchanged
        self._exchange.start(parameter, exchanged)

    @torch.no_grad()
    def _end(self) -> None:
        step, self._step = self._step, None
        if step is None or not step.begun:  # gradients are being accumulated, without communication
            return
        try:
            missing = [one.tensor for one in self._parameters if id(one.tensor) not in step.given]
            for parameter in missing:
                self._give(step, parameter, torch.zeros_like(local_part(parameter)))
            report = self._end_exchange()
            for key, gradient in step.given.items():
                put_scaled(step.exchanged[key], step.scale, gradient)
            self._hand_over(step, missing, report["skipped"])
            self._write_logs()
        except BaseException as error:
            self._error = error
            raise

    def _hand_over(self, step: _Step, missing: list[nn.Parameter], skipped: bool) -> None:
        """Adds means to the gradients that were there. A parameter that this replica did not use gets one if it is
        not zero on any rank, so that the ranks of a replica have gradients of the same parameters."""
        if missing and not skipped:
            found = torch.tensor([int(step.given[id(one)].any()) for one in missing], dtype=torch.int32, device="cpu")
            found = any_on_any_rank(found, self._grid.shard, self._exchange.deadline_seconds)
            for parameter, has_any in zip(missing, found.tolist()):
                if has_any and parameter.requires_grad:
                    parameter.grad = as_part_of(step.given[id(parameter)], parameter)
        for one in self._parameters:
            before = step.before.get(id(one.tensor))
            if before is None:
                continue
            if one.tensor.grad is not None:
                local_part(before).add_(local_part(one.tensor.grad))
            one.tensor.grad = before
