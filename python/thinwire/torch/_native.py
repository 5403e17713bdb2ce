"""The compiled engine, which only fits the torch that it was built with."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import atexit

import torch

try:
    from . import _engine
except ImportError as error:
    raise ImportError(
        f"thinwire.torch was not built for torch {torch.__version__}; ./x build makes it for "
        f"the torch in .venv ({error})"
    ) from error

if torch.__version__.split("+")[0] != _engine.torch_version.split("+")[0]:
    raise ImportError(
        f"thinwire.torch was built for torch {_engine.torch_version}, this is {torch.__version__}; "
        "./x build makes it for the torch in .venv"
    )

Engine = _engine.Engine
LocalWorker = _engine.LocalWorker

# Its threads must not wait for a process group while the interpreter goes.
atexit.register(_engine.close)
