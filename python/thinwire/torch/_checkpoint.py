"""Every rank's own state in a checkpoint of torch.distributed.checkpoint."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, Optional, Union

import torch.distributed as dist

from ._link import Link
from ._local import LocalOptimizer
from ._saved import of_rank


class Checkpoint:
    """A link or a local optimiser as an entry of `torch.distributed.checkpoint`, also of one that another number
    of ranks saved.

        dcp.save({"model": ..., "link": tw.Checkpoint(link)}, checkpoint_id=folder)
        dcp.load({"model": ..., "link": tw.Checkpoint(link, world_size=2)}, checkpoint_id=folder)

    Args:
        world_size: of the ranks that saved, when it is another than now.
        shards: of the model that was saved, when it is sharded in another number now.
    """

    def __init__(
        self, owner: Union[Link, LocalOptimizer], *, world_size: Optional[int] = None, shards: Optional[int] = None
    ) -> None:
        self._owner = owner
        self._old_size, self._all = world_size, shards is not None

    def state_dict(self) -> dict[str, Any]:
        """One entry for each rank."""
        size = self._old_size or dist.get_world_size()
        if size == dist.get_world_size() and not self._all:
            mine = of_rank({}, dist.get_rank())
            return {key: value for key, value in self._owner.state_dict().items() if key in mine}
        return {f"rank {r}": () for r in range(size)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._owner.load_state_dict(state_dict)
