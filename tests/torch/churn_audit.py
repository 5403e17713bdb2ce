"""What workers that may be killed at any moment write down, and whether it adds up.

Each worker appends to a file of its own what it did, so that it outlives the worker. A worker has one vector of VALUES weights, codec
CODEC and the memory `residual`; its gradient in a step follows from its number and the step alone. SPDX-License-Identifier: Apache-2.0"""
import collections
import os
import pickle
import zlib

import numpy as np

import thinwire

VALUES = 1200
CODEC = "topk:density=0.05"

Tried = collections.namedtuple("Tried", "generation rank")  # before it comes into a group
Joined = collections.namedtuple("Joined", "generation ranks memory lost")
Began = collections.namedtuple("Began", "step generation ranks takes_part memory")
Counted = collections.namedtuple("Counted", "step mean")  # it counts here
Weights = collections.namedtuple("Weights", "step checksum")  # before that step
Waited = collections.namedtuple("Waited", "for_what seconds")


class Log:
    def __init__(self, folder, number):
        self._file = os.open(os.path.join(folder, f"{number}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, record):
        data = pickle.dumps((type(record).__name__, tuple(record)))
        os.write(self._file, len(data).to_bytes(8, "little") + data)  # all of it, or the worker died before

    def weights(self, step, weights):
        self(Weights(step, zlib.crc32(weights.tobytes())))


def read_log(folder, number):
    records = []
    with open(os.path.join(folder, f"{number}"), "rb") as file:
        while size := file.read(8):
            data = file.read(int.from_bytes(size, "little"))
            if len(data) == int.from_bytes(size, "little"):
                name, fields = pickle.loads(data)
                records.append(globals()[name](*fields))
    return records


def gradient(number, step):
    return np.random.default_rng([number, step]).standard_normal(VALUES, np.float32)


def memory_of(engine):
    """What it owes, as of the last step that counted."""
    return next(np.frombuffer(data, np.float32) for name, *_, data in engine.save() if name.endswith("/feedback/residual"))


def rest_of(signal):
    return thinwire.Codec(CODEC).encoder(VALUES).encode_with_remainder(signal)[1]


class Audit:
    """Reads the logs of all workers; `killed` are the numbers of those that were killed."""

    def __init__(self, folder, numbers, killed):
        self.errors, self.killed = [], killed
        self.logs = {number: read_log(folder, number) for number in numbers if os.path.exists(os.path.join(folder, f"{number}"))}
        self._forget_what_died()
        self.longest, self.steps, self.lost_squares = {}, 0, 0.0
        self._weights()
        self._means()
        self._losses()
        for records in self.logs.values():
            for record in records:
                if isinstance(record, Waited):
                    self.longest[record.for_what] = max(self.longest.get(record.for_what, 0.0), record.seconds)

    def _expect(self, holds, text):
        if not holds:
            self.errors.append(text)

    def _forget_what_died(self):
        """A step may count on workers that are all killed before they tell anybody. The others repeat it, with another mean."""
        last = {}  # by step and group that counted it last before being killed, or were not killed: workers
        for number, records in self.logs.items():
            began = None
            for place, record in enumerate(records):
                if isinstance(record, Began):
                    began = record
                if isinstance(record, Counted) and began is not None:
                    is_last = not any(isinstance(later, Counted) for later in records[place + 1:])
                    last.setdefault(record.step, {}).setdefault(began.generation, []).append(
                        (number, place, number in self.killed and is_last))
        for groups in last.values():
            died = [those for those in groups.values() if all(gone for _, _, gone in those)]
            if len(groups) > 1 and len(died) < len(groups):
                for number, place, _ in (one for those in died for one in those):
                    del self.logs[number][place:place + 2]  # and the weights after it

    def _weights(self):
        seen = {}
        for number, records in self.logs.items():
            for record in records:
                if isinstance(record, Weights):
                    first = seen.setdefault(record.step, (number, record.checksum))
                    self._expect(first[1] == record.checksum,
                                 f"workers {first[0]} and {number} have other weights before step {record.step}")

    def _means(self):
        """What each rank sent in a step that counted, from its memory before and after, adds up to the mean; in others
        memories did not change, but by the number of ranks."""
        means, begun = {}, collections.defaultdict(list)
        for number, records in self.logs.items():
            for record in records:
                if isinstance(record, Counted):
                    mean = means.setdefault(record.step, record.mean)
                    self._expect(np.array_equal(mean, record.mean), f"step {record.step} has several means")
        counted = self._generations_that_count()
        self.owed = {}  # by worker that was killed: what was lost with it
        for number, records in self.logs.items():
            chain = [record for record in records if isinstance(record, (Joined, Began))]
            for record, after in zip(chain, [*chain[1:], None]):
                if isinstance(record, Joined):
                    # The first one begins with nothing.
                    if record is chain[0]:
                        self._expect(not record.memory.any(), f"worker {number} owes something when it joins")
                if isinstance(record, Began):
                    again = isinstance(after, Began) and after[:2] == record[:2]  # in the same group
                    if counted.get(record.step) == record.generation and not again:
                        begun[record.step].append((number, record, after))
                        continue
                if after is None:
                    self.owed[number] = record.memory
                    continue
                scale = after.ranks / record.ranks
                change = np.abs(after.memory - record.memory * scale).max()
                self._expect(change < 1e-5, f"worker {number}: a memory changed by {change} without a step that counted, after "
                                            f"{record[:4]}")
        for step, members in begun.items():
            self.steps += 1
            share = len(members) / sum(record.takes_part for _, record, _ in members)
            total = np.zeros(VALUES)
            for number, record, after in members:
                given = record.memory + np.float32(share) * gradient(number, step) if record.takes_part else record.memory
                if after is not None:
                    left = after.memory * (record.ranks / after.ranks)
                else:
                    left = rest_of(given) if record.takes_part else record.memory
                    self.owed[number] = left
                total += given - left
                self._expect(record.ranks == len(members), f"step {step}: {len(members)} of {record.ranks} ranks began it")
            if step in means:
                error = np.abs(total / len(members) - means[step]).max()
                self._expect(error < 1e-5, f"step {step}: what was sent and the mean differ by {error}")

    def _generations_that_count(self):
        """Of each step that counted, the group."""
        counted = {}
        for number, records in self.logs.items():
            last = None
            for record in records:
                if isinstance(record, Began):
                    last = record
                if isinstance(record, Counted):
                    if last is None or last.step != record.step:
                        self.errors.append(f"worker {number} counted step {record.step} and did not begin it")
                        continue
                    self._expect(counted.setdefault(record.step, last.generation) == last.generation,
                                 f"step {record.step} counted in two groups")
        return counted

    def _losses(self):
        """Each worker that was killed and had come into a group is reported, and nobody else."""
        names, reported = {}, {}
        for number, records in self.logs.items():
            for record in records:
                if isinstance(record, Tried):
                    names[record.generation, record.rank] = number
        for number, records in self.logs.items():
            for record in records:
                if isinstance(record, Joined):
                    for generation, rank, owed, step in record.lost:
                        reported[names[generation, rank]] = (generation, owed, step)
        for number, (generation, owed, step) in reported.items():
            self._expect(number in self.killed, f"worker {number} lives and is reported lost")
            told = [float(np.linalg.norm(record.memory)) for record in self.logs[number]
                    if (isinstance(record, Began) and record.generation == generation and record.step == step)]
            for norm in told:
                self._expect(abs(norm - owed) <= 1e-4 * norm, f"worker {number} told {norm}, and {owed} is reported")
            self.lost_squares += owed * owed
        self.reported = len(reported)
        for number in self.killed:
            if any(isinstance(record, Began) for record in self.logs.get(number, [])):
                self._expect(number in reported, f"worker {number} was killed, and nobody reports it")

    def norms(self):
        """What was lost, and what was reported of it."""
        lost = sum(float(np.linalg.norm(self.owed[number])) ** 2 for number in self.killed if number in self.owed)
        return lost ** 0.5, self.lost_squares ** 0.5
