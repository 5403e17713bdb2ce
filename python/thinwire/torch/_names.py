"""Names of parameters without what wrappers of modules add to them, and names of saved arrays."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

# Of torch.compile, of checkpoint_wrapper, and of FullyShardedDataParallel: in any place.
_ADDED = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}
# Of DataParallel, DistributedDataParallel and AveragedModel: in front of all names. A model may
# have a part of this name itself.
_OUTER = "module."


def plain_names(names: Sequence[str]) -> list[str]:
    """The names that the same parameters have in the model as it was before it was wrapped. Names
    stay as they are where two would become the same."""
    plain = [".".join(part for part in name.split(".") if part not in _ADDED) for name in names]
    while plain and all(name.startswith(_OUTER) for name in plain):
        plain = [name[len(_OUTER):] for name in plain]
    return plain if len(set(plain)) == len(set(names)) else list(names)


def stream_of(array: str) -> str:
    """The stream that an array is saved of: arrays are named STREAM/PART/KEY, and streams may have
    slashes."""
    return array.rsplit("/", 2)[0]
