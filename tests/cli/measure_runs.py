"""Recorded gradients, and codecs measured on them. SPDX-License-Identifier: Apache-2.0"""
import json

import program
from program import settings


class Measure(program.ProgramTest):

    def record(self):
        self.thinwire("train", "demo", "--workers", "2", "--out", "run",
                      *settings(exchange__codec="topk:density=0.01", run__record_every="2"))

    def test_figures_are_those_of_the_codecs(self):
        self.record()
        out, _ = self.thinwire("measure", "run/signals", "fp32", "topk:density=0.1", "adacomp",
                               "--json")
        fp32, topk, adacomp = json.loads(out)
        self.assertEqual(topk["codec"], "topk:density=0.1,block=0,values=fp32")
        self.assertEqual([step["step"] for step in topk["steps"]], [0, 2, 4])
        values = 784 * 16 + 16 * 16 + 16 * 10  # of the weights; biases are dense
        for step in fp32["steps"]:
            self.assertEqual((step["values"], step["kept"], step["payload_bytes"]),
                             (values, values, 4 * values))
            self.assertEqual(step["relative_error"], 0)
        for step in topk["steps"]:
            self.assertEqual((step["kept"], step["target"]), (1296, 1296))  # 1254 + 26 + 16
            self.assertTrue(0 < step["relative_error"] < 1)
        for sparse, ternary in zip(topk["steps"], adacomp["steps"]):
            self.assertLess(ternary["payload_bytes"], sparse["payload_bytes"])

    def test_a_table_for_people(self):
        self.record()
        out, _ = self.thinwire("measure", "run/signals", "topk:density=0.1", "adacomp")
        self.assertRegex(out, r"kept per value +kept / target +codec ratio +relative error")
        self.assertRegex(out, r"topk:density=0.1,block=0,values=fp32 +0\.1\d* ± 0 +1 ± 0 ")
        self.assertIn("3 recorded steps of one worker", out)

    def test_figures_that_cannot_be_printed_are_a_failure(self):
        self.record()
        command = [self.program, "measure", "run/signals", "fp32"]
        for more in ([], ["--json"]):
            _, err = self.run_command(["bash", "-c", '"$@" >/dev/full', "bash", *command, *more], code=1)
            self.assertEqual(
                err, "thinwire: standard output cannot be written: No space left on device\n")

    def test_recordings_of_another_network_are_refused(self):
        self.record()
        wide = settings(exchange__codec="topk:density=0.01", run__record_every="2", model__hidden="24")
        self.thinwire("train", "demo", "--workers", "2", "--out", "wide", *wide)
        (self.folder / "wide/signals/step-00000004.safetensors").rename(self.folder / "run/signals/step-00000004.safetensors")
        for codec in ("powersgd:rank=1", "topk"):
            _, err = self.thinwire("measure", "run/signals", codec, code=1)
            self.assertRegex(err, "stream '.*' of step 4 has another shape than before")

    def test_what_is_no_recording_is_said(self):
        _, err = self.thinwire("measure", "nowhere", "topk", code=1)
        self.assertIn("nowhere: holds no recorded steps", err)
        _, err = self.thinwire("measure", "nowhere", "topp", code=2)
        self.assertIn("topp", err)


if __name__ == "__main__":
    program.main()
