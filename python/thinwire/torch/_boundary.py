"""tw.Boundary: the activations and gradients between two pipeline stages, compressed in both directions."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import os
from collections.abc import Sequence, Sized
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import nn

from ..codec import Codec
from ..errors import ContractError, CorruptError, UnsupportedError
from ._arguments import Arguments, explains_keywords
from ._native import BoundaryReceiver, BoundarySender, KeptPositions, Wire
from ._memory import Carrier, carrier_of, on_host
from ._saved import from_tensor, to_tensor

# Tags of a boundary: index x 300 + direction x 100 + micro-batch.
_FORWARD, _BACKWARD, _LOOK = 0, 1, 2
_MOST = 100  # micro-batches, and boundaries between two ranks

_Pair = tuple[Optional[KeptPositions], Optional[KeptPositions]]  # of the sender, of the receiver

_wires: dict[tuple[Any, float], tuple[Wire, Carrier]] = {}


def _wire_of(group: Optional[dist.ProcessGroup], deadline_seconds: float) -> Wire:
    """One for all boundaries of a process group, since stages have different numbers of them."""
    key = (group or dist.group.WORLD, deadline_seconds)
    if key not in _wires:
        carrier = carrier_of(key[0])
        _wires[key] = Wire(carrier.group, deadline_seconds), carrier
    return _wires[key][0]


class _Direction:
    """The ends of one direction that stand in this process: one, or both."""

    def __init__(
        self,
        spec: dict[str, Any],
        sends: bool,
        receives: bool,
        note: _Pair = (None, None),
        at: _Pair = (None, None),
    ) -> None:
        self.sender = BoundarySender(spec, note[0], at[0]) if sends else None
        self.receiver = BoundaryReceiver(spec, note[1], at[1]) if receives else None
        self.limit = (self.sender or BoundarySender(spec, note[1], at[1])).max_message_size
        self.bad = False

    @property
    def ends(self) -> list[Any]:
        return [end for end in (self.sender, self.receiver) if end is not None]

    def encode(self, values: torch.Tensor, visit: tuple[Any, ...]) -> torch.Tensor:
        message, _, finite = self.sender.encode(on_host(values.detach().float()).contiguous(), visit)
        self.bad |= not finite
        return message

    def decode(
        self, message: torch.Tensor, visit: tuple[Any, ...], shape: Sequence[int]
    ) -> torch.Tensor:
        """Returns the received values; all NaN if the sender's values were not finite."""
        values = torch.empty(shape)
        if not self.receiver.decode(message, visit, values):
            self.bad = True
            values.fill_(math.nan)
        return values

    def end_step(self, skipped: bool) -> None:
        for end in self.ends:
            end.rollback() if skipped or self.bad else end.commit()
        self.bad = False


class _Pass(torch.autograd.Function):
    """Both ends in one process."""

    @staticmethod
    def forward(ctx, values, boundary, visit):
        ctx.boundary, ctx.visit = boundary, visit
        return boundary._cross(boundary._activations, values, visit)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.boundary._cross(ctx.boundary._gradients, gradient, ctx.visit), None, None


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, boundary, visit):
        ctx.boundary, ctx.visit = boundary, visit
        ctx.like = values.new_empty(())
        ctx.shape = values.shape
        boundary._ship(boundary._activations, values, visit, _FORWARD)
        return torch.zeros(())

    @staticmethod
    def backward(ctx, _):
        gradient = ctx.boundary._await(ctx.boundary._gradients, ctx.visit, _BACKWARD)
        return gradient.view(ctx.shape).to(ctx.like), None, None


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, boundary, visit):
        ctx.boundary, ctx.visit = boundary, visit
        return boundary._await(boundary._activations, visit, _FORWARD).to(boundary._device)

    @staticmethod
    def backward(ctx, gradient):
        ctx.boundary._ship(ctx.boundary._gradients, gradient, ctx.visit, _BACKWARD)
        return torch.zeros(()), None, None


