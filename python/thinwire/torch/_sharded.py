"""A model sharded by fully_shard: its parameters, and the grid of ranks that its shards and replicas make up."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from ..errors import ContractError, UnsupportedError
from ._kinds import REAL, check_type
from ._memory import Carrier, all_reduce, carrier_of
from ._parameters import Parameter, describe, every_parameter, is_sharded, listed

_HINT = 'fully_shard(module, mesh=mesh["shard"])'


class Grid(NamedTuple):
    """Rank r of the world has shard r mod `shards` of replica r / `shards`."""

    world: dist.ProcessGroup
    replicas: dist.ProcessGroup  # the ranks that have the same shard
    shard: dist.ProcessGroup  # the ranks of this rank's replica
    shards: int
    carriers: tuple[Carrier, ...]  # of all three: ranks may need them at different times later


def sharded_modules(model: nn.Module) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def sharded_parameters(model: nn.Module) -> list[Parameter]:
    """Those that are trained.

    Raises:
        ContractError: one is not sharded, so that nobody would average its gradients.
        UnsupportedError: one is of a type, on a device or sharded in a way that a link does not know.
    """
    for module in sharded_modules(model):
        module.reshard()  # it may be unsharded since an earlier forward pass
    found = describe(model, set())
    if not found:
        raise ContractError("compress: the model has no parameter that is trained")
    whole = [one.name for one in found if not is_sharded(one.tensor)]
    if whole:
        raise ContractError(f"compress: {listed(whole)} are trained and not sharded, so that nobody averages their "
                            f"gradients; call {_HINT} on the whole model, too")
    for one in found:
        if one.tensor.device.type == "meta":
            raise ContractError(f"compress: parameter '{one.name}' is on the device 'meta'; give it values before")
        check_type(one, types=REAL)
        _check_placement(one)
        if getattr(one.tensor, "_post_accumulate_grad_hooks", None):
            raise UnsupportedError(f"compress: parameter '{one.name}' has a hook that runs after its gradient is "
                                   "accumulated, which is before thinwire has averaged it; leave the hook out, and "
                                   "call the optimiser after backward()")
    return found


def require_known(model: nn.Module, known: set[int]) -> None:
    """Raises where a sharded parameter is trained whose id is not known: frozen when compress was called, or put in
    the place of another. Parameters that are unsharded are not looked at."""
    strangers = [one.name for one in every_parameter(model)
                 if one.tensor.requires_grad and is_sharded(one.tensor) and id(one.tensor) not in known]
    if strangers:
        raise ContractError(f"{listed(strangers)} were frozen, or other parameters, when compress was called, and are "
                            "trained now: replicas would drift apart; unfreeze and replace parameters before compress")


def _check_placement(one: Parameter) -> None:
    placements = one.tensor.placements
    if len(placements) == 2 and placements[0].is_replicate() and placements[1].is_shard():
        raise UnsupportedError(
            f"compress: parameter '{one.name}' is sharded on a mesh of two dimensions, so that fully_shard averages "
            f"between replicas itself; shard on the inner dimension alone, {_HINT}, and give compress "
            'replicate=mesh["replicate"]')
    if len(placements) != 1 or not placements[0].is_shard():
        raise UnsupportedError(f"compress: parameter '{one.name}' has the placements {tuple(placements)}; a link knows "
                               f"parameters that are sharded on one dimension of a mesh, {_HINT}")


def require_no_offload(parameters: Sequence[Parameter]) -> None:
    """Raises where torch has not yet copied a gradient to the CPU when the hooks of its parameter run."""
    for one in parameters:
        own, mesh = one.tensor.device.type, one.tensor.device_mesh.device_type
        if own != mesh and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
            raise UnsupportedError(f"compress: parameter '{one.name}' is on {own}, and its mesh on {mesh}, as CPUOffloadPolicy has "
                                   f"it; with torch before 2.13, here {torch.__version__}, a link between replicas cannot have "
                                   "that: leave offload_policy out, or install torch 2.13")


def grid_of(parameters: Sequence[Parameter], replicate: Any) -> Grid:
    """The grid of the mesh on which the parameters are sharded, and of `replicate`.

    Raises:
        ContractError: they do not make up the world, replica after replica.
    """
    if not isinstance(replicate, DeviceMesh):
        raise ContractError(f"compress: replicate is a {type(replicate).__name__}, must be a dimension of the "
                            'DeviceMesh, as mesh["replicate"]')
    if replicate.ndim != 1:
        raise ContractError(f"compress: replicate has {replicate.ndim} dimensions, must be one of them, as "
                            'mesh["replicate"]')
    mesh = parameters[0].tensor.device_mesh
    others = [one.name for one in parameters if one.tensor.device_mesh != mesh]
    if others:
        raise UnsupportedError(f"compress: {listed(others)} are sharded on another mesh than '{parameters[0].name}'; "
                               "shard all modules on the same one")
    shards, replicas, world = mesh.size(), replicate.size(), dist.get_world_size()
    if shards * replicas != world:
        raise ContractError(f"compress: {shards} shards in {replicas} replicas do not make up the {world} ranks; "
                            'replicate must be the other dimension of the mesh that has mesh["shard"]')
    # Both lists, so that all ranks find the same where dimensions were mistaken for each other.
    replica, shard = replicate.get_local_rank(), mesh.get_local_rank()
    if (replicate.mesh.tolist() != [other * shards + shard for other in range(replicas)]
            or mesh.mesh.tolist() != [replica * shards + other for other in range(shards)]):
        raise ContractError(
            f"compress: rank {dist.get_rank()} has its shard in common with ranks {replicate.mesh.tolist()}, and its "
            f"replica with ranks {mesh.mesh.tolist()}; a link needs replica after replica, as of "
            f'init_device_mesh({mesh.device_type!r}, ({replicas}, {shards}), mesh_dim_names=("replicate", "shard")), and '
            'replicate=mesh["replicate"]')
    assert dist.group.WORLD is not None
    groups = dist.group.WORLD, replicate.get_group(), mesh.get_group()
    return Grid(*groups, shards, tuple(carrier_of(group) for group in groups))


def any_on_any_rank(flags: torch.Tensor, group: dist.ProcessGroup, deadline_seconds: float) -> torch.Tensor:
    """Of flags as integers, those that are set on a rank of the group."""
    all_reduce(flags, group, deadline_seconds, dist.ReduceOp.MAX)
    return flags
