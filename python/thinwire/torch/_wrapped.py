"""Looks at the model that `compress` is given: how it is wrapped, and whether its gradients go somewhere already."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import ContractError, UnsupportedError

_linked: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def without_compile(model: Any) -> Any:
    """What torch.compile was given, where it was."""
    while hasattr(model, "_orig_mod"):
        model = model._orig_mod
    return model


def is_fully_sharded(model: Any) -> bool:
    """Whether fully_shard was called on the model or parts of it. By name: torch takes a second to import it."""
    return isinstance(model, nn.Module) and any(_is_sharded_module(module) for module in model.modules())


def _is_sharded_module(module: nn.Module) -> bool:
    return any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)


def require_replicated(model: Any) -> DistributedDataParallel:
    if isinstance(model, DistributedDataParallel):
        return model
    if any(kind.__name__ == "FullyShardedDataParallel" for kind in type(model).__mro__):
        raise UnsupportedError(
            "compress: FullyShardedDataParallel has no place for a link; shard the model by "
            "torch.distributed.fsdp.fully_shard, as docs/sharded.md has it"
        )
    raise ContractError(
        f"compress takes a DistributedDataParallel model, not {type(model).__name__}; "
        "wrap it first: compress(DistributedDataParallel(model), ...), or shard it by fully_shard"
    )


def register(model: DistributedDataParallel, link: Any, hook: Any) -> None:
    model.register_comm_hook(link, hook)
    # The reducer has it; in this list, which is of no use to a reducer in C++, it would keep the model from being
    # copied and saved. A copy has no link.
    model._comm_hooks.pop()
    note_link(model)


def require_first(model: nn.Module) -> None:
    """Raises where a sharded model, or a part of it, has a link already."""
    if model in _linked:
        raise ContractError("compress: this model has a link already: link.change(codec) goes on with another codec")
    for name, module in model.named_modules():
        if module in _linked:
            raise ContractError(f"compress: module '{name}' has a link already, which its gradients go through: give compress "
                                "the whole model, once")


def note_link(model: nn.Module) -> None:
    _linked.add(model)
    _linked.update(module for module in model.modules() if _is_sharded_module(module))


def require_free(model: DistributedDataParallel) -> None:
    """Raises where the gradients of `model` go somewhere already."""
    if any(kind.__module__.split(".")[0] == "torchft" for kind in type(model).__mro__):
        raise UnsupportedError(
            "compress: this is a DistributedDataParallel of torchft, whose process group compresses: "
            "thinwire.torchft.ProcessGroup(codec, rules=...), docs/elastic.md"
        )
    hooks = [hook for hook, _ in model._comm_hooks]
    if model in _linked:
        raise ContractError(
            "compress: this model has a link already: link.change(codec) goes on with another codec, and a new "
            "DistributedDataParallel(model.module) can be given to compress anew"
        )
    if hooks:
        name = getattr(hooks[0], "__name__", hooks[0])
        raise ContractError(
            f"compress: this model has the communication hook '{name}', whose place a link takes; "
            "leave register_comm_hook out"
        )
    if getattr(model, "_use_python_reducer", False):
        raise UnsupportedError(
            "compress: torch._dynamo.config.optimize_ddp = \"python_reducer\" has no buckets that a link could "
            "send; leave it at True"
        )
