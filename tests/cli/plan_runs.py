"""Plans: predicted steps, verdicts, and the file of costs. SPDX-License-Identifier: Apache-2.0"""
import json

import program
from program import settings

TWO = ("--codecs", "int8; topk:density=0.01")


class Plan(program.ProgramTest):

    def plan(self, *arguments, code=0):
        return self.thinwire("plan", *arguments, "--costs", "costs.txt", code=code)

    def planned(self, *arguments):
        out, _ = self.plan(*arguments, *TWO, "--json")
        return json.loads(out)

    def tensors(self, text="fc1.weight 512x784\nfc1.bias 512\nfc2.weight 10x512 linear\n"):
        (self.folder / "net.txt").write_text(text)
        return "net.txt"

    def make_costs(self, net):
        """Costs that do not depend on the machine: fp32 1 ns per value, the others 3; bytes none."""
        self.planned(net, "--step-seconds", "1")
        lines = (self.folder / "costs.txt").read_text().splitlines()
        head, rows = lines[:2] + ["copies: 0"], [line for line in lines[2:] if not line.startswith("copies: ")]
        lines = head + rows
        for i, line in enumerate(rows, len(head)):
            cost = "1e-9" if "fp32 / none" in line else "3e-9"
            lines[i] = "\t".join([cost, cost, "1e-6", *line.split("\t")[3:]])
        (self.folder / "costs.txt").write_text("\n".join(lines) + "\n")

    def test_a_thin_link_asks_for_compression(self):
        net = self.tensors()
        self.make_costs(net)
        plan = self.planned(net, "--step-seconds", "0.01", "--link", "10mbit,1ms", "--ranks", "4")
        self.assertTrue(plan["compress"])
        self.assertEqual([row["codec"] for row in plan["codecs"]], ["topk:density=0.01", "int8", "fp32"])
        topk, int8, fp32 = plan["codecs"]
        self.assertEqual((fp32["limit"], fp32["speed_up"], fp32["bytes_exact"]), ("bandwidth", 1, True))
        self.assertEqual((int8["bytes_exact"], topk["bytes_exact"]), (True, False))
        values = 512 * 784 + 512 + 10 * 512
        self.assertGreater(fp32["sent_bytes"], 2 * 3 / 4 * 4 * values)
        self.assertGreater(fp32["sent_bytes"] / int8["sent_bytes"], 3.5)
        self.assertGreater(fp32["seconds"], fp32["sent_bytes"] * 8 / 10e6)
        self.assertGreater(topk["memory_bytes"], 7.9 * values * 0.98)
        # The fastest ended level with fp32 on both networks of which that is known.
        self.assertRegex(plan["verdict"], r"^Compress: topk:density=0\.01 takes [\d.]+ ms a step, [\d,]+ ms with fp32\. "
                                          r"It leaves most gradient values for later steps, so compare the losses of a short run")
        self.assertGreater(plan["break_even_bits_per_second"], 10e6)

    def test_a_faster_codec_that_lost_accuracy_is_named_and_not_advised(self):
        net = self.tensors()
        out, _ = self.plan(net, "--step-seconds", "0.01", "--link", "10mbit,1ms", "--codecs", "int8; gaussiank:density=0.01")
        self.assertRegex(out, r"Compress: int8 takes [\d.]+ ms a step, [\d,]+ ms with fp32\. "
                              r"gaussiank:density=0\.01 would be faster; its error was char-lstm [+-]\d\.\d, "
                              r"resnet20 \+\d\.\d points above fp32\. ")
        out, _ = self.plan(net, "--step-seconds", "0.01", "--link", "10mbit,1ms", "--codecs", "int8; topk:density=0.02")
        self.assertRegex(out, r"Compress: int8 .*topk:density=0\.02 would be faster; what it costs in accuracy is not known\. ")

    def test_the_best_codec_may_name_its_method(self):
        net = self.tensors()
        out, _ = self.plan(net, "--step-seconds", "0.01", "--link", "1mbit", "--codecs", "topk:density=0.01 @ gather")
        self.assertRegex(out, r"Compress: topk:density=0\.01 @ gather takes .*compare the losses of a short run")

    def test_of_codecs_that_are_as_fast_the_mildest_is_advised(self):
        net = self.tensors()
        # At this rate bytes hardly count beside computation: all three are within 5 % of each other.
        out, _ = self.plan(net, "--step-seconds", "0.5", "--link", "200mbit", "--codecs",
                           "topk:density=0.01,block=4096;int8;int4")
        self.assertIn("Compress: int8 takes", out)  # the others lost more on one of the networks
        self.assertNotIn("would be faster", out)
        self.assertNotIn("compare the losses of a short run", out)
        # One that lost accuracy and is faster by less than 2 %.
        out, _ = self.plan(net, "--step-seconds", "0.5", "--link", "400mbit", "--codecs", "gaussiank:density=0.01;int8")
        self.assertRegex(out, r"(?s)gaussiank.*int8.*Compress: int8 takes")
        self.assertNotIn("would be faster", out)

    def test_the_link_between_ranks_is_probed(self):
        net = self.tensors()
        self.make_costs(net)
        words = ("plan", net, "--step-seconds", "0.01", "--link", "probe", "--costs", "costs.txt", *TWO, "--json")
        _, err = self.thinwire(*words, code=2)
        self.assertIn("--link probe: measures the link between the ranks of mpirun", err)
        if not self.mpirun:
            self.skipTest("built without MPI")
        out, _ = self.under_mpirun(*words)  # rank 0 alone speaks
        self.assertEqual(json.loads(out)["ranks"], 2)

    def test_what_costs_accuracy_or_may_is_said(self):
        net = self.tensors()
        for codec, said in (("gaussiank:density=0.01", "Its error was char-lstm +1.5, resnet20 +3.8 points above fp32."),
                            ("topk:density=0.05", "What topk:density=0.05 costs in accuracy is not known.")):
            out, _ = self.plan(net, "--step-seconds", "0.01", "--link", "1mbit", "--codecs", codec)
            self.assertIn(f"Compress: {codec} takes", out)
            self.assertIn(said, out)

    def test_what_a_byte_costs_the_processor_is_said_where_a_link_is(self):
        net = self.tensors()
        self.make_costs(net)
        costs = self.folder / "costs.txt"
        costs.write_text(costs.read_text().replace("copies: 0\n", "copies: 2.5e-10\n"))
        words = (net, "--step-seconds", "0.01")
        self.assertEqual(self.planned(*words, "--link", "1gbit")["copy_seconds_per_byte"], 2.5e-10)
        self.assertEqual(self.planned(*words)["copy_seconds_per_byte"], 0)
        said = "Sending and receiving a byte takes 0.25 ns of the processors, measured here."
        self.assertIn(said, self.plan(*words, *TWO, "--link", "1gbit")[0])
        self.assertNotIn("Sending and receiving a byte", self.plan(*words, *TWO)[0])

    def test_what_pays_over_any_link_may_not_pay_without_a_limit(self):
        net = self.tensors()
        self.make_costs(net)
        costs = self.folder / "costs.txt"
        costs.write_text(costs.read_text().replace("copies: 0\n", "copies: 1e-8\n"))  # counted where a link is
        plan = self.planned(net, "--step-seconds", "0.05")
        self.assertFalse(plan["compress"])
        self.assertRegex(plan["verdict"], r"is faster than fp32 over any link of this latency that limits the rate\.$")
        plan = self.planned(net, "--step-seconds", "0.05", "--link", "100gbit")
        self.assertTrue(plan["compress"])
        self.assertRegex(plan["verdict"], r"is faster than fp32 over any link of this latency\.$")

    def test_where_computation_sets_the_pace_it_says_so(self):
        net = self.tensors()
        self.make_costs(net)
        plan = self.planned(net, "--step-seconds", "3", "--link", "10gbit")
        self.assertFalse(plan["compress"])
        self.assertRegex(plan["verdict"], r"^Do not compress: computation is (99|100) % of an fp32 step\.")
        self.assertRegex(plan["verdict"], r"is faster than fp32 below [\d.]+ [MG]bit/s\.$")

    def test_a_gain_that_predictions_are_not_sure_of_asks_for_a_measurement(self):
        net = self.tensors()
        self.make_costs(net)
        doubtful = []
        for step in range(12):  # the longer the computation, the smaller the gain
            plan = self.planned(net, "--step-seconds", str(0.1 * 1.5**step), "--link", "100mbit,1ms")
            best = plan["codecs"][0]["speed_up"]
            self.assertEqual("less than predictions are sure of" in plan["verdict"], 1.02 <= best < 1.05, plan["verdict"])
            doubtful.append(1.02 <= best < 1.05)
        self.assertIn(True, doubtful)
        self.assertFalse(doubtful[0])

    def test_a_single_rank_sends_nothing(self):
        plan = self.planned(self.tensors(), "--step-seconds", "1", "--ranks", "1", "--link", "1mbit")
        self.assertEqual({row["sent_bytes"] for row in plan["codecs"]}, {0})
        self.assertIn("A single rank sends nothing.", plan["verdict"])

    def test_bytes_are_those_of_the_run(self):
        tiny = settings(run__workers="3")
        plan = self.planned("demo", "--step-seconds", "1", *tiny)
        for codec in ("fp32", "int8"):
            self.thinwire("train", "demo", "--out", codec, *tiny, *settings(exchange__codec=codec))
            row = next(row for row in plan["codecs"] if row["codec"] == codec)
            sent = self.summary(codec)["sent_bytes_per_step"]
            self.assertLessEqual(sent, row["sent_bytes"])  # of rank 0, and of the busiest rank
            self.assertGreater(sent, 0.95 * row["sent_bytes"])

    def test_what_only_training_has_does_not_stop_a_plan(self):
        for more in ({"exchange__flush": "measure"},
                     {"optimizer__name": "adam", "optimizer__second_moment": "ranks"}):
            out, _ = self.plan("demo", "--step-seconds", "1", *TWO, *settings(exchange__codec="topk:density=0.01", **more))
            self.assertIn("topk:density=0.01", out)

    def test_bytes_of_a_hierarchy_are_those_of_the_run(self):
        tiny = settings(run__workers="4")
        plan = self.planned("demo", "--step-seconds", "1", "--per-machine", "2", *tiny)
        self.assertEqual((plan["ranks"], plan["per_machine"]), (4, 2))
        self.thinwire("train", "demo", "--out", "run", *tiny, *settings(exchange__codec="int8", exchange__inside="2"))
        row = next(row for row in plan["codecs"] if row["codec"] == "int8")
        self.assertLess(row["between_bytes"], row["sent_bytes"] / 2)
        sent = self.summary("run")["sent_bytes_per_step"]
        self.assertLessEqual(sent, row["sent_bytes"])
        self.assertGreater(sent, 0.5 * row["sent_bytes"])  # of rank 0, and of the busiest rank

    def test_cores_are_those_of_a_machine(self):
        net = self.tensors()
        self.make_costs(net)
        words = (net, "--step-seconds", "0.01", "--link", "1gbit", "--ranks", "4", "--cores", "2")
        self.assertTrue(self.planned(*words)["own_core"])
        self.assertFalse(self.planned(*words, "--per-machine", "2")["own_core"])

    def test_a_rank_without_a_number_of_threads_leaves_the_exchange_no_core(self):
        for kind in ({}, {"model__name": "mlp", "pipeline__stages": "2"}):
            for threads, own in (("0", False), ("1", True)):
                # 1 thread is also what is left for each of 2 ranks, and what their computation is measured with.
                words = ("demo", "--step-seconds", "1", "--json", "--codecs", "fp16", "--cores", "3", "--per-machine", "2",
                         *settings(run__workers="4", run__threads=threads, **kind))
                self.assertEqual(json.loads(self.plan(*words)[0])["own_core"], own)

    def test_a_hierarchy_says_what_a_step_would_take_without_it(self):
        net = self.tensors()
        self.make_costs(net)
        out, _ = self.plan(net, "--step-seconds", "0.01", "--link", "10mbit,1ms", "--ranks", "4", "--per-machine", "2", *TWO)
        self.assertIn("4 ranks on 2 machines, 10 Mbit/s, 1 ms between these, no limit inside", out)
        self.assertRegex(out, r"between machines")
        self.assertRegex(out, r"Without a hierarchy \(exchange.inside = 1\) fp32 would take [\d,]+ ms a step, \S+ [\d.]+ ms\.")

    def test_local_methods_share_their_rounds_among_steps(self):
        net = self.tensors()
        self.make_costs(net)
        each = self.planned(net, "--step-seconds", "0.01", "--link", "10mbit", "--ranks", "4")
        plan = self.planned(net, "--step-seconds", "0.01", "--link", "10mbit", "--ranks", "4", "--sync", "diloco:tau=10")
        fp32 = {row["codec"]: row for row in plan["codecs"]}["fp32"]
        self.assertEqual(plan["way"], "local method diloco:tau=10")
        self.assertAlmostEqual(fp32["sent_bytes"], {row["codec"]: row for row in each["codecs"]}["fp32"]["sent_bytes"] / 10)
        self.assertAlmostEqual(fp32["seconds"], 0.01 + (fp32["longest_seconds"] - 0.01) / 10)
        out, _ = self.plan("demo", "--step-seconds", "1", *TWO, *settings(sync__method="leader:tau=4,tau_global=8,groups=2"))
        self.assertRegex(out, r"values in 6 tensors, local method leader:tau=4")
        self.assertRegex(out, r"fp32 +broadcast .*~")

    def test_gossip_is_compared_with_no_lossy_codec(self):
        words = (self.tensors(), "--step-seconds", "0.01", "--link", "10mbit", "--ranks", "4", "--sync", "gossip")
        out, _ = self.plan(*words, "--json")
        self.assertEqual([row["codec"] for row in json.loads(out)["codecs"]], ["fp32"])
        _, err = self.plan(*words, "--codecs", "int8", code=2)
        self.assertIn("codec 'int8' is lossy", err)

    def test_bytes_between_machines_are_given_where_they_are_known(self):
        words = (self.tensors(), "--step-seconds", "0.01", "--ranks", "4", "--per-machine", "2")
        for method, known in (("diloco", False), ("leader", True)):
            fp32 = next(row for row in self.planned(*words, "--sync", method)["codecs"] if row["codec"] == "fp32")
            self.assertEqual(fp32["between_bytes"] is not None, known)

    def test_pipelines_share_the_cores_of_a_machine(self):
        cut = settings(model__name="mlp", run__workers="2", run__threads="1", pipeline__stages="2")
        words = ("demo", "--step-seconds", "1", "--json", "--codecs", "fp16", "--cores", "2", *cut)
        for machine, own in (("1", True), ("2", False)):
            plan = json.loads(self.plan(*words, "--per-machine", machine)[0])
            self.assertEqual(plan["own_core"], own)
            self.assertEqual([row["between_bytes"] is not None for row in plan["codecs"]], [own, own])

    def test_pipelines_are_planned_as_written_and_with_other_codecs(self):
        cut = settings(model__name="mlp", run__workers="2", pipeline__stages="2", pipeline__forward="uniform:bits=4", train__micro_batches="2")
        out, _ = self.plan("demo", "--steps", "1", "--link", "10mbit", "--json", "--codecs",
                           "as in the recipe; int8 + fp16", *cut)
        plan = json.loads(out)
        self.assertEqual(plan["way"], "a pipeline of 2 stages, 2 micro-batches in order 1f1b")
        rows = {row["codec"]: row for row in plan["codecs"]}
        self.assertEqual(set(rows), {"fp32", "as in the recipe", "int8 + fp16"})
        self.thinwire("train", "demo", "--out", "run", *cut)
        self.assertTrue(rows["as in the recipe"]["bytes_exact"])
        # The busiest rank is the one that sends gradients in fp16: two bytes fewer for each of 32 examples times 16 units.
        self.assertEqual(rows["fp32"]["sent_bytes"] - rows["int8 + fp16"]["sent_bytes"], 2 * 32 * 16)

    def test_decoupled_stages_do_not_add_up(self):
        cut = settings(model__name="mlp", run__workers="2", pipeline__stages="2", pipeline__schedule="decoupled")
        words = ("demo", "--step-seconds", "1", "--json", "--codecs", "fp32", *cut)
        plan = json.loads(self.plan(*words)[0])
        self.assertEqual(plan["way"], "a pipeline of 2 decoupled stages, 1 micro-batch")
        serial = json.loads(self.plan(*words, *settings(pipeline__schedule="synchronous"))[0])
        self.assertLess(plan["codecs"][0]["seconds"], 0.6 * serial["codecs"][0]["seconds"])
        # A rank computes for the second that is given. One stage after the other takes two.
        self.assertAlmostEqual(plan["compute_seconds"], 1)
        self.assertAlmostEqual(serial["compute_seconds"], 2)
        self.assertIn("for one of a serial epoch", self.plan("demo", "--step-seconds", "1", "--codecs", "fp32", *cut)[0])

    def test_several_numbers_of_ranks_are_columns(self):
        net = self.tensors()
        self.make_costs(net)
        words = (net, "--step-seconds", "0.01", "--link", "1gbit,1ms", "--ranks", "2,16,256")
        plans = self.planned(*words)
        self.assertEqual([plan["ranks"] for plan in plans], [2, 16, 256])
        sent = [{row["codec"]: row for row in plan["codecs"]}["fp32"]["sent_bytes"] for plan in plans]
        self.assertEqual(sent, sorted(sent))
        out, _ = self.plan(*words, *TWO)
        self.assertRegex(out, r"\n  ranks +2 +16 +256\n")
        self.assertRegex(out, r"\n  computation alone +10\.0 +10\.0 +10\.0\n")
        self.assertIn("One rank of each kind was simulated", out)

    def test_computation_is_measured_unless_given(self):
        out, _ = self.plan("demo", "--steps", "2", *TWO, *settings())
        self.assertRegex(out, r"demo: [\d,]+ values in 6 tensors, 4 ranks, no limit; computation takes "
                              r"[\d.]+ ms a step \(median of 2 steps here\)")
        self.assertRegex(out, r"codec +method +ms per step +over fp32 +limited by ")
        self.assertRegex(out, r"int8 +scatter-reduce .*resnet20 \+\d\.\d")
        self.assertRegex(out, r"topk:density=0.01 +gather .*~")
        self.assertIn("The exchange", out)

    def test_options_that_would_change_nothing_are_refused(self):
        net = self.tensors()
        for given in (("--per-machine", "1"), ()):
            _, err = self.plan(net, "--step-seconds", "1", *given, "--inside-link", "1gbit", code=2)
            self.assertRegex(err, "--inside-link: is the link between ranks of one machine.*; give --per-machine")
        _, err = self.plan("demo", "--inside-link", "1gbit", *settings(), code=2)
        self.assertRegex(err, "--inside-link: is the link between ranks")
        self.plan("demo", "--step-seconds", "1", "--ranks", "4", "--inside-link", "1gbit", "--codecs", "fp32",
                  *settings(exchange__inside=2))  # the recipe names the machine
        (self.folder / "sets").mkdir()
        for option, value in (("--steps", "3"), ("--data", "sets")):
            _, err = self.plan(net, "--step-seconds", "1", option, value, code=2)
            self.assertRegex(err, f"{option}: a list of tensors has no steps that could be measured")
        # The environment's folder is for all commands.
        command = ["env", "THINWIRE_DATA=sets", self.program, "plan", net, "--step-seconds", "1", "--codecs", "fp32"]
        self.run_command(command)
        _, err = self.run_command([*command, "--data", "."], code=2)
        self.assertRegex(err, "--data: a list of tensors")

    def test_costs_are_measured_once(self):
        self.planned(self.tensors(), "--step-seconds", "1")
        costs = (self.folder / "costs.txt").read_text()
        self.assertRegex(costs, r"^thinwire costs of codecs, version 3\nprocessor: .+\n")
        self.assertRegex(costs, r"\ncopies: \S+e-\d+\n")
        self.assertEqual(len(costs.splitlines()), 6)
        # One codec that takes a second per thousand values: nothing is measured again.
        slow = [line if "int8" not in line else "0.001\t" + line.split("\t", 1)[1]
                for line in costs.splitlines()]
        (self.folder / "costs.txt").write_text("\n".join(slow) + "\n")
        int8 = next(row for row in self.planned("net.txt", "--step-seconds", "1")["codecs"]
                    if row["codec"] == "int8")
        self.assertGreater(int8["encode_seconds"], 300)
        self.assertEqual((int8["limit"], (self.folder / "costs.txt").read_text().splitlines()),
                         ("coding", slow))

    def test_a_file_of_other_things_is_refused(self):
        (self.folder / "costs.txt").write_text("thinwire costs of codecs, version 3\nprocessor: x\nnumbers\n")
        _, err = self.plan(self.tensors(), "--step-seconds", "1", code=2)
        self.assertIn("costs.txt: costs of codecs, line 3: is not 6 numbers", err)

    def test_lists_of_tensors_name_the_line(self):
        for text, why in (("w 3xa\n", "net.txt:1: '3xa' is no shape (as in 64x3x7x7)"),
                          ("# none\n\n", "net.txt: has no tensors"),
                          ("w 3x4\nw 5\n", "net.txt:2: a second tensor 'w'"),
                          ("w 3x4 dense\n", "net.txt:1: unknown kind 'dense'"),
                          ("w 3x4 norm 5\n", "net.txt:1: '5' is one word too many")):
            _, err = self.plan(self.tensors(text), "--step-seconds", "1", code=2)
            self.assertIn(why, err)


if __name__ == "__main__":
    program.main()
