"""tw.TensorParallel: the sums over the ranks that share a layer, compressed in both directions."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import nn

from ..codec import Codec
from ..errors import ContractError, MismatchError
from ._arguments import Arguments, explains_keywords
from ._first_input import with_first
from ._memory import carrier_of
from ._native import BoundarySender
from ._rank_sum import RankSum
from ._step_state import read_state


class _CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, sums):
        ctx.sums = sums
        return values.view_as(values)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.sums._sum("backward", gradient), None


class _ReduceFromRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, sums):
        return sums._sum("forward", values)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


_made: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # objects of a process group, so far
_OF = {"forward": "activations", "backward": "gradients"}


class TensorParallel:
    """The two sums of layers that ranks share [Megatron-LM, arXiv:1909.08053], compressed.

    The first matrix of a pair is split by columns and the second by rows, so that each rank computes a part of the pair.
    `copy_to_ranks` (f) stands in front of the first matrix, and `reduce_from_ranks` (g) behind the second:

        tp = tw.TensorParallel("uniform:bits=4", process_group=group)
        y = tp.reduce_from_ranks(fc2(gelu(fc1(tp.copy_to_ranks(x))))) + bias

    Forward, all ranks get the sum of the partial products; backward, the sum of the gradients of `x`. What a rank
    contributes is compressed once and sent to all others, and all add in the order of ranks, so that the sum has the same
    bits on each. Values that are not finite make it NaN on all ranks. There is no memory: what a codec leaves out is lost.
    All ranks of the group make the object at the same point.

    What codecs draw at random follows from the seed, the index, the rank, the step and the values. So activations that
    are computed again in the backward pass have the bits of their first pass, and passes without gradients change none.

    Args:
        codec: for activations.
        gradient_codec: for their gradients; if absent, the same.
        process_group: the ranks that share layers; if absent, all. Beside a group of nccl alone thinwire makes one of gloo.
        per_sample: whether each sample (the first dimension) is compressed as a vector of its own, or all as one.
        seed: for codecs that draw random numbers.
        index: the number of the object, the same on all ranks; objects with different ones draw different numbers. If
            absent: how many objects were made before for the process group.
        deadline_seconds: the longest wait for another rank.

    Raises:
        thinwire.errors.Error: a name or option is wrong. Calls raise MismatchError on all ranks if shapes, types or
            arguments differ between ranks, and TimeoutError if another rank makes no call; the object is of no more use
            after that one alone.
    """

    @explains_keywords
    def __init__(
        self,
        codec: Union[str, Codec] = "fp32",
        *,
        gradient_codec: Union[str, Codec, None] = None,
        process_group: Optional[dist.ProcessGroup] = None,
        per_sample: bool = False,
        seed: int = 0,
        index: Optional[int] = None,
        deadline_seconds: float = 60.0,
    ) -> None:
        check = Arguments("TensorParallel")
        self._codecs = {"forward": check.codec(codec)}
        self._codecs["backward"] = (self._codecs["forward"] if gradient_codec is None
                                    else check.codec(gradient_codec, "gradient_codec"))
        check.flags(per_sample=per_sample)
        check.seed(seed)
        if index is not None:
            check.counts(index=index)
        check.seconds(deadline_seconds=deadline_seconds)
        if not dist.is_initialized():
            raise ContractError("TensorParallel: needs torch.distributed.init_process_group first")
        group = process_group or dist.group.WORLD
        check.kind("process_group", group, dist.ProcessGroup)  # torch has another object for ranks that are not in it
        self._index, self._step = _made.get(group, 0) if index is None else int(index), 0
        self._may_renumber = index is None
        self._settings = {"memory": "none", "sender": 0, "per_sample": per_sample, "micro_batches": 1,
                          "seed": int(seed), "steps_per_epoch": 0, "first_step": 0, "cache_budget": 0, "spill_folder": ""}
        for direction in self._codecs:  # what is wrong with a codec is said here
            BoundarySender({**self._spec(direction), "samples": 1, "sample_shape": [64]}, None, None)
        self._calls = 0
        self._bytes = {"forward_bytes": 0, "backward_bytes": 0}
        carrier = carrier_of(group)
        self._ranks = RankSum(carrier.group, deadline_seconds)
        self._carrier = carrier  # behind the channel, which is to end before it
        _made[group] = _made.get(group, 0) + 1

    def copy_to_ranks(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the values, in front of a matrix that is split by columns. In the backward pass their gradient becomes
        the sum over ranks. All ranks call it in the same order.

        Raises:
            thinwire.errors.ContractError: the values are no tensor that has a gradient, such as integers.
        """
        if not isinstance(values, torch.Tensor) or not values.is_floating_point():
            found = values.dtype if isinstance(values, torch.Tensor) else type(values).__name__
            raise ContractError(f"copy_to_ranks: the values are {found}, must be a tensor of a floating-point type, whose "
                                "gradient is summed")
        return _CopyToRanks.apply(values, self)

    def reduce_from_ranks(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the sum over ranks, behind a matrix that is split by rows. In the backward pass each rank gets the
        gradient of the sum. A bias is added to the sum, or by one rank alone. All ranks call it in the same order."""
        return _ReduceFromRanks.apply(values, self)

    def column(self, module: nn.Module) -> Any:
        """Registers `copy_to_ranks` in front of a module, for its first input, also where that is given by its name. Returns
        the handle that removes it."""
        return module.register_forward_pre_hook(
            lambda module, given, named: with_first(module, given, named, self.copy_to_ranks), with_kwargs=True)

    def row(self, module: nn.Module) -> Any:
        """Registers `reduce_from_ranks` behind a module that gives one tensor. Returns the handle that removes it.

        Raises:
            thinwire.errors.ContractError: the module has a bias, which each rank would add.
        """
        if getattr(module, "bias", None) is not None:
            raise ContractError("row: the module has a bias, which would be added once by each rank; make it without one, "
                                "and add the bias to the sum")
        return module.register_forward_hook(lambda _, given, result: self.reduce_from_ranks(result))

    def step(self) -> None:
        """Ends a step of the optimiser. Schedules of codecs count these steps, and equal values draw other numbers in
        another step. All ranks call it; without a schedule it may be left out."""
        self._step += 1

    def state_dict(self) -> dict[str, int]:
        """Returns the step and the index, the same on all ranks."""
        return {"index": self._index, "step": self._step}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Loads what `state_dict` gave, also on another number of ranks. All ranks call it alike. The object takes the
        state's index, unless it was made with one.

        Raises:
            thinwire.errors.Error: the state is of something else, or of an object with another index. The object is
                unchanged.
        """
        index, step = read_state(state_dict)
        if index != self._index and not self._may_renumber:
            raise MismatchError(f"TensorParallel {self._index}: the state is of an object with index {index}; load it into "
                                "that one, or make this one without index=")
        self._index, self._step = index, step

    def metrics(self) -> dict[str, int]:
        """Returns the forward_bytes and backward_bytes of the messages that this rank encoded so far. Each goes to every
        other rank."""
        return dict(self._bytes)

    def _spec(self, direction: str) -> dict[str, Any]:
        return {**self._settings, "name": f"sum {self._index} {direction}", "codec": self._codecs[direction],
                "stream": 2 * self._index + (direction == "backward")}

    def _sum(self, direction: str, values: Any) -> torch.Tensor:
        self._calls += 1
        head = {"index": self._index, "call": self._calls, "of": _OF[direction], "step": self._step,
                "arguments": self._arguments()}
        total, sent = self._ranks.sum(self._spec(direction), head, values)
        self._bytes[f"{direction}_bytes"] += sent
        return total

    def _arguments(self) -> str:
        """What all ranks must have given alike."""
        return ", ".join(f"{name}={value!r}" for name, value in {
            "codec": self._codecs["forward"], "gradient_codec": self._codecs["backward"],
            "per_sample": self._settings["per_sample"], "seed": self._settings["seed"]}.items())
