"""Names, shapes and kinds of a module's parameters, and the rules for parameters by name."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import fnmatch
import glob
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from ._names import plain_names

_CONVOLUTIONS = (nn.modules.conv._ConvNd,)
_fits = fnmatch.fnmatchcase
_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class Parameter(NamedTuple):
    name: str
    kind: str
    tensor: nn.Parameter
    path: str = ""  # the name in the module, where `name` is without what wrappers add

    @property
    def shape(self) -> list[int]:
        return shape_of(self.tensor)


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor, whose module takes most of a second to import."""
    return hasattr(tensor, "to_local")


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's shard, where a tensor is sharded; without a gradient."""
    tensor = tensor.detach()
    return tensor.to_local() if is_sharded(tensor) else tensor


def has_values(tensor: torch.Tensor) -> bool:
    """Whether a value of it is not zero; of a sharded tensor, in this rank's shard."""
    local = local_part(tensor)
    return bool((local._values() if local.is_sparse else local).any())


def gets_gradient(parameter: torch.Tensor) -> bool:
    """Whether the backward pass under way adds to its .grad, which torch.autograd.grad does not."""
    if not parameter.requires_grad:
        return False
    with torch.enable_grad():
        view = parameter.view_as(parameter)
    assert view.grad_fn is not None
    try:
        return torch._C._will_engine_execute_node(view.grad_fn.next_functions[0][0])
    except RuntimeError:  # the parameter is one of the inputs that torch.autograd.grad was given, whose gradients it returns
        return False


def _is_in_one_piece(tensor: torch.Tensor) -> bool:
    """Whether its values fill a piece of memory, each once, in whatever order."""
    return torch.ops.aten.is_non_overlapping_and_dense(tensor)


def in_form_of(tensor: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """Values that lie in `flat` as DistributedDataParallel lays out those of a tensor: by the tensor's own strides, which
    those of torch.channels_last are."""
    if _is_in_one_piece(tensor):
        return flat.as_strided(tensor.shape, tensor.stride(), flat.storage_offset())
    return flat.view(tensor.shape)


def permuted(parameters: Sequence[Parameter]) -> dict[str, list[int]]:
    """The strides of parameters whose values lie in memory in another order than the rows of their shape, by name."""
    return {one.name: list(local.stride()) for one in parameters
            if not (local := local_part(one.tensor)).is_contiguous() and _is_in_one_piece(local)}


def as_part_of(local: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """What has `local` as this rank's part, and otherwise the form of `whole`.

    Args:
        local: of one dimension, as it lies in messages, or of the part's shape.
    """
    own = local_part(whole)
    part = in_form_of(own, local) if local.dim() == 1 else local.view_as(own)
    if not is_sharded(whole):
        return part
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(part, whole.device_mesh, whole.placements, run_check=False, shape=whole.shape,
                              stride=whole.stride())


def shape_of(tensor: torch.Tensor) -> list[int]:
    """Of the floats that this rank has of it: two for a complex number."""
    shape = local_part(tensor).shape
    return [*shape, 2] if tensor.is_complex() else list(shape)


def _kind(owner: nn.Module, name: str) -> str:
    if isinstance(owner, _NORMS):
        return "norm"
    if name.startswith("bias"):
        return "bias"
    if isinstance(owner, nn.RNNBase):
        return "recurrent"
    if isinstance(owner, _CONVOLUTIONS):
        return "convolution"
    if isinstance(owner, (nn.Linear, nn.Bilinear)) or name.endswith("proj_weight"):
        return "linear"
    if isinstance(owner, (nn.Embedding, nn.EmbeddingBag)):
        return "embedding"
    return "other"


def every_parameter(module: nn.Module) -> Iterator[Parameter]:
    """In the module's order; tied ones under each of their names."""
    for prefix, owner in module.named_modules():
        for name, tensor in owner.named_parameters(recurse=False):
            yield Parameter(f"{prefix}.{name}" if prefix else name, _kind(owner, name), tensor)


def listed(names: Sequence[str]) -> str:
    """As errors say them: not more than fit into a line."""
    shown = [f"'{name}'" for name in names[:4]]
    return ", ".join(shown) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def plainly_named(parameters: Sequence[Parameter]) -> list[Parameter]:
    """The same under names without what wrappers add to them, which are those of saved states."""
    names = plain_names([parameter.name for parameter in parameters])
    return [parameter._replace(name=name, path=parameter.name) for parameter, name in zip(parameters, names)]


def describe(module: nn.Module, ignored: set[str]) -> list[Parameter]:
    """Every parameter that is trained, once, in the module's order; tied ones under their first
    name."""
    seen: set[int] = set()
    found = []
    for one in every_parameter(module):
        if id(one.tensor) in seen or one.name in ignored or not one.tensor.requires_grad:
            continue
        seen.add(id(one.tensor))
        found.append(one)
    return plainly_named(found)


def decides(pattern: str, one: Parameter) -> bool:
    """Whether a rule of this pattern is for the parameter."""
    return _fits(one.name, pattern) or _fits(one.path, pattern)


def by_plain_names(
    parameters: Sequence[Parameter], rules: Mapping[str, Mapping[str, str]]
) -> list[dict[str, str]]:
    """Rules as the engine takes them, which knows plain names alone: where a pattern decides for a
    parameter by the name that wrappers gave it, there is a rule for each parameter that it decides
    for."""
    found: list[dict[str, str]] = []
    left = list(parameters)
    for pattern, settings in rules.items():
        decided = [one for one in left if decides(pattern, one)]
        left = [one for one in left if not decides(pattern, one)]
        by_name = all(_fits(one.name, pattern) for one in decided)
        patterns = [pattern] if by_name else [glob.escape(one.name) for one in decided]
        found += [{**settings, "pattern": one} for one in patterns]
    return found


def codecs_of(
    parameters: Sequence[Parameter], codec: str, rules: Sequence[Mapping[str, str]]
) -> dict[str, str]:
    """By name: that of the first rule whose pattern fits, else `codec`."""
    return {one.name: next((rule["codec"] for rule in rules if _fits(one.name, rule["pattern"])), codec)
            for one in parameters}
