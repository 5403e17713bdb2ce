"""tw.Boundary: the activations and gradients between two pipeline stages, compressed in both directions."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence, Sized
from typing import Any, NamedTuple, Optional, Union

import torch
import torch.distributed as dist
from torch import nn

from ..codec import Codec
from ..errors import ContractError, CorruptError, UnsupportedError
from ._arguments import Arguments, explains_keywords
from ._native import BoundaryReceiver, BoundarySender, KeptPositions, Wire
from ._memory import Carrier, carrier_of, on_host
from ._saved import entries, from_tensor, of_rank, to_tensor

# Tags of a boundary: index x 300 + direction x 100 + micro-batch.
_FORWARD, _BACKWARD, _LOOK = 0, 1, 2
_MOST = 100  # micro-batches, and boundaries between two ranks

_Pair = tuple[Optional[KeptPositions], Optional[KeptPositions]]  # of the sender, of the receiver
_Ends = tuple[Optional[BoundarySender], Optional[BoundaryReceiver]]

_wires: dict[dist.ProcessGroup, tuple[Wire, Carrier]] = {}
_made: dict[tuple[Any, ...], int] = {}  # boundaries so far, by their place


def _wire_of(group: dist.ProcessGroup) -> Wire:
    """One for all boundaries of a process group, since stages have different numbers of them."""
    if group not in _wires:
        carrier = carrier_of(group)
        _wires[group] = Wire(carrier.group), carrier
    return _wires[group][0]


def _number_at(place: tuple[Any, ...]) -> int:
    """How many boundaries were made at a place before; both sides of a cut make as many."""
    number = _made.get(place, 0)
    _made[place] = number + 1
    return number


class _Arrived(NamedTuple):
    values: torch.Tensor
    wants_gradient: bool  # the sender


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
        self._spec, self._note, self._at = spec, note, at
        self.sender = self._make_sender(0) if sends else None
        self.receiver = self._make_receiver(0) if receives else None
        self.limit = (self.sender or BoundarySender({**spec, "first_step": 0}, note[1], at[1])).max_message_size
        self.lost: set[int] = set()  # micro-batches of this step whose values were not finite

    def _make_sender(self, step: int) -> BoundarySender:
        return BoundarySender({**self._spec, "first_step": step}, self._note[0], self._at[0])

    def _make_receiver(self, step: int) -> BoundaryReceiver:
        return BoundaryReceiver({**self._spec, "first_step": step}, self._note[1], self._at[1])

    def loaded(self, step: int, saved: Iterable[torch.Tensor]) -> _Ends:
        """Ends that begin at `step`, with the states of `saved`: a state belongs to its step's codec."""
        ends = (None if self.sender is None else self._make_sender(step),
                None if self.receiver is None else self._make_receiver(step))
        for end, state in zip((end for end in ends if end is not None), saved):
            end.load(from_tensor(0, state))
        return ends

    def take(self, ends: _Ends) -> None:
        self.sender, self.receiver = ends
        self.lost.clear()

    @property
    def ends(self) -> list[Any]:
        return [end for end in (self.sender, self.receiver) if end is not None]

    def encode(self, values: torch.Tensor, visit: tuple[Any, ...]) -> torch.Tensor:
        message, _, finite = self.sender.encode(on_host(values.detach().float()).contiguous(), visit)
        if not finite:
            self.lost.add(visit[1])
        return message

    def decode(
        self, message: torch.Tensor, visit: tuple[Any, ...], shape: Sequence[int]
    ) -> torch.Tensor:
        """Returns the received values; all NaN if the sender's values were not finite."""
        values = torch.empty(shape, dtype=torch.float32, device="cpu")
        if not self.receiver.decode(message, visit, values):
            self.lost.add(visit[1])
            values.fill_(math.nan)
        return values

    def end_step(self, skipped: bool) -> None:
        for end in self.ends:
            end.rollback() if skipped or self.lost else end.commit()
        self.lost.clear()


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
        gradient = ctx.boundary._await(ctx.boundary._gradients, ctx.visit, _BACKWARD).values
        return gradient.view(ctx.shape).to(ctx.like), None, None


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, boundary, visit):
        ctx.boundary, ctx.visit = boundary, visit
        arrived = boundary._await(boundary._activations, visit, _FORWARD)
        ctx.is_wanted = arrived.wants_gradient
        return arrived.values.to(boundary._device)

    @staticmethod
    def backward(ctx, gradient):
        if ctx.is_wanted:
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
        self._deadline, self._number = deadline_seconds, 0
        self._wire = None
        if self._peer is not None:
            group = process_group or dist.group.WORLD
            self._number = _number_at((group, index, self._peer, self._first))
            self._wire = _wire_of(group)
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
            A scalar whose `backward()` waits for the gradient and continues with it. If nothing in front of the cut is
            trained, no gradient comes, and `backward()` does nothing.
        """
        if self._wire is None or not self._first:
            raise ContractError("send is for the stage that was given to_rank")
        if not self.training:
            self._ship(self._inference, values, self._next_look(), _LOOK)
            return torch.zeros(())
        visit = self._next_visit(ids, batch)
        if values.requires_grad and torch.is_grad_enabled():
            return _Send.apply(values, self, visit)
        self._ship(self._activations, values, visit, _FORWARD, wants_gradient=False)
        return torch.zeros((), requires_grad=True)

    def receive(self, *, ids: Sequence[int] = (), batch: int = 0) -> torch.Tensor:
        """Returns the activations of the next micro-batch, float32. The backward pass sends their gradient."""
        if self._wire is None or not self._second:
            raise ContractError("receive is for the stage that was given from_rank")
        if not self.training:
            return self._await(self._inference, self._next_look(), _LOOK).values.to(self._device)
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
        self._visits = self._seen = 0

    def invalidate(self) -> None:
        """Forgets what memories know of samples, for example if ids now mean others. Call it on both sides."""
        for end in (*self._activations.ends, *self._gradients.ends):
            end.invalidate()

    def metrics(self) -> dict[str, int]:
        """Returns steps, and the forward_bytes and backward_bytes that this process encoded so far."""
        return {"steps": self._step, **self._bytes}

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the memories, as part of a module's state_dict."""
        ends = [to_tensor(end.save()) for end in (*self._activations.ends, *self._gradients.ends)]
        return of_rank({"step": self._step, "ends": ends}, 0 if self._wire is None else self._wire.rank)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        own = entries(state)[0]
        step, saved = int(own["step"]), list(own["ends"])
        directions = (self._activations, self._gradients)
        if len(saved) != sum(len(direction.ends) for direction in directions):
            raise ContractError("the state is of a boundary that has other ends in its process")
        rest = iter(saved)
        loaded = [(direction, direction.loaded(step, rest)) for direction in (*directions, self._inference)]
        for direction, ends in loaded:
            direction.take(ends)
        self._step, self._visits, self._seen = step, 0, 0

    def _next_visit(self, ids: Sequence[int], batch: int) -> tuple[Any, ...]:
        micro_batch, self._visits = self._visits, self._visits + 1
        return self._step, micro_batch, [int(one) for one in ids], int(batch)

    def _next_look(self) -> tuple[Any, ...]:
        self._seen += 1
        return self._step, 0, [], self._seen

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
        if direction is self._gradients and visit[1] in self._activations.lost:
            values = torch.full_like(values, math.nan)  # a layer may swallow what is not finite
        message = direction.encode(values, visit)
        if direction is not self._inference:
            which = "forward_bytes" if direction is self._activations else "backward_bytes"
            self._bytes[which] += message.numel()
        return message

    def _order(self, direction: _Direction, visit: tuple[Any, ...]) -> tuple[int, int, int]:
        return self._number, visit[0], visit[3] if direction is self._inference else 0

    def _ship(
        self, direction: _Direction, values: torch.Tensor, visit: tuple[Any, ...], tag: int, wants_gradient: bool = True
    ) -> None:
        message = self._encode(direction, values, visit)
        assert self._wire is not None
        self._wire.send(message, 2 * values.shape[0] + wants_gradient, self._peer, self._tag + _MOST * tag + visit[1],
                        self._order(direction, visit))
        if direction is self._inference:
            direction.end_step(skipped=True)

    def _await(self, direction: _Direction, visit: tuple[Any, ...], tag: int) -> _Arrived:
        assert self._wire is not None
        message, note, number = self._wire.receive(
            direction.limit, self._peer, self._tag + _MOST * tag + visit[1], self._deadline, self._order(direction, visit)
        )
        if number != self._number:
            raise ContractError(
                f"boundary: rank {self._peer} has made this boundary {number + 1} times, and this rank {self._number + 1} times; "
                "after a failure both sides make it anew")
        samples, wants_gradient = divmod(note, 2)
        if samples > self._samples:
            raise CorruptError(f"boundary: rank {self._peer} announces {samples} samples")
        values = direction.decode(message, visit, (samples, *self._shape))
        if direction is self._inference:
            direction.end_step(skipped=True)
        return _Arrived(values, bool(wants_gradient))
