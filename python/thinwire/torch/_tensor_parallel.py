"""tw.TensorParallel: the sums over the ranks that share a layer, compressed in both directions."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import nn

from ..codec import Codec
from ..errors import ContractError
from ._arguments import Arguments, explains_keywords
from ._memory import carrier_of
from ._native import BoundarySender
from ._rank_sum import RankSum


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

    Args:
        codec: for activations.
        gradient_codec: for their gradients; if absent, the same.
        process_group: the ranks that share layers; if absent, all. Beside a group of nccl alone thinwire makes one of gloo.
        per_sample: whether each sample (the first dimension) is compressed as a vector of its own, or all as one.
        seed: for codecs that draw random numbers.
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
        deadline_seconds: float = 60.0,
    ) -> None:
        check = Arguments("TensorParallel")
        self._codecs = {"forward": check.codec(codec)}
        self._codecs["backward"] = (self._codecs["forward"] if gradient_codec is None
                                    else check.codec(gradient_codec, "gradient_codec"))
        check.flags(per_sample=per_sample)
        check.seed(seed)
        check.seconds(deadline_seconds=deadline_seconds)
        if not dist.is_initialized():
            raise ContractError("TensorParallel: needs torch.distributed.init_process_group first")
        self._settings = {"name": "sum", "memory": "none", "sender": 0, "per_sample": per_sample, "micro_batches": 1,
                          "seed": int(seed), "steps_per_epoch": 0, "cache_budget": 0, "spill_folder": ""}
        for direction in self._codecs:  # what is wrong with a codec is said here
            BoundarySender({**self._spec(direction), "samples": 1, "sample_shape": [64]}, None, None)
        self._calls = 0
        self._bytes = {"forward_bytes": 0, "backward_bytes": 0}
        carrier = carrier_of(process_group or dist.group.WORLD)
        self._ranks = RankSum(carrier.group, deadline_seconds)
        self._carrier = carrier  # behind the channel, which is to end before it

    def copy_to_ranks(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the values, in front of a matrix that is split by columns. In the backward pass their gradient becomes
        the sum over ranks. All ranks call it in the same order."""
        return _CopyToRanks.apply(values, self)

    def reduce_from_ranks(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the sum over ranks, behind a matrix that is split by rows. In the backward pass each rank gets the
        gradient of the sum. A bias is added to the sum, or by one rank alone. All ranks call it in the same order."""
        return _ReduceFromRanks.apply(values, self)

    def column(self, module: nn.Module) -> Any:
        """Registers `copy_to_ranks` in front of a module, for its first input. Returns the handle that removes it."""
        return module.register_forward_pre_hook(lambda _, given: (self.copy_to_ranks(given[0]), *given[1:]))

    def row(self, module: nn.Module) -> Any:
        """Registers `reduce_from_ranks` behind a module. Returns the handle that removes it.

        Raises:
            thinwire.errors.ContractError: the module has a bias, which each rank would add.
        """
        if getattr(module, "bias", None) is not None:
            raise ContractError("row: the module has a bias, which would be added once by each rank; make it without one, "
                                "and add the bias to the sum")
        return module.register_forward_hook(lambda _, given, result: self.reduce_from_ranks(result))

    def metrics(self) -> dict[str, int]:
        """Returns the forward_bytes and backward_bytes of the messages that this rank encoded so far. Each goes to every
        other rank."""
        return dict(self._bytes)

    def _spec(self, direction: str) -> dict[str, Any]:
        return {**self._settings, "name": f"sum {direction}", "codec": self._codecs[direction],
                "stream": 0 if direction == "forward" else 1}

    def _sum(self, direction: str, values: Any) -> torch.Tensor:
        self._calls += 1
        head = {"call": self._calls, "of": _OF[direction], "step": self._calls, "object": self._described()}
        total, sent = self._ranks.sum(self._spec(direction), head, values)
        self._bytes[f"{direction}_bytes"] += sent
        return total

    def _described(self) -> str:
        """What all ranks must have given alike."""
        return ", ".join(f"{name}={value!r}" for name, value in {
            "codec": self._codecs["forward"], "gradient_codec": self._codecs["backward"],
            "per_sample": self._settings["per_sample"], "seed": self._settings["seed"]}.items())