class Boundary(nn.Module):
    """A cut between two stages: activations cross it forward, their gradients backward.

    In one process, for studies, it is a layer, `x = boundary(x)`. Between ranks the first stage calls
    `token = boundary.send(x)` and later `token.backward()`, the second `x = boundary.receive()`. After each step of
    the optimiser all call `boundary.step()`. docs/pipeline.md has codecs, memories and bytes.

    Args:
        sample_shape: the shape of one sample's activation.
        samples: the number of samples in a micro-batch; memories none and aqsgd accept fewer, too.
        codec, memory, per_sample: for activations: "uniform:bits=4", "aqsgd:key=sample".
        gradient_codec, gradient_memory, gradient_per_sample: for gradients. If absent: the activations' codec,
            no memory, and per_sample as for activations.
        at_positions: whether gradients are sent only at the positions that a sparse codec kept of activations;
            gradient_codec is then fp32, fp16 or bf16.
        micro_batches: the number of micro-batches in a step.
        at_inference: whether activations also pass the codec (without memory) in eval mode.
        to_rank, from_rank: the rank of the other stage; exactly one of them, or none in one process.
        process_group: a process group; beside one of nccl alone thinwire makes one of gloo. All its ranks must build their first boundary at the same
            place among the thinwire objects that they build.
        index: the number of the boundary, if there are several in a process or between two ranks.
        steps_per_epoch: if a codec follows a schedule in epochs: the steps in an epoch, or the DataLoader.
        cache_budget, spill_folder: how many bytes of samples' estimates stay in memory, and where the rest goes.
        deadline_seconds: the longest wait for the other rank.
        device: where `receive` puts activations; what is sent may lie anywhere.

    Raises:
        thinwire.errors.Error: a name or option is wrong, or does not fit another.
    """

    @explains_keywords
    def __init__(
        self,
        sample_shape: Sequence[int],
        samples: int,
        *,
        codec: Union[str, Codec] = "fp32",
        memory: str = "none",
        per_sample: bool = False,
        gradient_codec: Union[str, Codec, None] = None,
        gradient_memory: str = "none",
        gradient_per_sample: Optional[bool] = None,
        at_positions: bool = False,
        micro_batches: int = 1,
        at_inference: bool = False,
        to_rank: Optional[int] = None,
        from_rank: Optional[int] = None,
        process_group: Optional[dist.ProcessGroup] = None,
        index: int = 0,
        seed: int = 0,
        steps_per_epoch: Union[int, Sized, None] = None,
        cache_budget: int = 0,
        spill_folder: Union[str, os.PathLike[str]] = "",
        deadline_seconds: float = 60.0,
        device: Union[str, torch.device] = "cpu",
    ) -> None:
        super().__init__()
        check = Arguments("Boundary")
        codec = check.codec(codec)
        gradient_codec = codec if gradient_codec is None else check.codec(gradient_codec, "gradient_codec")
        check.texts(memory=memory, gradient_memory=gradient_memory)
        check.flags(per_sample=per_sample, at_positions=at_positions, at_inference=at_inference,
                    gradient_per_sample=per_sample if gradient_per_sample is None else gradient_per_sample)
        check.shape(sample_shape=sample_shape)
        check.counts(1, samples=samples)
        check.whole(1, _MOST, micro_batches=micro_batches)
        check.whole(0, _MOST - 1, index=index)
        check.whole(0, 2**62, cache_budget=cache_budget)
        check.seed(seed)
        check.seconds(deadline_seconds=deadline_seconds)
        if to_rank is not None and from_rank is not None:
            raise ContractError("a boundary has one other side: give to_rank or from_rank")
        self._shape, self._device = tuple(sample_shape), torch.device(device)
        self._peer = from_rank if to_rank is None else to_rank
        self._first, self._second = from_rank is None, to_rank is None
        if self._peer is not None:
            check.peer("from_rank" if to_rank is None else "to_rank", self._peer, process_group)
        self._samples, self._tag = samples, 3 * _MOST * index
        self._wire = None if self._peer is None else _wire_of(process_group, deadline_seconds)
        here = 0 if self._wire is None else self._wire.rank
        common = {"name": f"boundary {index}", "sample_shape": list(self._shape), "samples": samples,
                  "micro_batches": micro_batches, "seed": seed, "cache_budget": cache_budget,
                  "steps_per_epoch": check.steps_per_epoch(steps_per_epoch), "spill_folder": os.fspath(spill_folder)}
        forward = {**common, "codec": codec, "memory": memory, "per_sample": per_sample,
                   "stream": 4 * index, "sender": here if self._first else self._peer}
        backward = {**common, "codec": gradient_codec, "memory": gradient_memory, "stream": 4 * index + 1,
                    "per_sample": per_sample if gradient_per_sample is None else gradient_per_sample,
                    "sender": here if self._second else self._peer}
        plain = {**forward, "codec": codec if at_inference else "fp32", "memory": "none",
                 "stream": 4 * index + 2, "micro_batches": 1}
        near, far = (KeptPositions() if at_positions else None for _ in range(2))
        self._activations = _Direction(forward, self._first, self._second, note=(near, far))
        self._gradients = _Direction(backward, self._second, self._first, at=(far, near))
        self._inference = _Direction(plain, self._first, self._second)
        self._plain_here = not at_inference and self._wire is None
        self._step = self._visits = self._seen = 0
        self._bytes = {"forward_bytes": 0, "backward_bytes": 0}

    def forward(
        self, values: torch.Tensor, *, ids: Sequence[int] = (), batch: int = 0
    ) -> torch.Tensor:
        """Returns what arrives on the other side, in one process. The gradient takes the other direction.

        Args:
            ids: the ids of the samples, for memories that work by sample.
            batch: the id of the mini-batch, for "aqsgd:key=batch".
        """
        if self._wire is not None:
            raise ContractError("a boundary between ranks has send and receive")
        if not self.training:
            return values if self._plain_here else self._infer(values)
        return _Pass.apply(values, self, self._next_visit(ids, batch))

    def send(
        self, values: torch.Tensor, *, ids: Sequence[int] = (), batch: int = 0
    ) -> torch.Tensor:
        """Sends activations to the second stage, in order of micro-batches; returns at once.

        Returns:
            A scalar whose `backward()` waits for the gradient and continues with it.
        """
        if self._wire is None or not self._first:
            raise ContractError("send is for the stage that was given to_rank")
        if not self.training:
            self._ship(self._inference, values, self._next_look(), _LOOK)
            return torch.zeros(())
        return _Send.apply(values, self, self._next_visit(ids, batch))

    def receive(self, *, ids: Sequence[int] = (), batch: int = 0) -> torch.Tensor:
        """Returns the activations of the next micro-batch, float32. The backward pass sends their gradient."""
        if self._wire is None or not self._second:
            raise ContractError("receive is for the stage that was given from_rank")
        if not self.training:
            return self._await(self._inference, self._next_look(), _LOOK).to(self._device)
        anchor = torch.zeros((), requires_grad=True)
        return _Receive.apply(anchor, self, self._next_visit(ids, batch))

    # copy.deepcopy and pickle, as torch.save of a whole model, come here.
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedError("Boundary: it cannot be copied or saved whole, because both of its ends remember what crossed it: "
                               "save the model's state_dict(), which has its memories, and build a model to copy without it")

    def step(self, *, skipped: bool = False) -> None:
        """Ends a step. The changes of memories become permanent; if the step was skipped or a value was not finite,
        they are discarded. Both sides must give the same argument."""
        self._activations.end_step(skipped)
        self._gradients.end_step(skipped)
        self._step += 1
        self._visits = 0

    def invalidate(self) -> None:
        """Forgets what memories know of samples, for example if ids now mean others. Call it on both sides."""
        for end in (*self._activations.ends, *self._gradients.ends):
            end.invalidate()

    def metrics(self) -> dict[str, int]:
        """Returns steps, and the forward_bytes and backward_bytes that this process encoded so far."""
        return {"steps": self._step, **self._bytes}

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the memories, as part of a module's state_dict."""
        return {"step": self._step, "ends": [to_tensor(end.save()) for end in self._all_ends()]}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        ends = self._all_ends()
        if len(state["ends"]) != len(ends):
            raise ContractError("the state is of a boundary that has other ends in its process")
        for end, saved in zip(ends, state["ends"]):
            end.load(from_tensor(0, saved))
        self._step, self._visits = int(state["step"]), 0

    def _all_ends(self) -> list[Any]:
        return [*self._activations.ends, *self._gradients.ends]

    def _next_visit(self, ids: Sequence[int], batch: int) -> tuple[Any, ...]:
        micro_batch, self._visits = self._visits, self._visits + 1
        return self._step, micro_batch, [int(one) for one in ids], int(batch)

    def _next_look(self) -> tuple[Any, ...]:
        self._seen += 1
        return self._seen, 0, [], 0

    def _cross(
        self, direction: _Direction, values: torch.Tensor, visit: tuple[Any, ...]
    ) -> torch.Tensor:
        message = self._encode(direction, values, visit)
        return direction.decode(message, visit, values.shape).to(values)

    def _infer(self, values: torch.Tensor) -> torch.Tensor:
        arrived = self._cross(self._inference, values, self._next_look())
        self._inference.end_step(skipped=True)
        return arrived

    def _encode(
        self, direction: _Direction, values: torch.Tensor, visit: tuple[Any, ...]
    ) -> torch.Tensor:
        message = direction.encode(values, visit)
        if direction is not self._inference:
            which = "forward_bytes" if direction is self._activations else "backward_bytes"
            self._bytes[which] += message.numel()
        return message

    def _ship(
        self, direction: _Direction, values: torch.Tensor, visit: tuple[Any, ...], tag: int
    ) -> None:
        message = self._encode(direction, values, visit)
        assert self._wire is not None
        self._wire.send(message, values.shape[0], self._peer, self._tag + _MOST * tag + visit[1])
        if direction is self._inference:
            direction.end_step(skipped=True)

    def _await(self, direction: _Direction, visit: tuple[Any, ...], tag: int) -> torch.Tensor:
        assert self._wire is not None
        message, samples = self._wire.receive(
            direction.limit, self._peer, self._tag + _MOST * tag + visit[1]
        )
        if samples > self._samples:
            raise CorruptError(f"boundary: rank {self._peer} announces {samples} samples")
        arrived = direction.decode(message, visit, (samples, *self._shape))
        if direction is self._inference:
            direction.end_step(skipped=True)
        return arrived
