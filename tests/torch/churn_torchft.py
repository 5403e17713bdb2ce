"""Replicas under torchft's lighthouse that are killed and join at random moments. SPDX-License-Identifier: Apache-2.0"""
import logging
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

LONGEST = 512  # workers


def _work(number, folder, lighthouse, deadline, progress, last, over):
    os.environ["RUST_LOG"] = "error"
    torch.set_num_threads(1)
    import torchft

    from thinwire.torchft import ProcessGroup
    for name in ("torchft", "torchft.manager", "torchft.checkpointing", "thinwire"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    log = Log(folder, number)

    class Logged(ProcessGroup):
        def _create_pg(self, store, rank, world_size):
            group = super()._create_pg(store, rank, world_size)
            log(Tried(self._generation, rank))
            return group

        def _join(self, vector):
            before = vector.generation
            super()._join(vector)
            engine = vector.engine
            if vector.generation != before:
                log(Joined(vector.generation, engine.size, memory_of(engine), engine.joined()["lost"]))
            log(Began(self._manager.current_step(), vector.generation, engine.size, self._manager.is_participating(),
                      memory_of(engine)))

    weights = torch.zeros(VALUES)
    wait = timedelta(seconds=deadline)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = Logged(CODEC, method="gather", timeout=wait)
    manager = torchft.Manager(pg=group, load_state_dict=lambda given: weights.copy_(given["weights"]),
                              state_dict=lambda: {"weights": weights.clone()}, min_replica_size=1,
                              replica_id=f"replica_{number}_", store_addr="127.0.0.1", store_port=store.port, rank=0,
                              world_size=1, lighthouse_addr=lighthouse, hostname="127.0.0.1", timeout=wait,
                              connect_timeout=wait, quorum_timeout=5 * wait)
    group.attach(manager)
    while last.value < 0 or manager.current_step() < last.value:
        since = time.monotonic()
        manager.start_quorum()
        manager.wait_quorum()
        log(Waited("quorum", time.monotonic() - since))
        step = manager.current_step()
        mean = torch.from_numpy(gradient(number, step))
        since = time.monotonic()
        manager.allreduce(mean).wait()
        log(Waited("step", time.monotonic() - since))
        since = time.monotonic()
        counts = manager.should_commit()
        log(Waited("commit", time.monotonic() - since))
        if counts:
            log(Counted(step, mean.numpy().copy()))
            weights -= mean
            log.weights(step + 1, weights.numpy())
            progress[number] = step + 1
    while not over.value:  # others may still wait for what this one sent last
        time.sleep(0.01)
    os._exit(0)


class Conductor:
    def __init__(self, folder, seed, deadline=5.0):
        os.environ.setdefault("RUST_LOG", "error")  # or it prints every quorum
        from torchft.coordination import LighthouseServer
        self.folder, self.draws, self.deadline = folder, random.Random(seed), deadline
        # A replica that lives must not be left out, however busy the machine: those that are left together would go on without
        # it, and it without them. So it has more time to join than the longest wait in a step, and its heartbeat is patient.
        self.server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=int(2000 * deadline), quorum_tick_ms=20,
                                       heartbeat_timeout_ms=2000)
        self.lighthouse = f"http://127.0.0.1:{self.server.address().rsplit(':', 1)[1]}"
        self.progress = CONTEXT.Array("q", LONGEST)
        self.last, self.over = CONTEXT.Value("q", -1), CONTEXT.Value("b", 0)
        self.alive, self.killed, self.numbers, self.errors = {}, set(), [], []
        self.kills = self.joins = 0
        self.longest = 0.0  # seconds without a step

    def join(self):
        number = len(self.numbers)
        self.numbers.append(number)
        self.alive[number] = CONTEXT.Process(target=_work, daemon=True,
                                             args=(number, self.folder, self.lighthouse, self.deadline, self.progress, self.last,
                                                   self.over))
        self.alive[number].start()
        self.joins += 1

    def watch(self, seconds, done=lambda: False):
        """Sees to it that steps go on."""
        until = time.monotonic() + seconds
        furthest, since = max(self.progress), time.monotonic()
        while time.monotonic() < until and not done():
            time.sleep(0.005)
            now = max(self.progress)
            if now > furthest:
                furthest, since = now, time.monotonic()
            self.longest = max(self.longest, time.monotonic() - since)
            for number, process in self.alive.items():
                if process.exitcode is not None:
                    self.errors.append(f"worker {number} ended with {process.exitcode}")
                    return
        if not done() and seconds > 4 * self.deadline:
            self.errors.append(f"no end within {seconds} s: steps of those that live are "
                               f"{[self.progress[number] for number in self.alive]}")

    def run(self, events):
        for _ in range(3):
            self.join()
        self.settle()
        while self.kills + self.joins < events + 3 and not self.errors:
            self.watch(self.draws.uniform(0, 1.2))
            with_weights = [number for number in self.alive if self.progress[number] > 0]
            if len(self.alive) < 3 or (len(self.alive) < 5 and self.draws.random() < 0.4):
                self.join()
            else:
                victim = self.draws.choice([number for number in self.alive
                                            if len(with_weights) > 1 or number not in with_weights] or [None])
                if victim is not None:
                    os.kill(self.alive[victim].pid, signal.SIGKILL)
                    self.alive.pop(victim).join()
                    self.killed.add(victim)
                    self.kills += 1
            if self.kills and self.kills % 10 == 0:
                self.settle()
        self.settle()
        self.last.value = max(self.progress) + 5
        self.watch(20 * self.deadline, lambda: all(self.progress[number] >= self.last.value for number in self.alive))
        self.over.value = 1
        for number, process in self.alive.items():
            process.join(10)
            if process.exitcode != 0:
                self.errors.append(f"worker {number} ended with {process.exitcode}")
            process.kill()
        self.server.shutdown()

    def settle(self):
        """All that live have come in, within the deadline of a few waits."""
        seen = {number: self.progress[number] for number in self.alive}
        self.watch(20 * self.deadline, lambda: all(self.progress[number] > seen[number] for number in self.alive))
