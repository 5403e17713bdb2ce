"""Workers of a gloo process group that are killed and join at random moments. SPDX-License-Identifier: Apache-2.0"""
import contextlib
import os
import random
import signal
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from churn_audit import CODEC, VALUES, Began, Counted, Joined, Log, Tried, Waited, gradient, memory_of
from run_suite import CONTEXT

OPTIONS = {"codec": CODEC, "feedback": "residual", "method": "gather", "combine": "mean", "grouping": "auto", "bucket_kb": 2048,
           "steps_per_epoch": 0, "seed": 0, "max_skipped": 0, "norms": False, "weighted": False, "inside": 1, "rules": [],
           "debts": True}


def _group_of(store, rank, size, deadline):
    group = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    backend = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=deadline))
    backend._set_sequence_number_for_group()
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
    return group


class _Worker:
    def __init__(self, number, folder, port, deadline):
        from thinwire.torch._native import Engine, close_group
        self._engines, self._close = Engine, close_group
        self.number, self.deadline, self.log = number, deadline, Log(folder, number)
        self.store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=deadline))
        self.engine, self.group = None, None
        self.weights, self.step, self.mean = np.zeros(VALUES, np.float32), 0, None

    @contextlib.contextmanager
    def waits(self, what):
        since = time.monotonic()
        try:
            yield
        finally:
            self.log(Waited(what, time.monotonic() - since))

    def come_together(self, generation, rank, size):
        self.log(Tried(generation, rank))
        with self.waits("group"):
            group = _group_of(dist.PrefixStore(f"group/{generation}", self.store), rank, size, self.deadline)
        try:
            with self.waits("regroup"):
                if self.engine is None:
                    self.engine = self._engines.join(group, [("weights", [VALUES], "other")], OPTIONS, self.deadline, generation)
                else:
                    self.engine.regroup(group, generation)
        except Exception:
            self._close(group)
            raise
        if self.group is not None:
            self._close(self.group)
        self.group = group
        joined = self.engine.joined()
        if joined["ended"]:
            self.apply()
        self.log(Joined(generation, size, memory_of(self.engine), joined["lost"]))
        store = dist.PrefixStore(f"weights/{generation}", self.store)
        if rank == joined["source"]:
            store.set("weights", self.weights.tobytes())
        if joined["takes_over"]:
            self.weights = np.frombuffer(store.get("weights"), np.float32).copy()
        self.step = joined["step"]
        self.log.weights(self.step, self.weights)

    def apply(self):
        self.log(Counted(self.step, self.mean.numpy().copy()))
        self.weights -= self.mean.numpy()
        self.step += 1
        self.log.weights(self.step, self.weights)

    def train(self, generation, size, steps):
        for _ in range(steps):
            self.log(Began(self.step, generation, size, True, memory_of(self.engine)))
            self.mean = torch.from_numpy(gradient(self.number, self.step))
            with self.waits("step"):
                self.engine.start(0, self.mean)
                self.engine.wait()
            self.apply()


def _work(number, folder, port, deadline, pipe):
    torch.set_num_threads(1)
    worker = _Worker(number, folder, port, deadline)
    while (order := pipe.recv()) is not None:
        generation, rank, size, steps = order
        try:
            worker.come_together(generation, rank, size)
            worker.train(generation, size, steps)
        except Exception as error:  # noqa: BLE001 - goes to the conductor
            pipe.send(f"{type(error).__name__}: {error}")
        else:
            pipe.send("")
    os._exit(0)


class Conductor:
    """Rounds: those that live come together, some newcomers among them, and take a few steps, while one of them may be
    killed."""

    def __init__(self, folder, seed, deadline=2.0):
        self.folder, self.draws, self.deadline = folder, random.Random(seed), deadline
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.alive, self.killed, self.numbers = {}, set(), []
        self.kills = self.joins = self.rounds = self.failed = 0
        self.usual, self.generation, self.longest = 0.3, 0, 0.0
        self.seasoned = set()  # those that came through a round
        self.errors, self.failed_last = [], False

    def join(self):
        number = len(self.numbers)
        self.numbers.append(number)
        mine, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_work, args=(number, self.folder, self.store.port, self.deadline, theirs), daemon=True)
        process.start()
        theirs.close()
        self.alive[number] = (process, mine)
        self.joins += 1

    def run(self, events):
        for _ in range(3):
            self.join()
        while self.kills + self.joins < events + 3 and not self.errors:
            self.round(self.draws.random() < 0.75)
        for _ in range(2):
            self.round(False)
        if self.failed_last:
            self.errors.append("a round without a kill failed")
        for process, pipe in self.alive.values():
            pipe.send(None)
        for process, _ in self.alive.values():
            process.join(10)
            process.kill()

    def round(self, kills):
        self.rounds += 1
        self.generation += 1
        if len(self.alive) < 3 or (len(self.alive) < 5 and self.draws.random() < 0.4):
            self.join()
        numbers = list(self.alive)
        self.draws.shuffle(numbers)
        steps = self.draws.randint(1, 4)
        since = time.monotonic()
        for rank, number in enumerate(numbers):
            self.alive[number][1].send((self.generation, rank, len(numbers), steps))
        # Never all that have weights: a newcomer's first round is not over.
        old = [number for number in numbers if number in self.seasoned]
        if kills and len(numbers) > 1:
            victim = self.draws.choice([number for number in numbers if len(old) > 1 or number not in old] or [None])
            if victim is not None:
                time.sleep(self.draws.uniform(0, 1.3 * self.usual))
                os.kill(self.alive[victim][0].pid, signal.SIGKILL)
                self.alive[victim][0].join()
                del self.alive[victim]
                self.killed.add(victim)
                self.kills += 1
        self.failed_last = False
        for number, (process, pipe) in list(self.alive.items()):
            if not pipe.poll(20 * self.deadline):
                self.errors.append(f"worker {number} hangs")
                continue
            try:
                error = pipe.recv()
            except EOFError:
                self.errors.append(f"worker {number} ended")
                del self.alive[number]
                continue
            self.failed_last = self.failed_last or bool(error)
            if not error:
                self.seasoned.add(number)
        self.failed += self.failed_last
        took = time.monotonic() - since
        self.longest = max(self.longest, took)
        if not self.failed_last:
            self.usual = 0.8 * self.usual + 0.2 * took
