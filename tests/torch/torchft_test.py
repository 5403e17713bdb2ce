"""Tests of thinwire.torchft: replicas are threads, each with its manager. SPDX-License-Identifier: Apache-2.0"""
import contextlib
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from datetime import timedelta

os.environ.setdefault("RUST_LOG", "error")

import torch
import torch.distributed as dist
from torch import nn

import thinwire
from thinwire.errors import BadOptionError, ContractError, UnknownNameError, UnsupportedError

try:
    import torchft
except ImportError:
    torchft = None
else:
    from torchft.coordination import LighthouseServer
    from torchft.local_sgd import DiLoCo
    from torchft.manager import WorldSizeMode

    from thinwire.torchft import DistributedDataParallel, ProcessGroup

torch.set_num_threads(1)
for name in ("torchft", "torchft.manager", "torchft.checkpointing", "thinwire"):
    logging.getLogger(name).setLevel(logging.CRITICAL)


# Replicas whose steps do not count without so many: one that starts late would find the other ones' training over.
BOTH = {"min_replica_size": 2}


class Killed(Exception):
    """What a replica dies of."""


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(40, 50), nn.ReLU(), nn.Linear(50, 10))


def batch(replica, step):
    draws = torch.Generator().manual_seed(1000 * replica + step)
    x = torch.randn(16, 40, generator=draws)
    return x, (x[:, :10] + x[:, 10:20]) ** 2


def memories(group):
    """What this replica owes, by vector and parameter."""
    return {(vector.name, name.split("/")[0]): data for vector in group._vectors.values() if vector.engine is not None
            for name, *_, data in vector.engine.save() if name.endswith("/feedback/residual")}


def torchft_manager():
    """One that says what a manager says in its first step."""
    class Manager:
        current_step = staticmethod(lambda: 0)
        is_participating = staticmethod(lambda: True)
        num_participants = staticmethod(lambda: 1)
    return Manager()


class Replica(threading.Thread):
    """Trains until the manager's step is `steps`.

    Args:
        trouble: is called with the replica when it is "made", and in each step after "quorum", "backward" and "commit".
    """

    def __init__(self, lighthouse, number, steps, codec, trouble=lambda *_: None, **settings):
        super().__init__(daemon=True)
        self.number, self.steps, self.trouble, self.error = number, steps, trouble, None
        self.lighthouse, self.codec = lighthouse, codec
        self.manager_settings, self.momentum = settings.pop("manager", {}), settings.pop("momentum", 0.0)
        self.settings = {"timeout": timedelta(seconds=10), "smallest": 1, **settings}
        self.model, self.losses = net(), []
        self.start()

    def run(self):
        try:
            self.train()
        except BaseException as error:  # noqa: BLE001 - goes to the test
            self.error = error
        finally:
            with contextlib.suppress(Exception):
                self.manager.shutdown(wait=False)
                self.group.shutdown()

    def make(self):
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=self.momentum)
        self.group = ProcessGroup(self.codec, **self.settings)
        self.manager = torchft.Manager(
            pg=self.group, load_state_dict=self.load, state_dict=lambda: self.model.state_dict(),
            replica_id=f"replica_{self.number}_", store_addr="127.0.0.1", store_port=self.store.port, rank=0, world_size=1,
            lighthouse_addr=self.lighthouse, hostname="127.0.0.1",
            **{"min_replica_size": 1, "timeout": timedelta(seconds=10), **self.manager_settings})
        self.group.attach(self.manager)

    def load(self, state):
        self.model.load_state_dict(state)

    def train(self):
        self.make()
        self.trouble(self, "made")
        self.replicated = replicated = DistributedDataParallel(self.manager, self.model)
        elastic = torchft.Optimizer(self.manager, self.optimizer)
        while self.manager.current_step() < self.steps:
            x, y = batch(self.number, self.manager.current_step())
            elastic.zero_grad()
            self.trouble(self, "quorum")
            loss = nn.functional.mse_loss(replicated(x), y)
            loss.backward()
            self.trouble(self, "backward")
            elastic.step()
            self.losses.append(loss.item())
            self.trouble(self, "commit")

    def weights(self):
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])


