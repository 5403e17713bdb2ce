"""Models on GPUs, as far as a machine without one shows it: which group carries messages, what is said where something is
missing, and steps of a link whose engine takes tensors for those of a GPU, by a library that stands in for the driver.
SPDX-License-Identifier: Apache-2.0"""
import contextlib
import gc
import os
import pathlib
import sys
import threading
import types
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from nets import backward, make_net
from ranks import on_ranks

# Its memory is the processor's, and it does at once what it is asked.
DRIVER = os.environ.get("THINWIRE_FAKE_DRIVER", "")


class Stream:
    """Of a GPU that there is not."""

    cuda_stream = 5

    def __init__(self):
        self.waited_for = []

    def wait_stream(self, other):
        self.waited_for.append(other)


@contextlib.contextmanager
def taken_for_a_gpu():
    """Every tensor is one of GPU 0's; yields the stream that works on them."""
    from thinwire.torch import _exchange, _memory
    stream = Stream()
    gpu = torch.device("cuda:0")
    with (mock.patch.object(_memory, "_is_here", lambda tensor: False),
          mock.patch.object(_memory, "_current_stream", lambda device: stream),
          mock.patch.object(_memory, "_in_stream", lambda entered: contextlib.nullcontext()),
          mock.patch.object(_exchange, "device_of", lambda named: gpu),
          mock.patch.object(_exchange, "engine_device", lambda device: (0, []))):
        yield stream


def weights_after(rank, codec, steps=4, **options):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net(), broadcast_buffers=False)
    link = tw.compress(model, codec, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, step, rank)
        optimizer.step()
    return [one.detach().clone() for one in model.parameters()], link


def steps_on_a_gpu(rank, size, codec, options):
    os.environ["THINWIRE_CUDA_DRIVER"] = DRIVER
    os.environ["THINWIRE_FAKE_NO_KERNELS"] = "1"
    expected, _ = weights_after(rank, codec, **options)
    with taken_for_a_gpu():
        found, link = weights_after(rank, codec, **options)
    same = all(torch.equal(a, b) for a, b in zip(expected, found))
    return same, {stream["why_staged"] for stream in link.metrics()["streams"]}


def asks_for_a_missing_gpu(rank, size):
    from thinwire.errors import UnsupportedError
    os.environ["THINWIRE_CUDA_DRIVER"] = "/nowhere/libcuda.so.1"
    with taken_for_a_gpu():
        try:
            weights_after(rank, "int8")
        except UnsupportedError as error:
            return str(error)
    return ""


def of_a_group_for_gpus(rank, size):
    """Of gloo, but for tensors of GPUs alone, as nccl's are."""
    import thinwire.torch as tw
    from thinwire.torch import _memory
    only_gpus = dist.new_group(backend="cuda:gloo")
    carries = [_memory.carries_host_memory(group) for group in (dist.group.WORLD, only_gpus)]
    own = _memory.carrier_of(only_gpus)
    again = _memory.carrier_of(only_gpus)
    torch.manual_seed(rank)
    model = torch.nn.Linear(4, 3)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = tw.PeriodicAveraging(inner, model, tau=1, process_group=only_gpus)
    model(torch.full((2, 4), float(rank))).sum().backward()
    optimizer.step()
    boundary = tw.Boundary((3,), 2, process_group=only_gpus, **{("to_rank", "from_rank")[rank]: 1 - rank})
    if rank == 0:
        token = boundary.send(torch.full((2, 3), 6.0, requires_grad=True))
        token.backward()
        crossed = 6.0
    else:
        arrived = boundary.receive()
        arrived.sum().backward()
        crossed = arrived[0, 0].item()
    same = own is again and own.group is not only_gpus and _memory.host_group(only_gpus) is own.group
    return carries, same, _memory.host_group(own.group) is own.group, model.weight.detach().clone(), crossed


