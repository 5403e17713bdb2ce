"""tw.TensorParallel: the sums over the ranks that share a layer, compressed in both directions."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import nn

from ..codec import Codec
from ..errors import ContractError, CorruptError
from ._arguments import Arguments, explains_keywords
from ._memory import carrier_of, on_host
from ._native import BoundaryReceiver, BoundarySender

# Ranks draw random numbers of their own, or the errors of their roundings would add up.
_RANK_SEED = 0x9E3779B97F4A7C15


class _Sum:
    """Sums of tensors of one shape: this rank's sender, and a receiver for each rank, itself included."""

    def __init__(self, spec: dict[str, Any], group: dist.ProcessGroup) -> None:
        self._group = group

        def of_rank(rank: int) -> dict[str, Any]:
            return {**spec, "sender": rank, "seed": (spec["seed"] + rank * _RANK_SEED) % 2**64}

        self._sender = BoundarySender(of_rank(group.rank()), None, None)
        self._receivers = [BoundaryReceiver(of_rank(rank), None, None) for rank in range(group.size())]
        self._calls = 0

    def sum(self, values: torch.Tensor) -> tuple[torch.Tensor, int]:
        """The sum over ranks of what arrives of their values, the same bits on each, and the bytes of this rank's
        message. If a rank's values are not finite, all are NaN."""
        visit = (self._calls, 0, [], 0)
        self._calls += 1
        message, _, _ = self._sender.encode(values, visit)
        finite, total = True, torch.zeros(())
        for rank, theirs in enumerate(self._gathered(message)):
            arrived = torch.empty(values.shape)
            finite &= self._receivers[rank].decode(theirs, visit, arrived)
            total = arrived if rank == 0 else total.add_(arrived)
        for end in (self._sender, *self._receivers):
            end.rollback()  # nothing is remembered from call to call
        return total if finite else total.fill_(math.nan), message.numel()

    def _gathered(self, message: torch.Tensor) -> list[torch.Tensor]:
        """The messages of all ranks, which gloo gathers at one length: that of the longest."""
        sizes = [torch.empty(1, dtype=torch.int64) for _ in self._receivers]
        self._group.allgather([sizes], [torch.tensor([message.numel()])]).wait()
        longest = max(int(size) for size in sizes)
        for rank, size in enumerate(sizes):
            if not 0 <= int(size) <= self._sender.max_message_size:
                raise CorruptError(f"TensorParallel: rank {rank} announces {int(size)} bytes where at most "
                                   f"{self._sender.max_message_size} are possible")
        mine = torch.zeros(longest, dtype=torch.uint8)
        mine[:message.numel()] = message
        buffers = [torch.empty(longest, dtype=torch.uint8) for _ in sizes]
        self._group.allgather([buffers], [mine]).wait()
        return [buffer[:int(size)] for buffer, size in zip(buffers, sizes)]


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

    Raises:
        thinwire.errors.Error: a name or option is wrong.
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
    ) -> None:
        check = Arguments("TensorParallel")
        self._codecs = {"forward": check.codec(codec)}
        self._codecs["backward"] = (self._codecs["forward"] if gradient_codec is None
                                    else check.codec(gradient_codec, "gradient_codec"))
        check.flags(per_sample=per_sample)
        check.seed(seed)
        if not dist.is_initialized():
            raise ContractError("TensorParallel: needs torch.distributed.init_process_group first")
        self._carrier = carrier_of(process_group or dist.group.WORLD)
        self._per_sample, self._seed = per_sample, seed
        self._sums: dict[tuple[Any, ...], _Sum] = {}
        self._bytes = {"forward_bytes": 0, "backward_bytes": 0}
        for direction in self._codecs:  # what is wrong with a codec is said here
            BoundarySender(self._spec(direction, (1, 64)), None, None)

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

    def _spec(self, direction: str, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"name": f"sum {direction}", "sample_shape": list(shape[1:]) or [1], "samples": shape[0],
                "codec": self._codecs[direction], "memory": "none", "sender": 0, "per_sample": self._per_sample, "micro_batches": 1,
                "seed": self._seed, "stream": 0 if direction == "forward" else 1, "steps_per_epoch": 0,
                "cache_budget": 0, "spill_folder": ""}

    def _sum(self, direction: str, values: torch.Tensor) -> torch.Tensor:
        if values.dim() == 0 or values.numel() == 0:
            raise ContractError(f"TensorParallel: a tensor of shape {tuple(values.shape)} has no samples to sum")
        key = (direction, *values.shape)
        if key not in self._sums:
            self._sums[key] = _Sum(self._spec(direction, tuple(values.shape)), self._carrier.group)
        here = on_host(values.detach().float()).contiguous()
        total, sent = self._sums[key].sum(here)
        self._bytes[f"{direction}_bytes"] += sent
        return total.to(values)
