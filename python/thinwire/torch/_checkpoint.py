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
    """

    def __init__(
        self, owner: Union[Link, LocalOptimizer], *, world_size: Optional[int] = None
    ) -> None:
        self._owner = owner
        self._old_size = world_size

    def state_dict(self) -> dict[str, Any]:
        """One entry for each rank."""
        if self._old_size in (None, dist.get_world_size()):
            mine = of_rank({})
            return {key: value for key, value in self._owner.state_dict().items() if key in mine}
        return {f"rank {r}": () for r in range(self._old_size or 0)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._owner.load_state_dict(state_dict)