def _averages(group, rank):
    """A link over the group, and whether its ranks came to have the same weights."""
    import thinwire.torch as tw
    torch.manual_seed(rank)
    model = torch.nn.Linear(4, 3)
    optimizer = tw.PeriodicAveraging(torch.optim.SGD(model.parameters(), lr=0.1), model, tau=1, process_group=group)
    model(torch.full((2, 4), float(rank))).sum().backward()
    optimizer.step()
    weights = [torch.empty(3, 4) for _ in range(2)]
    dist.all_gather(weights, model.weight.detach().contiguous())
    return optimizer, torch.equal(*weights)


def _let_go():
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "thinwire":
            thread.join(30)


def of_links_that_end(rank, size):
    from thinwire.torch import _memory
    only_gpus = dist.new_group(backend="cuda:gloo")
    averaged, threads, held = [], [], []
    for _ in range(4):
        link, same = _averages(only_gpus, rank)
        averaged.append(same)
        held.append(_memory._held(only_gpus) is not None)
        del link
        _let_go()
        held.append(_memory._held(only_gpus) is not None)
        dist.barrier()
        threads.append(len(os.listdir("/proc/self/task")))
    return averaged, held, threads


def of_ranks_that_release_at_other_times(rank, size):
    from thinwire.torch import _memory
    only_gpus = dist.new_group(backend="cuda:gloo")
    held = _memory.carrier_of(only_gpus) if rank == 0 else [_memory.carrier_of(only_gpus)].clear()
    _let_go()
    now = _memory.carrier_of(only_gpus)
    found = torch.ones(1)
    _memory.all_reduce(found, only_gpus, 60.0)
    return now is held, found.item()


