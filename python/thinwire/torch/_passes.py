"""Looks at the passes of a DistributedDataParallel with a link: none may begin whose gradients would do harm."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import unserializable_hook

from ._averaged import Unwatched
from ._outputs import tensors_of_pass


class _Link(Protocol):
    awaits_pass: bool

    def _require_going_on(self) -> None: ...
    def _looks_at_passes(self) -> bool: ...
    def _begin_pass(self, exchanges: bool) -> None: ...


def _will_exchange(model: DistributedDataParallel) -> bool:
    """As torch decides it, for the backward pass of a forward pass that is made now."""
    return torch.is_grad_enabled() and model.require_backward_grad_sync


class _Look:
    """A hook of the model, which keeps no link alive, and has none in a copy of the model."""

    def __init__(self, link: _Link) -> None:
        self._link = weakref.ref(link)
        self._uncompiled = torch.compiler.disable(self._look)

    def __call__(self, model: nn.Module, inputs: Any, output: Any = None) -> None:
        self._uncompiled(model, output)

    def __reduce__(self) -> tuple[type[Unwatched], tuple[()]]:
        return (Unwatched, ())

    def _look(self, model: DistributedDataParallel, output: Any) -> None:
        raise NotImplementedError


class _BeforeForward(_Look):
    def _look(self, model: DistributedDataParallel, output: Any) -> None:
        link = self._link()
        if link is not None and _will_exchange(model):
            link._require_going_on()


class _AfterForward(_Look):
    """Gradients are looked at when the backward pass begins, because scripts may zero them between the two passes, and once
    in it: where a model has several outputs, some parameters have their gradients before the last one is reached. Passes
    under no_sync are looked at, too: a sum that begins in one has no mean in it."""

    _task = -1  # the last backward pass that was looked at

    def _look(self, model: DistributedDataParallel, output: Any) -> None:
        link = self._link()
        if link is None or not torch.is_grad_enabled():
            return
        if _will_exchange(model):
            link.awaits_pass = True
        if not link._looks_at_passes():
            return
        for tensor in tensors_of_pass(output):
            tensor.register_hook(self._begin_backward)

    @unserializable_hook  # an output that is saved says nothing of it
    def _begin_backward(self, _: torch.Tensor) -> None:
        link = self._link()
        task = torch._C._current_graph_task_id()
        if link is not None and task != self._task:
            self._task = task
            link._begin_pass(link.awaits_pass)


def look_at_passes(model: DistributedDataParallel, link: Any) -> None:
    model.register_forward_pre_hook(_BeforeForward(link))
    model.register_forward_hook(_AfterForward(link))
