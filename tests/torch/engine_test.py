"""One engine: what the hook sends is what the exchange in C++ sends for the same gradients, and a rank that is
killed ends the others. SPDX-License-Identifier: Apache-2.0"""
import os
import signal
import time
import unittest

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
from nets import batch_of, make_net
from ranks import on_ranks
from states import memories_of

STEPS = 3


class Recorder:
    """An engine that keeps the gradients it is given, and what became of them."""

    def __init__(self, engine):
        self._engine = engine
        self.given, self.means = [], []

    def start(self, index, gradient, stream):
        if not self.given or index in self.given[-1]:
            self.given.append({})
            self.means.append({})
        self.given[-1][index] = gradient.clone().numpy()
        self.means[-1][index] = gradient
        self._engine.start(index, gradient, stream)

    def wait(self):
        report = self._engine.wait()
        self.means[-1] = {i: mean.clone().numpy() for i, mean in self.means[-1].items()}
        return report

    def __getattr__(self, name):
        return getattr(self._engine, name)


def record(rank, size, codecs):
    import thinwire.torch as tw
    from thinwire.torch._parameters import describe
    found = {}
    for codec in codecs:
        model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
        link = tw.compress(model, codec, seed=5, norms=True)
        engine = link._exchange._engine = Recorder(link._exchange._engine)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        reports = []
        for step in range(STEPS):
            images, labels = batch_of(step, rank)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            reports.append(link.metrics())
        state = memories_of(link).numpy().tobytes()
        names = [(p.name, p.kind) for p in describe(model.module, set())]
        found[codec] = engine.given, engine.means, reports, state, names
    return found


def not_all_given(rank, size):
    """A step that is ended before each tensor's gradient came."""
    from thinwire.torch._native import Engine
    options = {"codec": "fp32", "feedback": "auto", "method": "auto", "combine": "mean", "grouping": "auto",
               "bucket_kb": 1, "steps_per_epoch": 1, "seed": 0, "max_skipped": 0, "norms": False, "weighted": False,
               "inside": 1, "rules": []}
    tensors = [(f"layer{i}", [100], "linear") for i in range(8)]
    found = []
    for given in ([], [3], [0, 1, 2, 3, 4, 6, 7]):
        engine = Engine(dist.group.WORLD, tensors, options, 30)
        began = time.monotonic()
        for index in given:
            engine.start(index, torch.ones(100))
        try:
            engine.wait()
            found.append("nothing")
        except thinwire.errors.ContractError as error:
            found.append(str(error))
        assert time.monotonic() - began < 30
    return found


def is_killed(rank, size):
    """Rank 1 dies when some of its gradients are on their way."""
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net(), broadcast_buffers=False, bucket_cap_mb=0.01)
    link = tw.compress(model, "int8", deadline_seconds=30, bucket_kb=1)
    for step in range(3):
        if rank == 1 and step == 2:
            first = next(model.parameters())  # the last to be ready
            first.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))
        images, labels = batch_of(step, rank)
        try:
            nn.functional.cross_entropy(model(images), labels).backward()
        except Exception as error:
            return step, link.metrics()["step"], str(error)
    return 3, 3, "nobody noticed"


class OneEngine(unittest.TestCase):
    def test_payloads_means_and_states_are_those_of_the_exchange(self):
        codecs = [codec.name for codec in thinwire.codecs()]
        ranks = on_ranks(2, record, codecs)
        for codec in codecs:
            stores = [thinwire.Store(), thinwire.Store()]
            names = ranks[0][codec][4]
            for step in range(STEPS):
                gradients = [{names[i][0]: one[codec][0][step][i] for i in range(len(names))}
                             for one in ranks]
                means, reports = thinwire.all_reduce(gradients, codec, stores=stores, step=step, seed=5,
                                                     kinds=dict(names))
                for rank, one in enumerate(ranks):
                    for i, (name, _) in enumerate(names):
                        self.assertTrue(np.array_equal(one[codec][1][step][i], means[name]),
                                        (codec, step, name))
                    metrics, report = one[codec][2][step], reports[rank]
                    self.assertEqual(metrics["sent_bytes"], report.sent_bytes, codec)
                    for mine, theirs in zip(metrics["streams"], report.streams):
                        for key in ("payload_bytes", "kept", "frame_bytes", "rest_norm"):
                            self.assertEqual(mine[key], getattr(theirs, key), (codec, key))
            for rank, one in enumerate(ranks):
                self.assertEqual(one[codec][3], stores[rank].state(), codec)


class Missing(unittest.TestCase):
    def test_gradients_that_did_not_come_are_named_at_once(self):
        for found in on_ranks(2, not_all_given):
            for error, names in zip(found, ("'layer0', 'layer1', 'layer2', 'layer3' and 4 more$",
                                            "'layer0', 'layer1', 'layer2', 'layer4' and 3 more$", "of 'layer5'$")):
                self.assertRegex(error, names)


class Killed(unittest.TestCase):
    def test_the_others_end_with_a_message_in_time(self):
        began = time.monotonic()
        for step, done, error in on_ranks(3, is_killed, lost={1}):
            self.assertEqual((step, done), (2, 2))
            self.assertIn("rank 1", error)
        self.assertLess(time.monotonic() - began, 120)


if __name__ == "__main__":
    unittest.main()
