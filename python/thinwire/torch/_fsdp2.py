"""What FSDP2 does not export: its interfaces of collectives, and which parameters a module sends, in which order. No
other file uses names of torch.distributed.fsdp that begin with an underscore."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from ..errors import UnsupportedError


def _moved(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"compress: torch {torch.__version__} has {what} in another place than torch 2.9, 2.13 and 2.14, with which "
        "thinwire was tested. Until thinwire knows it, models sharded by fully_shard can be compressed between "
        'replicas, by replicate=mesh["replicate"]: docs/sharded.md')


try:
    from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
except ImportError:
    raise _moved("the interfaces of FSDP2's collectives") from None

__all__ = ["AllGather", "ReduceScatter", "all_gather_single", "send_unused", "travelling"]

all_gather_single = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # its name before torch 2.13


def travelling(module: FSDPModule) -> list[nn.Parameter]:
    """The parameters that a module gathers and reduces by itself, in the order in which they lie in its messages. A
    group of modules, fully_shard([a, b]), has them as one; the others of the group then have none.

    Raises:
        UnsupportedError: they are in several groups, or not where they are looked for.
    """
    try:
        state = module._get_fsdp_state()
        groups = state._fsdp_param_groups if hasattr(state, "_fsdp_param_groups") else [
            group for group in (state._fsdp_param_group,) if group is not None]
        if any(group.modules[0] is not module for group in groups):
            return []
        found = [[one.sharded_param for one in group.fsdp_params] for group in groups]
    except AttributeError:
        raise _moved("the parameters of a sharded module") from None
    if len(found) > 1:
        raise UnsupportedError("compress: a module has parameters on several meshes (shard_placement_fn), and FSDP2 "
                               "takes no collective of others for it")
    return found[0] if found else []


def send_unused(module: FSDPModule) -> None:
    """Has parameters without a gradient count as zeros, so that every message has all parameters. From torch 2.13 on;
    before, a message that lacks some is refused when it comes."""
    if hasattr(module, "set_reduce_scatter_unused_params"):
        module.set_reduce_scatter_unused_params(True, recurse=False)
