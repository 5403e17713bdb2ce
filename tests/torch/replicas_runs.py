"""A sharded model, its link among replicas and its optimiser, for tests. SPDX-License-Identifier: Apache-2.0"""
import torch

from gpts import make_gpt, sharded

TOPK = "topk:density=0.05"


def linked(codec, mesh, model=None, **settings):
    import thinwire.torch as tw
    model = sharded(make_gpt() if model is None else model, mesh["shard"])
    return model, tw.compress(model, codec, replicate=mesh["replicate"], **settings)


def sgd(model, momentum=0.0, rate=0.1):
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
