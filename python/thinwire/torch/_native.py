"""Loads the compiled engine, which fits only the torch for which it was built."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import atexit
import importlib.util

from ..threads import _reach

_REBUILD = "in thinwire's folder, `pip install --force-reinstall --no-deps .` builds it"

try:
    import torch
except ImportError as error:
    raise ImportError(
        f"thinwire.torch needs torch: `pip install torch`; then, {_REBUILD} for that torch"
    ) from error

if importlib.util.find_spec("thinwire.torch._engine") is None:
    raise ImportError(
        "thinwire was installed where there was no torch, so that thinwire.torch has no engine; "
        f"{_REBUILD} for torch {torch.__version__}"
    )
try:
    from . import _engine
except ImportError as error:
    raise ImportError(
        f"thinwire.torch was not built for torch {torch.__version__}; {_REBUILD} anew ({error})"
    ) from error

if torch.__version__.split("+")[0] != _engine.torch_version.split("+")[0]:
    raise ImportError(
        f"thinwire.torch was built for torch {_engine.torch_version}, this is {torch.__version__}; "
        f"{_REBUILD} anew"
    )

_reach(_engine)

# MKL's vector functions choose their code at the first call. A thread that calls at the same time may compute that once with
# other code, whose last bits differ (src/train/thread_count.h). Here there is one thread.
torch.ones(1, dtype=torch.float32, device="cpu").sqrt()

Engine = _engine.Engine
LocalWorker = _engine.LocalWorker
BoundaryReceiver = _engine.BoundaryReceiver
BoundarySender = _engine.BoundarySender
KeptPositions = _engine.KeptPositions
Gather = _engine.Gather
Wire = _engine.Wire
check_options = _engine.check_options
check_seal = _engine.check_seal
close_group = _engine.close_group
probe_link = _engine.probe_link
place_momentum = _engine.place_momentum
memory_owes = _engine.memory_owes
check_momentum_acts_once = _engine.check_momentum_acts_once
first_moment_acts = _engine.first_moment_acts

# Its threads must not wait for a process group while the interpreter goes.
atexit.register(_engine.close)
