#!/usr/bin/env python3
"""Predicted steps: ranked, with the bytes that an exchange counts, and with errors that name the choices."""

# SPDX-License-Identifier: Apache-2.0
import unittest

import numpy as np

import thinwire
from thinwire import TensorSpec

NET = [TensorSpec("fc1.weight", (300, 784), "linear"), TensorSpec("fc1.bias", (300,), "bias"),
       TensorSpec("fc2.weight", (10, 300), "linear")]


class Planned(unittest.TestCase):
    def test_the_fastest_is_first_and_a_thin_link_favours_the_smallest(self):
        found = thinwire.plan(NET, 0.001, link="1mbit,1ms", ranks=4, codecs=["int8", "topk:density=0.01 @ sparse-reduce"])
        self.assertEqual([step.codec for step in found], ["topk:density=0.01 @ sparse-reduce", "int8", "fp32"])
        self.assertEqual([step.method for step in found], ["sparse-reduce", "scatter-reduce", "scatter-reduce"])
        self.assertTrue(found.compress)
        self.assertEqual(found.of("fp32").speed_up, 1)
        self.assertEqual(found.of("fp32").limit, "bandwidth")
        self.assertAlmostEqual(found.of("int8").seconds * found.of("int8").speed_up, found.of("fp32").seconds)
        self.assertIn("int8", str(found))
        self.assertFalse(thinwire.plan(NET, 10, link="10gbit", codecs=["int8"]).compress)

    def test_it_says_what_to_do_and_what_it_was_asked(self):
        thin = thinwire.plan(NET, 0.001, link="1mbit,1ms", ranks=4, codecs="int8; fp16")
        self.assertEqual({step.codec for step in thin}, {"fp32", "int8", "fp16"})
        self.assertRegex(thin.verdict, r"^Compress: int8 takes [\d.,]+ ms a step, [\d.,]+ ms with fp32\. "
                                       r"At least 2 % faster than fp32 are: int8, fp16\.$")
        self.assertTrue(str(thin).startswith("4 ranks, link 1mbit,1ms; computation takes 1.0 ms a step\n"), str(thin))
        self.assertTrue(str(thin).endswith(thin.verdict))
        idle = thinwire.plan(NET, 10, link="10gbit", codecs="int8")
        self.assertIn("Do not compress: no codec is 2 % faster than fp32. Computation takes 100 % of a step", idle.verdict)

    def test_it_advises_a_codec_that_is_known_to_keep_accuracy(self):
        found = thinwire.plan(NET, 0.001, link="1mbit,1ms", ranks=4, codecs="int8; gaussiank:density=0.01; signum")
        self.assertEqual(found[0].codec, "gaussiank:density=0.01")
        self.assertGreater(max(one.points for one in found[0].known_errors), 1)
        self.assertEqual({one.model for one in found.of("int8").known_errors}, {"char-lstm", "resnet20"})
        self.assertEqual(found.best, found.of("int8"))
        self.assertIn("Compress: int8 takes", found.verdict)
        self.assertRegex(found.verdict, r" gaussiank:density=0\.01 would be faster; its error was .*resnet20 \+\d\.\d points above fp32\.")
        self.assertRegex(found.verdict, r"are: gaussiank:density=0\.01 \(error up to \+\d\.\d points\), .*int8[.,]")
        self.assertRegex(str(found), r"int8 .*  char-lstm [+-]\d\.\d, resnet20 [+-]\d\.\d\n")

    def test_semicolons_in_brackets_divide_nothing(self):
        from thinwire.planning import listed
        self.assertEqual(listed(" int8;; topk:density=linear(0.1;0.01;3) @ gather"),
                         ["int8", "topk:density=linear(0.1;0.01;3) @ gather"])

    def test_measured_exchanges_count_in_place_of_what_codecs_cost(self):
        from thinwire.planning import Measured, planned
        given = {"link": "none", "ranks": 2, "codecs": ["int8", "fp16"], "ready_seconds": None, "optimizer_seconds": 0,
                 "own_core": False, "per_machine": 1, "inside_link": "none", "sync": ""}
        found = planned(NET, 0.001, measured=Measured((1e-8, 1e-4), NET, {"int8": 0.5, "fp32": 0.25}), **given)
        # Without a link the exchange comes on top of the computation.
        self.assertAlmostEqual(found.of("int8").seconds, 0.501, delta=0.001)
        self.assertAlmostEqual(found.of("fp32").seconds, 0.251, delta=0.001)
        self.assertLess(found.of("fp16").seconds, 0.1)  # not measured
        ddp = found.of("DistributedDataParallel")
        values = 300 * 784 + 300 + 10 * 300
        self.assertAlmostEqual(ddp.seconds, 0.001 + 4 * values * 1e-8 + 4 * 1e-4, delta=1e-6)
        self.assertEqual(ddp.sent_bytes, 4 * values)
        self.assertEqual((found.baseline, ddp.speed_up), ("DistributedDataParallel", 1))
        self.assertEqual(found.best, found.of("fp16"))
        slow = planned(NET, 0.001, measured=Measured((1e-8, 1e-4), NET, {"fp32": 0.5, "int8": 0.5, "fp16": 0.5}), **given)
        self.assertFalse(slow.compress)
        self.assertIn("Do not compress: no codec is 2 % faster than DistributedDataParallel.", slow.verdict)
        self.assertIn("  over DDP  ", str(slow))
        # DistributedDataParallel takes 1.095 s here.
        small = planned(NET, 1.0, measured=Measured((1e-7, 1e-4), NET, {"fp32": 0.5, "int8": 0.06, "fp16": 0.5}), **given)
        self.assertEqual(small.best, small.of("int8"))
        self.assertIn(" A gain of 3 % is less than predictions are sure of: time steps with and without it", small.verdict)
        large = planned(NET, 1.0, measured=Measured((1e-7, 1e-4), NET, {"fp32": 0.5, "int8": 0.03, "fp16": 0.5}), **given)
        self.assertNotIn("A gain of", large.verdict)
        # thinwire's fp32 is no codec to choose, even where it is faster, and a codec has to be faster than that, too.
        for int8 in (5, 0.01):
            exact = planned(NET, 0.001, measured=Measured((1e-6, 1e-4), NET, {"fp32": 0.01, "int8": int8, "fp16": 5}), **given)
            self.assertGreater(exact.of("fp32").speed_up, 1.02)
            self.assertFalse(exact.compress)
            self.assertRegex(exact.verdict, r"^Do not compress: no codec is 2 % faster than thinwire's fp32\. .* A step takes 11\.0 ms "
                             r"with thinwire's fp32, [\d.,]+ ms with DistributedDataParallel: the codec fp32 has thinwire's exchange")
        both = planned(NET, 1.0, measured=Measured((1e-6, 1e-4), NET, {"fp32": 0.5, "int8": 0.1, "fp16": 5}), **given)
        self.assertRegex(both.verdict, r"^Compress: int8 takes 1,100\.\d ms a step, 1,500\.\d ms with thinwire's fp32, "
                         r"1,9\d\d\.\d ms with DistributedDataParallel\. At least 2 % faster than thinwire's fp32 are: int8\.$")

    def test_codecs_that_leave_most_values_want_a_short_trial(self):
        sparse = thinwire.plan(NET, 0.001, link="1mbit,1ms", ranks=4, codecs="topk:density=0.01 @ gather")
        self.assertTrue(sparse.best.wants_short_trial)
        self.assertIn(" compare the losses of a short run with it and without it first.", sparse.verdict)
        self.assertFalse(sparse.of("fp32").wants_short_trial)
        rounds = thinwire.plan(NET, 0.001, link="1mbit,1ms", ranks=4, sync="diloco:tau=100", codecs="topk:density=0.01")
        self.assertNotIn("short run", rounds.verdict)

    def test_it_says_what_is_not_known(self):
        only = thinwire.plan(NET, 0.001, link="1mbit,1ms", ranks=4, codecs="topk:density=0.02")
        self.assertEqual(only.best.known_errors, ())
        self.assertIn(" What topk:density=0.02 costs in accuracy is not known.", only.verdict)
        self.assertIn("  not known\n", str(only))
        rounds = thinwire.plan(NET, 0.01, link="10mbit", ranks=4, sync="diloco:tau=100", codecs="int8")
        self.assertEqual(rounds.of("int8").known_errors, ())
        self.assertIsNone(thinwire.plan(NET, 0.01, codecs=[]).best)

    def test_bytes_are_those_of_a_step(self):
        values = [{tensor.name: np.ones(tensor.shape, np.float32) for tensor in NET} for _ in range(3)]
        found = thinwire.plan(NET, 1, ranks=3, codecs=["int8"])
        for codec in ("fp32", "int8"):
            counted = thinwire.all_reduce(values, codec, kinds={tensor.name: tensor.kind for tensor in NET})
            sent = max(report.sent_bytes for report in counted.reports)
            self.assertTrue(found.of(codec).bytes_exact)
            self.assertEqual(found.of(codec).sent_bytes, sent)

    def test_gradients_that_are_complete_early_travel_early(self):
        late = thinwire.plan(NET, 2, link="10mbit", codecs=[], ready_seconds=[1.9, 1.9, 1.9]).of("fp32").seconds
        early = thinwire.plan(NET, 2, link="10mbit", codecs=[], ready_seconds=[0.1, 0.1, 0.1]).of("fp32").seconds
        after = thinwire.plan(NET, 2, link="10mbit", codecs=[], ready_seconds=[0.1, 0.1, 0.1], optimizer_seconds=1.9)
        self.assertGreater(after.of("fp32").seconds, early + 0.5)
        self.assertGreater(late, 2.5)
        self.assertLess(early, 2.4)

    def test_machines_of_several_ranks_add_up_before_they_exchange(self):
        found = thinwire.plan(NET, 0.01, link="10mbit", ranks=8, per_machine=4, inside_link="10gbit", codecs=["int8"])
        flat = thinwire.plan(NET, 0.01, link="10mbit", ranks=8, codecs=["int8"])
        for step in found:
            self.assertLess(step.between_bytes, step.sent_bytes)
            self.assertLess(step.between_bytes, flat.of(step.codec).between_bytes)
        self.assertEqual(flat.of("fp32").between_bytes, flat.of("fp32").sent_bytes)
        self.assertIn("Compress: int8 with inside=4 takes", found.verdict)
        self.assertIn("8 ranks, 4 per machine (inside=4), link 10mbit", str(found))
        self.assertNotIn("inside", str(flat))

    def test_rounds_of_local_methods_are_shared_by_steps(self):
        found = thinwire.plan(NET, 0.01, link="10mbit", ranks=4, sync="diloco:tau=100", codecs=["int8"])
        fp32, each = found.of("fp32"), thinwire.plan(NET, 0.01, link="10mbit", ranks=4, codecs=[]).of("fp32")
        self.assertAlmostEqual(fp32.sent_bytes, each.sent_bytes / 100)
        self.assertAlmostEqual(fp32.seconds, 0.01 + (fp32.longest_seconds - 0.01) / 100)
        self.assertEqual(each.seconds, each.longest_seconds)

    def test_bytes_between_machines_are_given_where_they_are_known(self):
        for sync, known in (("diloco", False), ("leader", True), ("gossip", True)):
            found = thinwire.plan(NET, 0.01, ranks=4, per_machine=2, sync=sync, codecs=[])
            self.assertEqual(found.of("fp32").between_bytes is not None, known)

    def test_the_usual_codecs_are_those_that_the_method_takes(self):
        self.assertEqual([step.codec for step in thinwire.plan(NET, 0.01, ranks=4, sync="gossip")], ["fp32"])

    def test_mistakes_name_the_choices(self):
        for changes, why in (({"link": "1gb"}, "'1gb' is no rate"), ({"codecs": ["topp"]}, "did you mean 'topk'"),
                             ({"codecs": ["int8 @ low-rank"]}, "low-rank"), ({"ranks": 0}, "1 to 65534"),
                             ({"ready_seconds": [1]}, "1 times for 3 tensors"),
                             ({"ranks": 4, "per_machine": 3}, "choose one of 1, 2, 4"),
                             ({"sync": "gossip", "codecs": ["int8"]}, "codec 'int8' is lossy"),
                             ({"sync": "dilcoo"}, "did you mean 'diloco'"), ({"inside_link": "1gb"}, "no rate"),
                             ({"ready_seconds": [1, 1, 2]}, "not before the last gradient")):
            with self.assertRaises(thinwire.Error) as raised:
                thinwire.plan(NET, 1, **changes)
            self.assertIn(why, str(raised.exception))
        with self.assertRaises(thinwire.Error) as raised:
            thinwire.plan(NET, 1, codecs=["int8"]).of("fp16")
        self.assertIn("int8", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
