"""Tests of what writers get, and that no run ends because of them. SPDX-License-Identifier: Apache-2.0"""
import math
import time
import unittest
import warnings

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.errors
import thinwire.torch as tw
from nets import batch_of, make_net, weights_of
from ranks import on_ranks

LARGE = "4.weight"


class Scalars:
    """As torch.utils.tensorboard.SummaryWriter."""

    def __init__(self):
        self.rows = []

    def add_scalar(self, name, value, step):
        self.rows.append((name, value, step))


class Dicts:
    """As a run of W&B."""

    def __init__(self):
        self.rows = []

    def log(self, row):
        self.rows.append(row)


class Run:
    """As W&B documents `Run.log`: a row of a step that is past is dropped, and one without a step begins the next, except
    with commit=False."""

    def __init__(self):
        self.step, self.row, self.rows, self.calls = 0, {}, [], 0

    def log(self, data, step=None, commit=None):
        self.calls += 1
        if step is not None and step < self.step:
            return
        if step is not None and step > self.step:
            self._end(step)
        self.row.update(data)
        if commit or (commit is None and step is None):
            self._end(self.step + 1)

    def _end(self, step):
        self.rows, self.row, self.step = [*self.rows, (self.step, self.row)], {}, step


class FullDisk:
    def __init__(self):
        self.calls = 0

    def add_scalar(self, name, value, step):
        self.calls += 1
        raise OSError("no space left on device")


def train(model, optimizer, rank, steps, local=False):
    for step in range(steps):
        images, labels = batch_of(step, rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step(**({"loss": loss} if local else {}))


def wait_until(there):
    """Rows are written by another thread, after the step that they are of."""
    for _ in range(300):
        if there():
            return
        time.sleep(0.1)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05)


def watched(rank, size):
    model = DistributedDataParallel(make_net())
    link = tw.compress(model, "topk:density=0.05", norms=True)
    plain, layers, dicts = Scalars(), Scalars(), Dicts()
    link.log_to(plain)
    link.log_to(layers, "run", layers=True)
    link.log_to(dicts)
    train(model, sgd(model), rank, 2)
    wait_until(lambda: len(dicts.rows) == 2)
    return plain.rows, layers.rows, dicts.rows, link.metrics()


def beside_own_rows(rank, size):
    """What W&B has of a script that logs a row in each epoch, with or without a step, and nothing else."""
    found = []
    for with_step in (True, False):
        model, run = DistributedDataParallel(make_net()), Run()
        tw.compress(model, "fp16").log_to(run)
        for epoch in range(3):
            train(model, sgd(model), rank, 2)
            wait_until(lambda: run.calls == 2 * epoch + 2 + epoch)
            run.log({"loss": epoch}, **({"step": epoch} if with_step else {}))
        run.log({}, step=3)
        found.append([(step, row["loss"], row.get("thinwire/step")) for step, row in run.rows])
    return found


def without_norms(rank, size):
    model = DistributedDataParallel(make_net())
    link = tw.compress(model, "topk:density=0.05")
    dicts = Dicts()
    link.log_to(dicts, layers=True)
    train(model, sgd(model), rank, 1)
    wait_until(lambda: dicts.rows)
    return sorted(dicts.rows[0]), link.metrics()["gradient_norm"]


def failing(rank, size, strict):
    """A disk is full on rank 1 alone."""
    found = []
    for kind in ("link", "local"):
        full, other = FullDisk(), Scalars()
        module = make_net()
        model = DistributedDataParallel(module) if kind == "link" else module
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("error" if strict else "always")
            if kind == "link":
                owner, optimizer = tw.compress(model, "topk:density=0.05"), sgd(model)
            else:
                owner = optimizer = tw.PeriodicAveraging(sgd(model), model, tau=1)
            if rank == 1:
                owner.log_to(full)
            owner.log_to(other)
            train(model, optimizer, rank, 4, local=kind == "local")
            wait_until(lambda: other.rows and other.rows[-1][2] == 4)
        found.append((weights_of(module), [str(w.message) for w in seen if "log_to" in str(w.message)], full.calls,
                      other.rows[-1][2]))
    return found


