"""Stages of torch.distributed.pipelining whose activations and gradients cross compressed.

    from thinwire.torch.pipelining import PipelineStage

    stage = PipelineStage(module, rank, size, device, after=tw.Boundary(..., to_rank=rank + 1))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss_fn)

torch's schedules ask a stage for the transfers of each micro-batch. A stage with a boundary returns none:
it gives the boundary's message to thinwire instead, and waits for one just before it computes.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed import pipelining

from ..errors import ContractError
from ._boundary import _BACKWARD, _FORWARD, _LOOK, Boundary

__all__ = ["PipelineStage"]


class PipelineStage(pipelining.PipelineStage):
    """`torch.distributed.pipelining.PipelineStage` with boundaries to the stages beside it.

    It works with all of torch's schedules. One tensor, whose first dimension is the samples, crosses a
    boundary. After each step of the optimiser all ranks call `boundary.step()`. In `schedule.eval` boundaries
    behave as in eval mode.

    Args:
        before: the boundary to the stage before, built with `from_rank`; torch's own transfers if absent.
        after: the boundary to the stage after, built with `to_rank`.
        others: as in torch.
    """

    def __init__(
        self,
        *args: Any,
        before: Optional[Boundary] = None,
        after: Optional[Boundary] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        for boundary, side, second in ((before, "before", True), (after, "after", False)):
            if boundary is not None and (boundary._wire is None or boundary._second is not second):
                raise ContractError(
                    f"pipelining: the boundary {side} stage {self.stage_index} must be built with "
                    f"{'from_rank' if second else 'to_rank'}"
                )
        if (before is not None and self.is_first) or (after is not None and self.is_last):
            raise ContractError(f"pipelining: there is no stage beyond stage {self.stage_index}")
        self._before, self._after = before, after
        self._ids: Sequence[int] = ()
        self._batch = 0

    def set_samples(self, ids: Sequence[int], batch: int = 0) -> None:
        """Sets the samples of the next step, for memories that work by sample. All stages call it alike.

        Args:
            ids: the ids of the whole batch; schedules split them like its tensors.
            batch: the id of the mini-batch, for "aqsgd:key=batch".
        """
        self._ids, self._batch = ids, batch

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return super().get_fwd_recv_ops(fwd_chunk_id) if self._before is None else []

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        if self._after is None:
            return super().get_fwd_send_ops(fwd_chunk_id)
        values = self._only(self.fwd_cache[fwd_chunk_id][0], "output")
        self._check_peer(self._after, self.stage_index + 1)
        if self._learns():
            self._after._ship(self._after._activations, values, self._visit(self._after, fwd_chunk_id), _FORWARD)
        else:
            self._after._ship(self._after._inference, values, self._after._next_look(), _LOOK)
        return []

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return super().get_bwd_recv_ops(bwd_chunk_id) if self._after is None else []

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        if self._before is None or not self.has_backward:
            return super().get_bwd_send_ops(bwd_chunk_id)
        gradient = self._only(self.bwd_cache.pop(bwd_chunk_id), "input's gradient")
        if gradient is None:
            gradient = torch.zeros_like(self._only(self.args_recv_info[bwd_chunk_id], "input").buffer)
        self._before._ship(self._before._gradients, gradient, self._visit(self._before, bwd_chunk_id), _BACKWARD)
        return []

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        if self._before is not None:
            self._check_peer(self._before, self.stage_index - 1)
            if self._learns():
                arrived = self._before._await(
                    self._before._activations, self._visit(self._before, fwd_chunk_id), _FORWARD)
            else:
                arrived = self._before._await(self._before._inference, self._before._next_look(), _LOOK)
            self._fill(self._only(self.args_recv_info[fwd_chunk_id], "input"), arrived.values)
        return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        if self._after is not None and self.has_backward:
            arrived = self._after._await(
                self._after._gradients, self._visit(self._after, bwd_chunk_id), _BACKWARD)
            self._fill(self._only(self.grad_recv_info[bwd_chunk_id], "output's gradient"), arrived.values)
        super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)

    def _learns(self) -> bool:
        return self.has_backward and torch.is_grad_enabled()

    def _visit(self, boundary: Boundary, chunk: int) -> tuple[Any, ...]:
        ids: list[int] = []
        if len(self._ids):
            assert self.chunks is not None
            ids = torch.tensor_split(torch.as_tensor(self._ids), self.chunks)[chunk].tolist()
        return boundary._step, chunk, ids, self._batch

    def _only(self, values: Sequence[Any], what: str) -> Any:
        if len(values) != 1:
            raise ContractError(
                f"pipelining: stage {self.stage_index} has {len(values)} tensors as its {what}; a boundary "
                "carries one"
            )
        return values[0]

    def _check_peer(self, boundary: Boundary, stage: int) -> None:
        rank = self.stage_index_to_group_rank[stage]
        if boundary._peer != rank:
            raise ContractError(
                f"pipelining: stage {stage} is on rank {rank}, and the boundary of stage {self.stage_index} is "
                f"built for rank {boundary._peer}"
            )

    def _fill(self, info: Any, arrived: torch.Tensor) -> None:
        if info.buffer is None:
            return  # nobody asked for this gradient
        if info.buffer.shape != arrived.shape:
            raise ContractError(
                f"pipelining: stage {self.stage_index} expects {tuple(info.buffer.shape)}, and its boundary "
                f"is of {tuple(arrived.shape)}"
            )
        with torch.no_grad():
            info.buffer.copy_(arrived)
