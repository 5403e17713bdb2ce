"""torch.set_default_dtype, as scripts of bfloat16 models call it, changes nothing in thinwire's own tensors.
SPDX-License-Identifier: Apache-2.0"""
import unittest

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import on_ranks


def model_of():
    torch.manual_seed(1)
    return nn.Linear(8, 6, dtype=torch.bfloat16)


def trained(model, optimizer, rank, steps=2):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(3, 8, generator=generator, dtype=torch.bfloat16)).square().mean().backward()
        optimizer.step()
    return [one.detach() for one in model.parameters()]


def sharded(**settings):
    """A model and its link."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    import thinwire.torch as tw
    size = torch.distributed.get_world_size()
    model = fully_shard(model_of(), mesh=init_device_mesh("cpu", (size,)))
    return model, tw.compress(model, "int8", feedback="loco", **settings)


def sgd(model, momentum=0.0):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)


def averaged(rank):
    import thinwire.torch as tw
    model = model_of()
    return trained(model, tw.PeriodicAveraging(sgd(model), model, tau=1), rank)


def gathered(rank):
    model, _ = sharded(weights="int8")
    return [one.to_local() for one in trained(model, sgd(model), rank)]


def summed(rank):
    import thinwire.torch as tw
    return [tw.TensorParallel("int8").reduce_from_ranks(torch.full((4, 8), 0.3 + rank, dtype=torch.float32))]


def released(rank):
    """The momentum that memories of two ranks held, each that of some parameters."""
    import thinwire.torch as tw
    model = DistributedDataParallel(model_of())
    optimizer = sgd(model, 0.9)
    link = tw.compress(model, "fp32", optimizer=optimizer, momentum="memory", inside=2)
    trained(model, optimizer, rank)
    link.release_optimizer()
    return [optimizer.state[one]["momentum_buffer"] for one in model.parameters()]


def with_both_defaults(rank, size):
    found = {}
    for case in (averaged, gathered, summed, released):
        for kind in (torch.float32, torch.bfloat16):
            torch.set_default_dtype(kind)
            found.setdefault(case.__name__, []).append(case(rank))
    return found


def saved(rank, size):
    model, link = sharded()
    trained(model, sgd(model), rank)
    return link.state_dict()


def resharded(rank, size, states):
    found = []
    for kind in (torch.float32, torch.bfloat16):
        torch.set_default_dtype(kind)
        _, link = sharded()
        link.load_state_dict(states)
        ((state,),) = link.state_dict().values()
        found.append([one["state"] for one in state["modules"].values()])
    return found


class DefaultDtype(unittest.TestCase):
    def assert_same(self, usual, other, case=None):
        for one, another in zip(usual, other, strict=True):
            self.assertEqual(one.dtype, another.dtype, case)
            self.assertTrue(torch.equal(one, another), case)

    def test_steps_sums_and_momentum_are_the_same(self):
        for found in on_ranks(2, with_both_defaults):
            for case, (usual, other) in found.items():
                self.assert_same(usual, other, case)

    def test_states_load_at_another_number_of_shards(self):
        for usual, other in on_ranks(3, resharded, on_ranks(2, saved)):
            self.assert_same(usual, other)


if __name__ == "__main__":
    unittest.main()