def of_rounds(rank, size):
    model = make_net()
    optimizer = tw.LeaderSGD(sgd(model), model, tau=2, tau_global=2)
    dicts, scalars = Dicts(), Scalars()
    optimizer.log_to(dicts)
    optimizer.log_to(scalars, "leader")
    train(model, optimizer, rank, 4, local=True)
    return dicts.rows, scalars.rows, optimizer.metrics()


def refused(rank, size):
    model = DistributedDataParallel(make_net())
    link = tw.compress(model, "fp32")
    local = make_net()
    found = []
    for owner in (link, tw.PeriodicAveraging(sgd(local), local)):
        try:
            owner.log_to(object())
        except thinwire.errors.Error as error:
            found.append(str(error))
    return found


class Loggers(unittest.TestCase):
    def test_norms_and_layers_are_written(self):
        for plain, layers, dicts, metrics in on_ranks(2, watched):
            plain, layers = ({(name, step): value for name, value, step in rows} for rows in (plain, layers))
            for name in ("sent_bytes", "wire_ratio", "gradient_norm", "rest_norm"):
                self.assertEqual(plain[f"thinwire/{name}", 2], float(metrics[name]))
                self.assertEqual(layers[f"run/{name}", 2], float(metrics[name]))
            self.assertFalse([name for name, _ in plain if LARGE in name])
            large = next(stream for stream in metrics["streams"] if stream["name"] == LARGE)
            self.assertAlmostEqual(layers[f"run/{LARGE}/density", 2], 0.05, places=3)
            for name in ("payload_bytes", "gradient_norm", "rest_norm"):
                self.assertEqual(layers[f"run/{LARGE}/{name}", 2], float(large[name]))
                self.assertGreater(large[name], 0)
            for name in ("gradient_norm", "rest_norm"):
                of_all = math.sqrt(sum(stream[name] ** 2 for stream in metrics["streams"]))
                self.assertAlmostEqual(metrics[name], of_all, places=9)
            self.assertEqual([row["thinwire/step"] for row in dicts], [1.0, 2.0])
            self.assertEqual(dicts[1], {name: value for (name, step), value in plain.items() if step == 2})

    def test_norms_that_were_not_measured_are_not_written(self):
        for names, norm in on_ranks(2, without_norms):
            self.assertIn(f"thinwire/{LARGE}/payload_bytes", names)
            self.assertFalse([name for name in names if name.endswith("_norm")])
            self.assertEqual(norm, 0)

    def test_rows_of_the_script_itself_are_kept(self):
        for with_step, without in on_ranks(2, beside_own_rows):
            self.assertEqual(without, [(0, 0, 2.0), (1, 1, 4.0), (2, 2, 6.0)])
            self.assertEqual(with_step, [(0, 0, 4.0), (1, 1, 6.0), (2, 2, None)])  # a step ends with the next one

    def test_a_writer_that_fails_is_a_warning(self):
        for strict in (False, True):
            first, second = on_ranks(2, failing, strict)
            for (mine, none, _, last), (other, seen, calls, its_last) in zip(first, second):
                self.assertTrue(torch.equal(mine, other))
                self.assertEqual((none, last, its_last), ([], 4, 4))
                self.assertGreaterEqual(calls, 4)  # the disk may have room again
                if not strict:
                    self.assertEqual(len(seen), 1, seen)
                    self.assertRegex(seen[0], "step 1 .*OSError: no space left.*training goes on")

    def test_rounds_of_local_methods_are_written(self):
        for dicts, scalars, metrics in on_ranks(2, of_rounds):
            self.assertEqual([row["thinwire/step"] for row in dicts], [2.0, 4.0])
            self.assertEqual([row["thinwire/round"] for row in dicts], [0.0, 1.0])
            self.assertEqual(dicts[1]["thinwire/sent_bytes"], float(metrics["sent_bytes"]))
            self.assertEqual(dicts[1]["thinwire/leader"], float(metrics["leader"]))
            self.assertEqual(dicts[1]["thinwire/lowest_loss"], min(metrics["losses"]))
            self.assertIn(("leader/total_sent_bytes", float(metrics["total_sent_bytes"]), 4), scalars)

    def test_what_cannot_write_is_refused_at_once(self):
        for found in on_ranks(2, refused):
            self.assertEqual(len(found), 2)
            for text in found:
                self.assertIn("add_scalar(name, value, step)", text)
                self.assertIn("not a object", text)


if __name__ == "__main__":
    unittest.main()
