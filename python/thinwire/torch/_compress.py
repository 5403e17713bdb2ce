"""tw.compress: gives a model its link, by the way that its ranks divide it."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sized
from typing import Any, Optional, Union

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from ..codec import Codec
from ..errors import ContractError, TimeoutError, UnsupportedError
from ._arguments import Arguments, Rules, exchange_options, explains_keywords
from ._attached import innermost
from ._codec_text import explained
from ._ddp import ReplicatedLink
from ._link import Link
from ._lossy import warn_of_loss
from ._wrapped import (
    is_fully_sharded, note_link, register, require_first, require_free, require_replicated, without_compile)


# Without annotations: torch compares them with its classes, and they are texts in this file.
def _hook(link, bucket):
    return link._hook(bucket)


@explains_keywords
def compress(
    model: nn.Module,
    codec: Union[str, Codec] = "sidco:density=0.01",
    *,
    replicate: Optional[DeviceMesh] = None,
    weights: Union[str, Codec, None] = None,
    rules: Optional[Rules] = None,
    feedback: str = "auto",
    method: str = "auto",
    combine: str = "mean",
    grouping: str = "auto",
    bucket_kb: int = 2048,
    steps_per_epoch: Union[int, Sized, None] = None,
    seed: int = 0,
    max_skipped: int = 0,
    norms: bool = False,
    weighted: bool = False,
    inside: int = 1,
    scaler: Optional[torch.amp.GradScaler] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
    momentum: str = "auto",
    deadline_seconds: float = 60.0,
) -> Link:
    """Sends the gradients of a model through thinwire. All ranks call it alike.

    Args:
        model: a DistributedDataParallel, or a model sharded by fully_shard, or the result of torch.compile on one,
            before its first backward pass, in CPU memory or on one GPU per process. thinwire's messages go by
            the model's process groups of backend gloo; beside groups of nccl alone it makes groups of gloo.
        codec: "name:key=value,key=value", or a `thinwire.Codec`; `thinwire.codecs()` lists them. "auto" chooses the
            codec of each parameter by measured steps, among those that `auto:loss=none`, `small` or `any` allows,
            and may change it later: docs/auto.md, `Link.decisions`.
        replicate: of a sharded model, the dimension of the mesh whose ranks are replicas, mesh["replicate"]. FSDP2
            then averages inside each replica, and thinwire between them: docs/sharded.md. Without it, thinwire replaces
            the reduce-scatter of a sharded model.
        weights: of a sharded model without `replicate`, the codec by which weights are gathered, "int8" or "fp16"; None
            leaves that to torch.
        rules: other codecs for parameters by name, {"*.bias": "fp32", "head.*": "int8"}, or with another memory,
            method or grouping, {"head.*": {"codec": "int8", "feedback": "ef21"}}. The first pattern that matches
            counts.
        feedback: the memory that keeps what codecs leave out; "auto" is the codec's default.
        method: the collective, docs/collectives.md.
        combine: how the ranks' gradients become one: "mean", or a robust rule, such as "trimmed_mean:f=1", which
            tolerates f ranks that send wrong gradients; docs/robust.md.
        grouping: "tensor" (a codec sees each tensor alone), "model" (all as one vector), "global" (each tensor, and
            one threshold selects from all of them while the backward pass runs, docs/global-threshold.md), or
            "auto", the codec's.
        bucket_kb: the uncompressed size, in KiB, of the tensors that are sent together.
        steps_per_epoch: the optimiser's steps in an epoch, for schedules that count in epochs; or the DataLoader
            that has as many batches. Where gradients are accumulated over k batches, len(loader) // k.
        max_skipped: this many steps in a row with a NaN or infinity end training; 0: never, as a gradient
            scaler needs it.
        norms: whether to measure the l2 norms of gradients and memories, for `Link.metrics`; each is one more pass
            over all values.
        weighted: whether ranks may have different weights (`Link.set_weight`) or sit out steps (`Link.abstain`). It
            costs each rank one small message to each other rank in every step.
        inside: ranks per group, where several run on each machine; consecutive ranks are a group. They add their
            gradients uncompressed, and groups exchange their means. It must divide the number of ranks.
        scaler: the GradScaler whose scale the gradients have. Memories are then kept without it, so that they stay
            right when it changes.
        optimizer: the model's optimiser. If it is torch's SGD with momentum, and `momentum` says so, its momentum acts
            on each rank's gradient before anything is left out, and no longer on the mean. Its groups' learning
            rates, betas and momenta may change. `Link.release_optimizer` gives the optimiser back. Of a wrapper, as
            Accelerate makes one, the optimiser inside is taken.
        momentum: "auto": in the memory of codecs that leave most values for later steps; "memory"; "optimizer", which
            leaves the optimiser as it is. With "auto", Adam and AdamW have no first moment (beta1 counts as 0)
            beside such codecs. docs/memories.md, Momentum and Adam.
        deadline_seconds: the longest wait for another rank.

    Warns:
        UserWarning: a biased codec has no memory, so what it leaves out is lost. Or, at the first step of an
            optimiser with momentum that was not named: its momentum acts on bursts. Or a density of 1 sends every value
            with its position.

    Raises:
        thinwire.errors.Error: a name or option is wrong, or ranks differ; the text says where.
    """
    model = without_compile(model)
    check = Arguments("compress")
    options = {"codec": check.codec(codec), "rules": check.rules(rules or {}), **exchange_options(
        "compress", scaler=scaler, deadline_seconds=deadline_seconds, feedback=feedback, method=method,
        combine=combine, grouping=grouping, bucket_kb=bucket_kb, steps_per_epoch=steps_per_epoch, seed=seed,
        max_skipped=max_skipped, norms=norms, weighted=weighted, inside=inside)}
    check.momentum(momentum)
    optimizer = innermost(optimizer)
    check.optimizer(optimizer)
    warn_of_loss(options, list(options["rules"].values()))
    others = (options, deadline_seconds, scaler, optimizer, momentum)
    try:
        with explained(options["codec"]):
            if is_fully_sharded(model):
                gathered = None if weights is None else check.codec(weights, "weights")
                return _link_sharded(model, replicate, gathered, *others)
            if weights is not None:
                raise ContractError("compress: weights is for a model that fully_shard has sharded; here every rank has "
                                    "all weights")
            if replicate is not None:
                raise ContractError("compress: replicate is for a model that fully_shard has sharded; "
                                    "DistributedDataParallel averages over its process group")
            model = require_replicated(model)
            require_free(model)
            link = ReplicatedLink(model, *others)
    except TimeoutError as error:
        raise TimeoutError(f"compress: {error}; do all ranks call it, at the same place?") from None
    register(model, link, _hook)
    return link


def _link_sharded(
    model: nn.Module,
    replicate: Optional[DeviceMesh],
    weights: Optional[str],
    options: dict[str, Any],
    deadline_seconds: float,
    scaler: Optional[torch.amp.GradScaler],
    optimizer: Optional[torch.optim.Optimizer],
    momentum: str,
) -> Link:
    for name, usual, why in (("weighted", False, "all ranks of a replica count together"),
                             ("inside", 1, "its ranks are grouped by the mesh")):
        if options[name] != usual:
            raise UnsupportedError(f"compress: {name}={options[name]!r} is not for a sharded model: {why}; leave "
                                   f"{name} out")
    require_first(model)
    link: Link
    # With them comes FSDP2, which takes torch a second to import.
    if replicate is not None:
        from ._replicas import ReplicasLink

        if weights is not None:
            raise UnsupportedError("compress: weights is not for replicate=: inside a replica torch gathers weights; "
                                   "leave one of them out")
        link = ReplicasLink(model, replicate, options, deadline_seconds, scaler, optimizer, momentum)
    else:
        from ._shards import ShardsLink

        if momentum == "memory":
            raise UnsupportedError('compress: momentum="memory" is for codecs that leave values for later steps, and '
                                   "none of those leaves shards; leave momentum out, or compress between replicas, by "
                                   'replicate=mesh["replicate"]')
        link = ShardsLink(model, options, deadline_seconds, scaler, weights, optimizer, momentum)
    note_link(model)
    return link
