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
        """Costs that do not depend on the machine: fp32 1 ns per value, the others 3."""
        self.planned(net, "--step-seconds", "1")
        lines = (self.folder / "costs.txt").read_text().splitlines()
        for i, line in enumerate(lines[2:], 2):
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
        # The fastest lost much on a network of convolutions; int8 lost nothing to speak of.
        self.assertRegex(plan["verdict"], r"^Compress: int8 takes [\d.]+ ms a step, [\d,]+ ms with fp32\. "
                                          r"topk:density=0\.01 would be faster, and may cost accuracy\. ")
        self.assertGreater(plan["break_even_bits_per_second"], 10e6)

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
        for codec, said in (("topk:density=0.01", "Its error was char-lstm +0.1, resnet20 +24.9 points above fp32."),
                            ("topk:density=0.05", "What topk:density=0.05 costs in accuracy is not known.")):
            out, _ = self.plan(net, "--step-seconds", "0.01", "--link", "1mbit", "--codecs", codec)
            self.assertIn(f"Compress: {codec} takes", out)
            self.assertIn(said, out)

    def test_where_computation_sets_the_pace_it_says_so(self):
        net = self.tensors()
        self.make_costs(net)
        plan = self.planned(net, "--step-seconds", "3", "--link", "10gbit")
        self.assertFalse(plan["compress"])
        self.assertRegex(plan["verdict"], r"^Do not compress: computation is (99|100) % of an fp32 step\.")
        self.assertRegex(plan["verdict"], r"is faster than fp32 below [\d.]+ [MG]bit/s\.$")

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

    def test_computation_is_measured_unless_given(self):
        out, _ = self.plan("demo", "--steps", "2", *TWO, *settings())
        self.assertRegex(out, r"demo: [\d,]+ values in 6 tensors, 4 ranks, no limit; computation takes "
                              r"[\d.]+ ms a step \(median of 2 steps here\)")
        self.assertRegex(out, r"codec +method +ms per step +over fp32 +limited by ")
        self.assertRegex(out, r"int8 +scatter-reduce .*resnet20 \+\d\.\d")
        self.assertRegex(out, r"topk:density=0.01 +gather .*~")
        self.assertIn("The exchange", out)

    def test_costs_are_measured_once(self):
        self.planned(self.tensors(), "--step-seconds", "1")
        costs = (self.folder / "costs.txt").read_text()
        self.assertRegex(costs, r"^thinwire costs of codecs, version 1\nprocessor: .+\n")
        self.assertEqual(len(costs.splitlines()), 5)
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
        (self.folder / "costs.txt").write_text("thinwire costs of codecs, version 1\nprocessor: x\nnumbers\n")
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