class Outer(Replica):
    """With DiLoCo, in two fragments."""

    def train(self):
        self.make()
        self.losses = []
        fragments = [self.model[0], self.model[2]]
        outer = [torch.optim.SGD(part.parameters(), lr=0.7, momentum=0.9, nesterov=True) for part in fragments]
        with DiLoCo(self.manager, fragments, self.optimizer, outer, sync_every=4):
            while self.manager.current_step() < self.steps:
                x, y = batch(self.number, len(self.losses))
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())


@unittest.skipUnless(torchft, "torchft is not installed: pip install torchft")
class Torchft(unittest.TestCase):
    def setUp(self, replicas=1):
        self.server = LighthouseServer(bind="127.0.0.1:0", min_replicas=replicas, join_timeout_ms=1000, quorum_tick_ms=20,
                                       heartbeat_timeout_ms=1000)
        self.lighthouse = f"http://127.0.0.1:{self.server.address().rsplit(':', 1)[1]}"
        self.addCleanup(self.server.shutdown)

    def start(self, number, steps, codec, trouble=lambda *_: None, **settings):
        return Replica(self.lighthouse, number, steps, codec, trouble, **settings)

    def end(self, *replicas):
        for replica in replicas:
            replica.join(120)
            self.assertFalse(replica.is_alive(), f"replica {replica.number} hangs")
            if replica.error is not None:
                raise AssertionError(f"replica {replica.number}") from replica.error
        for replica in replicas[1:]:
            self.assertTrue(torch.equal(replicas[0].weights(), replica.weights()), replica.number)

    def test_fp32_is_the_mean_of_those_that_take_part(self):
        replicas = [self.start(number, 6, "fp32", manager={"init_sync": False, "min_replica_size": 3}) for number in range(3)]
        self.end(*replicas)
        expected = net()
        optimizer = torch.optim.SGD(expected.parameters(), lr=0.02)
        for step in range(6):
            optimizer.zero_grad()
            for number in range(3):
                x, y = batch(number, step)
                (nn.functional.mse_loss(expected(x), y) / 3).backward()
            optimizer.step()
        torch.testing.assert_close(replicas[0].weights(), torch.cat([p.detach().flatten() for p in expected.parameters()]))

    def test_replicas_that_heal_in_the_first_step_do_not_make_the_mean_smaller(self):
        takes_part = {}

        def looks(replica, where):
            if where == "backward" and replica.manager.current_step() == 0:
                takes_part[replica.number] = replica.manager.is_participating()

        # One has the weights that the other one takes over.
        replicas = [self.start(number, 1, "fp32", looks, manager=BOTH) for number in range(2)]
        self.end(*replicas)
        (one,) = (number for number, does in takes_part.items() if does)
        expected = net()
        nn.functional.mse_loss(expected(batch(one, 0)[0]), batch(one, 0)[1]).backward()
        torch.optim.SGD(expected.parameters(), lr=0.02).step()
        torch.testing.assert_close(replicas[0].weights(), torch.cat([p.detach().flatten() for p in expected.parameters()]))

    def test_every_kind_of_codec_trains(self):
        for codec in ("int8", "sidco:density=0.1", "dgc:density=0.1", "powersgd:rank=2"):
            with self.subTest(codec):
                replicas = [self.start(number, 25, codec, manager=BOTH) for number in range(2)]
                self.end(*replicas)
                self.assertLess(sum(replicas[0].losses[-5:]), 0.9 * sum(replicas[0].losses[:5]))
                sent = replicas[0].group.metrics()
                self.assertGreater(sent["dense_bytes"], 1.5 * sent["sent_bytes"])

    def test_rules_are_by_the_names_of_parameters(self):
        rules = {"2.*": {"codec": "topk:density=0.2", "feedback": "residual"}}
        replicas = [self.start(number, 6, "powersgd:rank=2", rules=rules, smallest=64, manager=BOTH) for number in range(2)]
        self.end(*replicas)
        (vector,) = replicas[0].group._vectors.values()
        self.assertEqual({(name, *shape, kind) for name, shape, kind in vector.tensors},
                         {("0.weight", 50, 40, "linear"), ("0.bias", 50, "bias"), ("2.weight", 10, 50, "linear"),
                          ("2.bias", 10, "bias")})
        kept = {name.split("/")[0]: len(data) for name, *_, data in vector.engine.save() if name.endswith("/residual")}
        self.assertEqual(kept, {"0.weight": 4 * 2000, "2.weight": 4 * 500})
        codecs = [rule["codec"] for rule in vector.engine.options()["rules"]]
        self.assertEqual(codecs, ["topk:density=0.2"])

    def test_a_rank_that_joins_has_the_factors_of_powersgd(self):
        died, looked = threading.Event(), []

        def dies(replica, where):
            if where == "backward" and replica.manager.current_step() == 6:
                died.set()
                replica.group.shutdown()
                raise Killed

        first = [self.start(0, 25, "powersgd:rank=1", manager=BOTH), self.start(1, 25, "powersgd:rank=1", dies, manager=BOTH)]
        self.assertTrue(died.wait(60))
        other = self.start(2, 25, "powersgd:rank=1", lambda replica, where: looked.append(where), manager=BOTH)
        self.end(first[0], other)
        self.assertIsInstance(first[1].error, Killed)
        self.assertIn("commit", looked)

    def test_what_needs_names_is_refused_without_them(self):
        for codec, settings, said in (("powersgd:rank=2", {}, "powersgd factorises matrices, and a flat vector was given"),
                                      ("topk", {"rules": {"0.*": "int8"}}, "rules need the names of parameters")):
            group = ProcessGroup(codec, smallest=1, **settings)
            group.attach(torchft_manager())
            group._joined = object()
            with self.assertRaisesRegex(UnsupportedError, said):
                group.allreduce([torch.ones(8)], dist.ReduceOp.SUM).get_future().wait()
            group._joined = None

    def test_momentum_that_stays_at_the_optimiser_is_a_warning(self):
        cases = {"bursts": ("topk", {}, 0.9), "twice": ("int8", {"feedback": "dgc"}, 0.9), "dense": ("int8", {}, 0.9),
                 "in the memory": ("topk", {"feedback": "ahead:momentum=0.9"}, 0.0), "none": ("topk", {}, 0.0),
                 "of no parameter": ("topk", {"rules": {"*": "int8"}}, 0.9)}
        found = {}
        for name, (codec, settings, momentum) in cases.items():
            with warnings.catch_warnings(record=True) as texts:
                warnings.simplefilter("always")
                replica = self.start(0, 4, codec, momentum=momentum, smallest=64, **settings)
                self.end(replica)
            found[name] = [str(one.message) for one in texts if "docs/elastic.md, Momentum" in str(one.message)]
        self.assertEqual({name: len(texts) for name, texts in found.items()},
                         {"bursts": 1, "twice": 1, "dense": 0, "in the memory": 0, "none": 0, "of no parameter": 0})
        self.assertIn("leaves most values for later steps, and the optimizer's momentum acts", found["bursts"][0])
        self.assertIn("would act twice: memory 'dgc'", found["twice"][0])

    def test_a_rule_that_fits_nothing_is_named(self):
        replica = self.start(0, 3, "topk", rules={"3.*": "int8"}, smallest=64)
        replica.join(60)
        self.assertIsInstance(replica.error, BadOptionError)
        self.assertRegex(str(replica.error), r"the pattern '3\.\*' of rules decides for no parameter; there are '0.weight'")

    def test_compress_says_what_to_use(self):
        import thinwire.torch as tw
        replica = self.start(0, 2, "topk")
        self.end(replica)
        with self.assertRaisesRegex(UnsupportedError, "thinwire.torchft.ProcessGroup"):
            tw.compress(replica.replicated, "topk")

    def test_one_dies_and_others_join(self):
        died, at_start = threading.Event(), {}

        def dies(replica, where):
            if replica.manager.current_step() == 8 and where == "backward":
                died.set()
                raise Killed()

        def looks(replica, where):
            if where == "made":
                made[replica.number].set()
            if where == "quorum":
                at_start.setdefault(replica.number, memories(replica.group))
            if where == "backward" and replica.number not in taken:
                # It did not take part in its first step, healed beside it, and owes nothing yet.
                taken[replica.number] = (replica.manager.is_participating(), memories(replica.group))

        def waits(replica, where):
            if where == "quorum" and died.is_set():  # or the training might be over before they come
                self.assertTrue(all(one.wait(60) for one in made.values()))

        taken, made = {}, {1: threading.Event(), 3: threading.Event()}
        self.setUp(replicas=3)  # a group of fewer would be lost before its first step counts
        first = [self.start(number, 30, "topk:density=0.05", trouble)
                 for number, trouble in ((0, waits), (1, dies), (2, waits))]
        self.assertTrue(died.wait(60))
        others = [self.start(number, 30, "topk:density=0.05", looks) for number in (1, 3)]
        self.end(first[0], first[2], *others)
        self.assertIsInstance(first[1].error, Killed)
        self.assertLess(sum(first[0].losses[-5:]), sum(first[0].losses[:5]))
        lost = first[0].group.losses
        self.assertTrue(lost)
        self.assertEqual({loss.vector for loss in lost}, {"0"})
        # It told what it owed when its last step began, after five that left something out.
        self.assertTrue(all(loss.steps in (0, 1) and loss.owed > 0 for loss in lost), lost)
        self.assertEqual(first[2].group.losses, lost)
        for number in (1, 3):
            takes_part, owed = taken[number]
            if not takes_part:
                self.assertTrue(all(not any(values) for values in owed.values()), number)

    def test_what_is_owed_is_told_in_every_step(self):
        told = {0: {}, 1: {}}

        def looks(replica, where):
            if where == "backward" and replica.manager.num_participants() == 2:
                owed = [vector.engine.owed() for vector in replica.group._vectors.values()]  # the step is held
                told[replica.number][replica.manager.current_step()] = (replica.group.debts, sum(x * x for x in owed) ** 0.5)

        replicas = [self.start(number, 12, "topk:density=0.05", looks, manager=BOTH) for number in range(2)]
        self.end(*replicas)
        both = sorted(told[0].keys() & told[1].keys())
        self.assertGreater(len(both), 5)
        for step in both:
            debts, owed = told[0][step]
            self.assertEqual(debts, told[1][step][0])
            self.assertEqual({*debts}, {0, 1})
            for norm in (owed, told[1][step][1]):
                self.assertTrue(any(abs(norm - debt) < 1e-6 * norm + 1e-12 for debt in debts.values()), (norm, debts))
        self.assertGreater(min(told[0][both[-1]][0].values()), 0)

    def test_a_step_that_does_not_count_leaves_memories_as_they_were(self):
        seen = []

        def refuses(replica, where):
            step = replica.manager.current_step()
            if where == "backward" and step == 5 and len(seen) == 0:
                replica.manager.report_error(RuntimeError("the batch was bad"))
                seen.append(memories(replica.group))  # the step is held
            elif where == "quorum" and len(seen) == 1:
                replica.manager.wait_quorum()
                replica.group._settle(replica.manager.current_step())
                seen.append(memories(replica.group))

        replica = self.start(0, 8, "topk:density=0.05", refuses)
        self.end(replica)
        # As saved: the state of the last step that counts, also while a step is held.
        self.assertEqual(len(seen), 2)
        self.assertTrue(seen[0] == seen[1])  # assertEqual would take minutes to show how bytes differ
        self.assertEqual(len(replica.losses), 9)

    def test_a_gradient_that_is_not_finite_does_not_count(self):
        hooks = []

        def spoils(replica, where):
            if where == "quorum" and replica.manager.current_step() == 5 and not hooks:
                hooks.append(replica.model[0].weight.register_hook(lambda gradient: gradient * float("nan")))
            elif where == "commit" and hooks:
                hooks[0].remove()

        replicas = [self.start(0, 8, "topk:density=0.05", manager=BOTH), self.start(1, 8, "topk:density=0.05", spoils, manager=BOTH)]
        self.end(*replicas)
        self.assertTrue(hooks)
        self.assertTrue(replicas[0].weights().isfinite().all())

    def test_a_spare_keeps_its_memory(self):
        owed = {}

        def looks(replica, where):
            if where == "commit" and replica.manager.num_participants() == 2:
                owed.setdefault(replica.number, []).append((replica.manager.is_participating(), memories(replica.group)))

        self.setUp(replicas=3)
        spares = {"world_size_mode": WorldSizeMode.FIXED_WITH_SPARES, **BOTH}
        replicas = [self.start(number, 12, "topk:density=0.05", looks, manager=spares) for number in range(3)]
        self.end(*replicas)
        spare = [steps for steps in owed.values() if not any(takes_part for takes_part, _ in steps[3:])]
        self.assertEqual(len(spare), 1)
        for _, memory in spare[0][3:]:
            self.assertTrue(memory == spare[0][2][1])
        others = [steps for steps in owed.values() if all(takes_part for takes_part, _ in steps[3:])]
        self.assertFalse(others[0][3] == others[0][4])

    def outer(self, **settings):
        """Two replicas that train with DiLoCo."""
        replicas = [Outer(self.lighthouse, number, 12, "topk:density=0.2", smallest=64,
                          manager={"use_async_quorum": False, **BOTH}, **settings) for number in range(2)]
        for replica in replicas:
            replica.join(120)
            self.assertFalse(replica.is_alive())
            if replica.error is not None:
                raise AssertionError from replica.error
        return replicas

    def test_diloco_with_fragments(self):
        replicas = self.outer(fragments=2)
        names = {*replicas[0].group._vectors}
        self.assertEqual(names, {"0.0", "1.0"})
        sizes = {vector.name: vector.counts for vector in replicas[0].group._vectors.values()}
        self.assertEqual(sizes, {"0.0": [2000], "1.0": [500]})
        self.assertLess(sum(replicas[0].losses[-4:]), sum(replicas[0].losses[:4]))
        self.assertEqual(replicas[0].group.losses, ())

    def test_a_vector_of_another_length_is_reported(self):
        with self.assertLogs("thinwire", "WARNING") as logged:
            replicas = self.outer()
        self.assertRegex("\n".join(logged.output), "has 500 values, and had 2000; .* give ProcessGroup the number of its "
                                                   "fragments")
        losses = replicas[0].group.losses
        self.assertGreater(len(losses), 5)
        self.assertTrue(all(loss.owed > 0 and loss.vector == "0" for loss in losses), losses)

    def test_mistakes_are_named(self):
        with self.assertRaisesRegex(UnknownNameError, "topc"):
            ProcessGroup("topc")
        with self.assertRaisesRegex(BadOptionError, "density"):
            ProcessGroup("topk:density=2")
        with self.assertRaisesRegex(UnsupportedError, "ef21"):
            ProcessGroup("topk", feedback="ef21")
        with self.assertRaisesRegex(UnsupportedError, "follows the mean over all ranks' estimates, so that no rank can"):
            ProcessGroup("topk", rules={"*": {"codec": "topk", "feedback": "ef21"}})
        with self.assertRaisesRegex(BadOptionError, "density"):
            ProcessGroup("topk", rules={"*": "topk:density=2"})
        with self.assertRaisesRegex(ContractError, "fragments=0"):
            ProcessGroup("topk", fragments=0)
        with self.assertRaisesRegex(ContractError, "no torchft.Manager"):
            ProcessGroup("topk").attach(object())
        group = ProcessGroup("topk", smallest=1)
        work = group.allreduce([torch.ones(8)], dist.ReduceOp.SUM)
        with self.assertRaisesRegex(ContractError, "attach"):
            work.get_future().wait()
        work = group.allreduce([torch.ones(8, dtype=torch.float64)], dist.ReduceOp.SUM)  # the manager hears of it
        with self.assertRaisesRegex(UnsupportedError, "a torch.float64 tensor was given; it must be float32, bfloat16 or float16"):
            work.get_future().wait()

    def test_the_example(self):
        example = pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch" / "elastic.py"
        ended = subprocess.run([sys.executable, str(example), "--steps", "30", "--width", "32", "--layers", "1"],
                               text=True, capture_output=True, timeout=400)
        self.assertEqual(ended.returncode, 0, ended.stdout[-3000:] + ended.stderr[-3000:])
        self.assertIn("four replicas end with equal weights", ended.stdout)
        self.assertIn(" of 4 replicas", ended.stdout)
        self.assertIn(" lost Loss(", ended.stdout)
        losses = [float(line.split("loss ")[1].split(",")[0]) for line in ended.stdout.splitlines() if ", loss " in line]
        self.assertLess(sum(losses[-5:]), sum(losses[:5]))


class WithoutTorchft(unittest.TestCase):
    def test_it_says_what_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "torchft.py").write_text("raise ImportError('none here')\n")
            path = os.pathsep.join([folder, str(pathlib.Path(thinwire.__file__).parents[1])])
            ended = subprocess.run([sys.executable, "-c", "import thinwire.torchft"], text=True, capture_output=True,
                                   env={**os.environ, "PYTHONPATH": path})
        self.assertIn("ImportError: thinwire.torchft needs torchft: `pip install torchft`", ended.stderr)


if __name__ == "__main__":
    unittest.main()