def compares_on_a_gpu(rank, size):
    """As device/check_torch.py does; what rank 1 has on its device is wrong."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "device"))
    import check_torch
    here = torch.arange(3.0)
    good = check_torch.compared(here, here.clone(), True)
    wrong = check_torch.compared(here, here + rank, rank == 0)
    return good, wrong, check_torch.codec_names()


def at(device):
    return types.SimpleNamespace(device=torch.device(device))


class Devices(unittest.TestCase):
    def test_a_model_has_one_gpu(self):
        from thinwire.errors import UnsupportedError
        from thinwire.torch import _memory
        self.assertEqual(_memory.device_of([("a", at("cpu"))]), torch.device("cpu"))
        self.assertEqual(_memory.device_of([("a", at("cpu")), ("b", at("cuda:1")), ("c", at("cuda:1"))]),
                         torch.device("cuda:1"))
        with self.assertRaisesRegex(UnsupportedError, "'b' is on cuda:1, and 'a' on cuda:0"):
            _memory.device_of([("a", at("cuda:0")), ("b", at("cuda:1"))])
        with self.assertRaisesRegex(UnsupportedError, "'a' is on xpu:0"):
            _memory.device_of([("a", at("xpu:0"))])

    def test_the_engine_is_told_its_number_and_where_compilers_are(self):
        from thinwire.torch import _memory
        self.assertIsNone(_memory.engine_device(torch.device("cpu")))
        index, folders = _memory.engine_device(torch.device("cuda:3"))
        self.assertEqual(index, 3)
        self.assertTrue(all(folder.endswith("lib") for folder in folders))

    def test_means_come_behind_the_streams_of_gradients(self):
        from thinwire.torch import _memory
        first, second, current = Stream(), Stream(), Stream()
        entered = []
        now = [first]

        @contextlib.contextmanager
        def in_stream(stream):
            entered.append(stream)
            yield

        with (mock.patch.object(_memory, "_is_here", lambda tensor: False),
              mock.patch.object(_memory, "_current_stream", lambda device: now[0]),
              mock.patch.object(_memory, "_in_stream", in_stream)):
            streams = _memory.Streams()
            self.assertEqual(streams.note(torch.zeros(1)), Stream.cuda_stream)
            now[0] = second
            streams.note(torch.zeros(1))
            streams.note(torch.zeros(1))
            now[0] = current
            with streams.wait():
                self.assertEqual(current.waited_for, [])
            self.assertEqual(entered, [first])
            self.assertEqual(current.waited_for, [first, second])
            with streams.wait():
                pass
            self.assertEqual(len(entered), 1)
            # What failed may have put work into the streams, too.
            now[0] = second
            streams.note(torch.zeros(1))
            now[0] = current
            current.waited_for.clear()
            with self.assertRaisesRegex(ValueError, "no mean"), streams.wait():
                raise ValueError("no mean")
            self.assertEqual(current.waited_for, [second])
            with streams.wait():
                pass
            self.assertEqual(entered, [first, second])
        self.assertIsNone(_memory.Streams().note(torch.zeros(1)))

    def test_flat_parameters_of_other_memory_are_copied(self):
        from thinwire.torch._flat import FlatParameters
        from thinwire.torch._parameters import describe
        model = torch.nn.Linear(4, 3)
        model.bfloat16()  # which cannot be a view of the vector either
        flat = FlatParameters(describe(model, set()), "LeaderSGD")
        self.assertEqual(flat.gather().dtype, torch.float32)
        flat.values.fill_(2.0)
        flat.scatter()
        self.assertTrue((model.weight == 2).all())
        model.weight.grad = torch.zeros_like(model.weight)
        flat.scatter_gradients(torch.full_like(flat.values, 3.0))
        self.assertTrue((model.weight.grad == 3).all())
        self.assertIsNone(model.bias.grad)


class Groups(unittest.TestCase):
    def test_a_group_of_thinwires_own_ends_with_its_last_link(self):
        for averaged, held, threads in on_ranks(2, of_links_that_end):
            self.assertEqual(averaged, [True] * 4)
            self.assertEqual(held, [True, False] * 4)
            self.assertEqual(threads[1:], threads[1:2] * 3)  # the first has those that torch starts once

    def test_ranks_that_release_it_at_other_times_find_each_other_again(self):
        for same, found in on_ranks(2, of_ranks_that_release_at_other_times):
            self.assertEqual((same, found), (False, 2.0))

    def test_a_group_without_the_processors_memory_gets_one_of_thinwires_own(self):
        for carries, cached, itself, weight, crossed in (found := on_ranks(2, of_a_group_for_gpus)):
            self.assertEqual(carries, [True, False])
            self.assertTrue(cached)
            self.assertTrue(itself)
            self.assertEqual(crossed, 6.0)
            self.assertTrue(torch.equal(weight, found[0][3]))


class Checks(unittest.TestCase):
    def test_a_difference_on_one_rank_is_one_on_all(self):
        from thinwire import codecs
        names = ("equal", "same_on_all_ranks", "same_bytes")
        for good, wrong, all_codecs in on_ranks(2, compares_on_a_gpu):
            self.assertEqual(good, dict.fromkeys(names, True))
            self.assertEqual(wrong, dict.fromkeys(names, False))
            self.assertEqual(set(all_codecs), {one.name for one in codecs()})


class Steps(unittest.TestCase):
    @unittest.skipUnless(DRIVER, "THINWIRE_FAKE_DRIVER names no library")
    def test_staged_steps_are_those_of_the_processor(self):
        for codec, options in (("int8", {}), ("topk:density=0.1", {"method": "gather"}),
                               ("sidco:density=0.05", {"bucket_kb": 1})):
            with self.subTest(codec=codec):
                for same, why in on_ranks(2, steps_on_a_gpu, codec, options):
                    self.assertTrue(same)
                    self.assertRegex(" ".join(why), "NVRTC|loading kernels")  # as there is no NVRTC, or there is one

    def test_a_missing_driver_is_named(self):
        for error in on_ranks(2, asks_for_a_missing_gpu):
            self.assertIn("there is no NVIDIA driver", error)


if __name__ == "__main__":
    unittest.main()
