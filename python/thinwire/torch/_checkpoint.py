"""Every rank's own state in a checkpoint of torch.distributed.checkpoint."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, Optional, Union

import torch.distributed as dist

from ._ddp import Link
from ._local import LocalOptimizer


class Checkpoint:
    """A link or a local optimiser as an entry of `torch.distributed.checkpoint`.

        dcp.save({"model": ..., "link": tw.Checkpoint(link)}, checkpoint_id=folder)
        dcp.load({"model": ..., "link": tw.Checkpoint(link)}, checkpoint_id=folder)

    Args:
        world_size: of the ranks that saved, when it is another than now.
    """

    def __init__(
        self, owner: Union[Link, LocalOptimizer], *, world_size: Optional[int] = None
    ) -> None:
        self._owner = owner
        self._old_size = world_size

    def state_dict(self) -> dict[str, Any]:
        """One entry for each rank: entries of the same name are taken for copies of each other. In a tuple,
        an entry is stored as it is, of whatever size."""
        if self._old_size in (None, dist.get_world_size()):
            return {f"rank {dist.get_rank()}": (self._owner.state_dict(),)}
        return {f"rank {r}": () for r in range(self._old_size or 0)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        states = [entry[0] for entry in state_dict.values()]
        self._owner.load_state_dict(states[0] if len(states) == 1 else states)
