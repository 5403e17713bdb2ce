"""thinwire for PyTorch: compressed gradients in a DistributedDataParallel script.

    import thinwire.torch as tw

    model = DistributedDataParallel(model)
    link = tw.compress(model, "sidco:density=0.001", optimizer=optimizer)

thinwire then averages the gradients during the backward pass, by messages on the model's own process
group (backend gloo). What codecs leave out is kept and sent later; `link.state_dict()` belongs into
the checkpoint.

    optimizer = tw.LeaderSGD(torch.optim.SGD(model.parameters(), lr=0.1), model, tau=64)

is for workers that take steps of their own and communicate in rounds.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from . import _native  # first: says what is missing
from ._autoencoder import Decoder, Encoder
from ._boundary import Boundary
from ._checkpoint import Checkpoint
from ._compress import compress
from ._link import Link
from ._local import DiLoCo, ElasticAveraging, LeaderSGD, LocalOptimizer, PeriodicAveraging, SparseLoCo
from ._plan import plan
from ._tensor_parallel import TensorParallel

__all__ = [
    "Boundary",
    "Checkpoint",
    "Decoder",
    "DiLoCo",
    "ElasticAveraging",
    "Encoder",
    "LeaderSGD",
    "Link",
    "LocalOptimizer",
    "PeriodicAveraging",
    "SparseLoCo",
    "TensorParallel",
    "compress",
    "plan",
]
