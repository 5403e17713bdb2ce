"""Helpers for tests: models whose collectives go through thinwire. SPDX-License-Identifier: Apache-2.0"""
import warnings

import torch
import torch.distributed as dist

from gpts import make_gpt, sharded

LOCO = {"codec": "int4", "feedback": "loco"}


def mesh_of_all():
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh("cpu", (dist.get_world_size(),))


def linked(codec, model=None, sharding=None, **settings):
    import thinwire.torch as tw
    model = sharded(make_gpt() if model is None else model, mesh_of_all(), **(sharding or {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model, tw.compress(model, codec, **settings)


def sgd(model, momentum=0.9, rate=0.1):
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)


def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"
