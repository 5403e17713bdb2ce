"""What compress is given: models that others wrapped, codecs as objects, and models that it does not take.
SPDX-License-Identifier: Apache-2.0"""
import copy
import io
import time
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import thinwire
from nets import batch_of, make_net, weights_of
from ranks import on_ranks
from states import content


def train(model, rank, steps, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        images, labels = batch_of(step, rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return weights_of(model)


def compiled(rank, size):
    """Steps and weights, where torch.compile is outside, inside or nowhere."""
    import thinwire.torch as tw
    found = []
    for wrap in (lambda net: DistributedDataParallel(net),
                 lambda net: torch.compile(DistributedDataParallel(net), backend="eager"),
                 lambda net: DistributedDataParallel(torch.compile(net, backend="eager"))):
        model = wrap(make_net())
        link = tw.compress(model, "topk:density=0.05")
        found.append((train(model, rank, 3), link.metrics()["step"]))
    return found


def as_objects(rank, size):
    import thinwire.torch as tw
    found = []
    for make in (str, thinwire.Codec):
        model = DistributedDataParallel(make_net())
        link = tw.compress(model, make("topk:density=0.05"), rules={"*.bias": make("fp16")})
        train(model, rank, 2)
        link.change(make("int8"), rules={"4.*": make("topk:density=0.2")})
        found.append((train(model, rank, 2), content(link.state_dict())["changed"]["codec"]))
    return found


def copies(rank, size):
    """A linked model, and one without a link, are copied for a moving average and saved; copies average as without
    thinwire and may get a link."""
    import thinwire.torch as tw
    found = []
    for codec in (None, "topk:density=0.05"):
        model = DistributedDataParallel(make_net())
        link = codec and tw.compress(model, codec)
        train(model, rank, 1)
        mean = torch.optim.swa_utils.AveragedModel(model)
        other = copy.deepcopy(model)
        alone = train(other, rank, 1)
        if link:
            new = tw.compress(copy.deepcopy(model), codec)
            assert new.metrics() == {}
        memory = io.BytesIO()
        torch.save(model, memory)
        memory.seek(0)
        loaded = torch.load(memory, weights_only=False)
        found.append((torch.equal(weights_of(loaded), weights_of(model)), alone, link and link.metrics()["step"],
                      weights_of(mean.module)))
    return found


def shards_its_optimiser(rank, size):
    import thinwire.torch as tw
    found = []
    for kind in (torch.optim.Adam, None):
        model = DistributedDataParallel(make_net())
        tw.compress(model, "topk:density=0.05")
        optimizer = (kind(model.parameters(), lr=0.01) if kind else
                     ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01))
        found.append(train(model, rank, 3, optimizer))
    return found


def refused(rank, size):
    import thinwire.torch as tw

    def hook(state, bucket):
        raise AssertionError

    def with_link(model):
        tw.compress(model, "int8")
        return model

    def with_hook(model):
        model.register_comm_hook(None, hook)
        return model

    wrap = DistributedDataParallel
    mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
    cases = {
        "plain": lambda: make_net(),
        "compiled": lambda: torch.compile(make_net(), backend="eager"),
        "fsdp": lambda: FullyShardedDataParallel(make_net(), device_id=torch.device("cpu")),
        "fully_shard": lambda: fully_shard(nn.Linear(4, 4), mesh=mesh),
        "second link": lambda: with_link(wrap(make_net())),
        "second link, compiled": lambda: torch.compile(with_link(wrap(make_net())), backend="eager"),
        "hook": lambda: with_hook(wrap(make_net())),
    }
    found = {}
    for name, make in cases.items():
        try:
            tw.compress(make(), "topk:density=0.1")
            found[name] = "nothing"
        except thinwire.errors.Error as error:
            found[name] = f"{type(error).__name__}: {error}"
    for codec in (7, None):
        try:
            tw.compress(wrap(make_net()), codec)
        except thinwire.errors.Error as error:
            found[repr(codec)] = str(error)
    return found


def once_more(rank, size):
    """What the refusal of a second link advises."""
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net())
    link = tw.compress(model, "int8")
    train(model, rank, 1)
    try:
        tw.compress(model, "fp32")
    except thinwire.errors.ContractError:
        link.change("fp32")
        train(model, rank, 1)
    again = DistributedDataParallel(model.module)
    tw.compress(again, "fp16")
    return train(again, rank, 1), link.metrics()["step"]


def on_one_rank(rank, size):
    """The other rank goes on without; it comes back when this one has given up."""
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net(), broadcast_buffers=False)
    began = time.monotonic()
    try:
        if rank == 0:
            tw.compress(model, "int8", deadline_seconds=3)
        else:
            time.sleep(5)
    except thinwire.errors.Error as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - began
    return "nothing", 0.0


class Wrapped(unittest.TestCase):
    def test_compiled_models(self):
        first, second = on_ranks(2, compiled)
        for (plain, outside, inside), other in zip((first, second), (second, first)):
            for weights, steps in (outside, inside):
                self.assertEqual(steps, 3)
                self.assertLess((weights - plain[0]).abs().max().item(), 1e-6)
            self.assertTrue(torch.equal(outside[0], other[1][0]))

    def test_codecs_as_objects(self):
        for (texts, codec), (objects, other) in on_ranks(2, as_objects):
            self.assertTrue(torch.equal(texts, objects))
            self.assertEqual(codec.partition(":")[0], other.partition(":")[0])

    def test_models_with_a_link_are_copied_and_saved_without_it(self):
        first, second = on_ranks(2, copies)
        for (_, plain, _, _), (same, alone, steps, mean) in (first, second):
            self.assertTrue(same)
            self.assertEqual(steps, 1)
            self.assertGreater((plain - alone).abs().max().item(), 0)
            self.assertTrue(torch.equal(alone, first[1][1]))
            self.assertTrue(torch.equal(mean, first[1][3]))

    def test_an_optimiser_whose_state_is_sharded(self):
        for whole, sharded in on_ranks(2, shards_its_optimiser):
            self.assertLess((whole - sharded).abs().max().item(), 1e-6)

    def test_others_are_refused_with_the_way(self):
        expected = {
            "plain": r"ContractError: .*not Sequential; wrap it first: compress\(DistributedDataParallel\(model\)",
            "compiled": "ContractError: .*not Sequential; wrap it first",
            "fsdp": "UnsupportedError: .*FullyShardedDataParallel has no place for a link.*fully_shard",
            "fully_shard": "UnsupportedError: .*leaves no shards",
            "second link": r"ContractError: .*has a link already: link.change\(codec\)",
            "second link, compiled": "ContractError: .*has a link already",
            "hook": "ContractError: .*communication hook 'hook'.*leave register_comm_hook out",
            "7": "codec is 7, must be a text.*or a thinwire.Codec",
            "None": "codec is None, must be a text",
        }
        for found in on_ranks(2, refused):
            self.assertEqual(found.keys(), expected.keys())
            for name, error in found.items():
                self.assertRegex(error, expected[name])

    def test_what_a_second_link_is_advised_to_do_works(self):
        first, second = on_ranks(2, once_more)
        self.assertTrue(torch.equal(first[0], second[0]))
        self.assertEqual(first[1], 2)

    def test_one_rank_alone_gets_a_hint_at_the_deadline(self):
        (error, seconds), (other, _) = on_ranks(2, on_one_rank)
        self.assertRegex(error, "TimeoutError: compress: .*do all ranks call it")
        self.assertLess(seconds, 8)
        self.assertEqual(other, "nothing")


if __name__ == "__main__":
    unittest.main()
