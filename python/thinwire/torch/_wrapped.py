"""Finds the DistributedDataParallel in the model that `compress` is given."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from ..errors import ContractError, UnsupportedError

_linked: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()
_SHARDED = {"FullyShardedDataParallel", "FSDPModule"}


def unwrap(model: Any) -> DistributedDataParallel:
    """The DistributedDataParallel that `model` is, or that torch.compile was given."""
    inner = model
    while hasattr(inner, "_orig_mod"):
        inner = inner._orig_mod
    if isinstance(inner, DistributedDataParallel):
        return inner
    kinds = {kind.__name__ for kind in type(inner).__mro__}
    if kinds & _SHARDED:
        raise UnsupportedError(
            f"compress: {type(inner).__name__} is sharded, and no rank has a whole gradient of it; where every rank "
            "has room for the parameters, wrap the model in DistributedDataParallel instead, and shard the "
            "optimiser's state by torch.distributed.optim.ZeroRedundancyOptimizer"
        )
    raise ContractError(
        f"compress takes a DistributedDataParallel model, not {type(inner).__name__}; "
        "wrap it first: compress(DistributedDataParallel(model), ...)"
    )


def register(model: DistributedDataParallel, link: Any, hook: Any) -> None:
    model.register_comm_hook(link, hook)
    # The reducer has it; in this list, which is of no use to a reducer in C++, it would keep the model from being
    # copied and saved. A copy has no link.
    model._comm_hooks.pop()
    _linked.add(model)


def require_free(model: DistributedDataParallel) -> None:
    """Raises where the gradients of `model` go somewhere already."""
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
