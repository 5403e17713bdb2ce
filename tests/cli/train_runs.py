"""Training from the command line: files, resuming, stopping. SPDX-License-Identifier: Apache-2.0"""
import array
import json
import math
import shutil
import signal
import time

import program
from program import settings

# What programs that read summary.json rely on.
SUMMARY = {"recipe", "world_size", "codec", "steps", "samples", "final_test_error",
           "best_test_error", "dense_bytes_per_step", "sent_bytes_per_step", "codec_ratio",
           "peak_sent_bytes", "wire_ratio", "achieved_over_target", "seconds", "skipped_steps"}


class Train(program.ProgramTest):

    def test_a_run_leaves_its_files_and_says_what_it_came_to(self):
        out, err = self.thinwire("train", "demo", "--workers", "2", "--out", "run",
                                 *settings(exchange__codec="adacomp"))
        self.assertIn("demo: 2 workers (threads), codec adacomp", err)
        self.assertRegex(err, r"epoch +\S+ +test error +\d+\.\d\d% +loss ")
        self.assertNotRegex(out + err, "[\r\033]")  # nothing live where nobody watches
        self.assertRegex(out, r"(?s)^done: 6 steps, 192 samples in .*test error.*wire ratio")
        summary = self.summary("run")
        self.assertLessEqual(SUMMARY, summary.keys())
        self.assertEqual(summary["recipe"], "demo")
        self.assertEqual(summary["world_size"], 2)
        self.assertEqual(summary["steps"], 6)
        self.assertGreater(summary["wire_ratio"], 1)
        self.assertEqual(summary["peak_sent_bytes"], max(m.get("sent_bytes", 0) for m in self.metrics("run")))
        self.assertEqual([m["step"] for m in self.metrics("run") if "loss" in m],
                         [1, 2, 3, 4, 5, 6])

    def test_parts_of_a_step_are_no_longer_than_the_step(self):
        self.thinwire("train", "demo", "--workers", "2", "--out", "run", *settings())
        steps = [line for line in self.metrics("run") if "loss" in line]
        for before, line in zip(steps, steps[1:]):
            times = line["times"]
            own = times["fetch"] + times["compute"] + times["update"]
            self.assertGreater(times["update"], 0)
            self.assertGreater(times["processor"], 0)
            self.assertLess(times["processor"], own + 1e-3)
            self.assertLess(own + times["wait"], line["seconds"] - before["seconds"] + 1e-3)

    def test_rounds_are_told_by_their_largest(self):
        out, _ = self.thinwire("train", "demo", "--workers", "2", "--out", "run",
                               *settings(sync__method="streaming:tau=3,fragments=1,delay=1"))
        lines = [m for m in self.metrics("run") if m.get("sent_bytes")]
        self.assertEqual([(m["step"], m["round"]["begun"], m["round"]["fragment"]) for m in lines], [(4, 3, 0)])
        self.assertIn(f"{lines[0]['sent_bytes']:,} in the step that sent most\n", out)
        self.assertEqual(self.summary("run")["peak_sent_bytes"], lines[0]["sent_bytes"])

    def test_a_run_that_sent_nothing_has_no_ratios(self):
        out, _ = self.thinwire("train", "demo", "--workers", "2", *settings(sync__method="average:tau=100"))
        self.assertRegex(out, r"bytes +0 sent per step and rank")
        self.assertNotIn("ratio", out)

    def test_missing_data_is_looked_for_and_its_remedy_named(self):
        _, err = self.thinwire("train", "lsgd-cnn7", "--workers", "2", "--data", str(self.folder), code=1)
        self.assertRegex(err, r"looked in .*; --data DIR or THINWIRE_DATA names another folder, and `thinwire data` says how to get")

    def test_groups_of_workers_are_told_the_bytes_of_each_level(self):
        out, _ = self.thinwire("train", "demo", "--workers", "4", "--out", "run",
                               *settings(exchange__inside=2))
        summary = self.summary("run")
        told = [f"{round(summary[level + '_bytes_per_step']):,}" for level in ("inside", "between")]
        self.assertIn(f"{told[0]} of these inside groups, {told[1]} between groups\n", out)
        out, _ = self.thinwire("train", "demo", "--workers", "2", *settings())
        self.assertNotIn("inside groups", out)

    def test_a_rule_withstands_an_attack_that_breaks_the_mean(self):
        def error(**changes):
            self.thinwire("train", "demo", "--workers", "9", "--out", "run",
                          *settings(train__batch=144, train__max_steps=40, data__test_samples=1000,
                                    exchange__max_skipped=0, **changes))
            return self.summary("run")["final_test_error"]

        attack = {"run__attack": "sign_flip:ranks=2,scale=10"}
        clean = error(exchange__codec="fp32")
        self.assertLess(clean, 0.45)
        for codec in ("fp32", "int8"):
            self.assertGreater(error(**attack, exchange__codec=codec), 0.7, codec)
            for rule in ("trimmed_mean:f=2", "nnm:f=2 then multi_krum:f=2"):
                withstood = error(**attack, exchange__codec=codec, exchange__combine=rule)
                self.assertLess(withstood, clean + 0.1, f"{codec}, {rule}")
        _, err = self.thinwire("train", "demo", "--workers", "4",
                               *settings(exchange__combine="trimmed_mean:f=2", exchange__codec="fp32"), code=None)
        self.assertIn("combine = trimmed_mean:f=2 needs 2 f + 1 = 5 ranks at least, and the group has 4", err)

    def test_what_is_owed_at_the_end_is_told(self):
        sparse = {"exchange__codec": "topk:density=0.02"}
        out, _ = self.thinwire("train", "demo", "--workers", "2", "--out", "run",
                               *settings(**sparse, exchange__flush="measure"))
        flush = self.summary("run")["flush"]
        self.assertIn(f"{flush['owed_norm'] / flush['gradient_norm']:.2f} of a gradient's norm at the end; "
                      f"test error {100 * flush['test_error_before']:.2f}% before it was sent, "
                      f"{100 * flush['test_error_after']:.2f}% after\n", out)
        self.assertEqual(flush["test_error_before"], self.summary("run")["final_test_error"])
        out, _ = self.thinwire("train", "demo", "--workers", "2", "--out", "plain", *settings(**sparse))
        self.assertNotIn("gradient's norm", out)
        self.assertNotIn("flush", self.summary("plain"))
        self.assertEqual(self.summary("plain")["weights_xxh3"], self.summary("run")["weights_xxh3"])
        out, err = self.thinwire("train", "demo", "--workers", "2",
                                 *settings(exchange__codec="fp32", exchange__flush="apply"), code=2)
        self.assertIn("nothing is owed at the end of a run with memory none", err)

    def test_how_near_a_run_is_to_its_density(self):
        self.thinwire("train", "demo", "--workers", "2", "--out", "sparse",
                      *settings(exchange__codec="topk:density=0.02", exchange__grouping="global"))
        shares = [line["kept_over_target"] for line in self.metrics("sparse") if "loss" in line]
        self.assertEqual(shares[0], 1)  # each tensor's own selection
        self.assertNotEqual(set(shares), {1})  # one threshold for all
        self.assertLessEqual(max(shares), 2)
        self.assertAlmostEqual(self.summary("sparse")["achieved_over_target"],
                               sum(shares) / len(shares))
        self.thinwire("train", "demo", "--workers", "2", "--out", "dense", *settings())
        for line in self.metrics("dense"):
            self.assertNotIn("kept_over_target", line)

    def test_the_resolved_recipe_trains_the_same(self):
        self.thinwire("train", "demo", "--workers", "2", "--out", "a", *settings())
        self.thinwire("train", "a/recipe.toml", "--workers", "2", "--out", "b")
        self.assertEqual(self.summary("a")["weights_xxh3"], self.summary("b")["weights_xxh3"])

    def test_the_weights_are_safetensors_that_anybody_can_read(self):
        self.thinwire("train", "demo", "--workers", "2", "--out", "run", *settings())
        folder, = (self.folder / "run").glob("checkpoint-*")
        raw = (folder / "model.safetensors").read_bytes()
        header_end = 8 + int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:header_end])
        header.pop("__metadata__")
        self.assertEqual({name: entry["shape"] for name, entry in header.items()},
                         {"hidden1.weight": [16, 784], "hidden1.bias": [16],
                          "hidden2.weight": [16, 16], "hidden2.bias": [16],
                          "output.weight": [10, 16], "output.bias": [10]})
        at = 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            self.assertEqual((entry["dtype"], begin), ("F32", at))
            values = array.array("f", raw[header_end + begin:header_end + end])
            self.assertEqual(len(values), math.prod(entry["shape"]))
            self.assertTrue(all(math.isfinite(value) for value in values))
            self.assertGreater(max(map(abs, values)), 0, name)
            at = end
        self.assertEqual(header_end + at, len(raw))

    def test_workers_come_from_the_recipe(self):
        _, err = self.thinwire("train", "demo", *settings(run__workers=3))
        self.assertIn("3 workers (threads)", err)

    def test_resuming_continues_to_the_same_bits(self):
        self.thinwire("train", "demo", "--workers", "2", "--out", "straight",
                      *settings(train__max_steps=12, exchange__codec="adacomp"))
        self.thinwire("train", "demo", "--workers", "2", "--out", "parts",
                      *settings(train__max_steps=5, exchange__codec="adacomp"))
        _, err = self.thinwire("train", "demo", "--workers", "2", "--resume", "parts",
                               *settings(train__max_steps=12, exchange__codec="adacomp"))
        self.assertIn("resumed at step 5", err)
        straight, parts = self.summary("straight"), self.summary("parts")
        self.assertEqual(parts["steps"], 12)
        self.assertEqual(straight["weights_xxh3"], parts["weights_xxh3"])

    def test_a_copied_checkpoint_stays_as_it_is(self):
        self.thinwire("train", "demo", "--workers", "2", "--out", "run", *settings())
        shutil.copytree(self.folder / "run/checkpoint-0000000006", self.folder / "kept")
        before = {path.name: path.read_bytes() for path in (self.folder / "kept").iterdir()}
        longer = settings(train__max_steps=8)
        _, err = self.thinwire("train", "demo", "--workers", "2", "--resume", "kept", *longer, code=2)
        self.assertIn("--resume kept: is a checkpoint outside the folder of its run; name the folder to write into "
                      "with --out", err)
        _, err = self.thinwire("train", "demo", "--workers", "2", "--resume", "kept", "--out", "kept", *longer, code=2)
        self.assertIn("kept: is a checkpoint; name another folder with --out", err)
        self.thinwire("train", "demo", "--workers", "2", "--resume", "kept", "--out", "other", *longer)
        self.assertEqual(self.summary("other")["steps"], 8)
        self.assertEqual(before, {path.name: path.read_bytes() for path in (self.folder / "kept").iterdir()})
        self.assertEqual([path.name for path in self.folder.iterdir() if path.is_file()], [])
        # One that is where its run saved it is resumed there.
        self.thinwire("train", "demo", "--workers", "2", "--resume", "run/checkpoint-0000000006/", *longer)
        self.assertEqual(self.summary("run")["steps"], 8)

    def test_text_that_is_not_utf_8_is_refused_before_the_run(self):
        _, err = self.thinwire("train", "demo", "--out", "run", *settings(), "--set", "model.weights=w\udce9.safetensors",
                               code=2)
        self.assertEqual(err, "thinwire: --set model.weights=w\ufffd.safetensors: 'model.weights' is no UTF-8 text, which "
                              "recipes and a run's files are written in\n")
        self.assertFalse((self.folder / "run").exists())

    def test_resuming_from_nothing_is_an_error(self):
        (self.folder / "empty").mkdir()
        _, err = self.thinwire("train", "demo", "--resume", "empty", *settings(), code=1)
        self.assertRegex(err, "thinwire: .*empty.*checkpoint")

    def test_a_biased_codec_without_feedback_is_warned_about(self):
        _, err = self.thinwire("train", "demo", *settings(exchange__codec="topk",
                                                          exchange__feedback="none"))
        self.assertIn("! topk is biased and feedback is none", err)
        _, err = self.thinwire("train", "demo", *settings(exchange__codec="topk"))
        self.assertNotIn("!", err)

    def test_steps_that_are_skipped_are_told_and_end_the_run(self):
        _, err = self.thinwire("train", "demo", "--workers", "2",
                               *settings(train__max_steps=300, optimizer__lr=1e6), code=1)
        self.assertRegex(err, r"! step \d+ skipped: stream '\S+' of rank \d has a NaN or Inf")
        self.assertRegex(err.splitlines()[-1], r"^thinwire: .*rank \d")

    def test_a_summary_that_cannot_be_printed_is_a_failure(self):
        for place, why in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
            command = [self.program, "train", "demo", "--out", "run" + place[-1], *settings()]
            _, err = self.run_command(["bash", "-c", f'"$@" {place}', "bash", *command], code=1)
            self.assertEqual(err.splitlines()[-1],
                             f"thinwire: standard output cannot be written: {why}")
            self.assertTrue(self.summary("run" + place[-1])["finished"])
            for line in self.metrics("run" + place[-1]):  # nothing else landed in a file of the run
                self.assertIn("step", line)

    def test_missing_data_is_one_line(self):
        (self.folder / "empty").mkdir()
        _, err = self.thinwire("train", "demo", "--workers", "2", "--data", "empty",
                               *settings(data__name="mnist"), code=1)
        last = err.splitlines()[-1]
        self.assertRegex(last, r"^thinwire: .*mnist")
        self.assertNotIn("rank", last)  # every rank saw the same


class Stop(program.ProgramTest):

    def start_long_run(self, **changes):
        process = self.start([self.program, "train", "demo", "--workers", "2", "--out", "run",
                              *settings(**{"train__max_steps": 100000, "train__epochs": 100000, **changes})])
        metrics = self.folder / "run" / "metrics.jsonl"
        give_up = time.monotonic() + 60
        while not metrics.exists() and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.02)
        self.assertIsNone(process.poll())
        return process

    def test_the_first_signal_saves_and_the_run_can_be_resumed(self):
        process = self.start_long_run()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("stopping after this step; once more to end at once", err)
        # The run's own recipe has the changes and the number of workers.
        self.assertRegex(err, r"go on with: \S*thinwire train run/recipe.toml --resume run\n")
        self.assertIn("stopped early", out)
        steps = self.summary("run")["steps"]
        last = steps + 3
        changes = settings(train__max_steps=last, train__epochs=100000)
        self.thinwire("train", "run/recipe.toml", "--resume", "run", *changes)
        self.thinwire("train", "demo", "--workers", "2", "--out", "straight", *changes)
        self.assertEqual(self.summary("run")["steps"], last)
        self.assertEqual(self.summary("run")["weights_xxh3"],
                         self.summary("straight")["weights_xxh3"])

    def test_asynchronous_workers_say_that_they_go_on(self):
        process = self.start_long_run(
            train__max_steps=1500, sync__method="leader:tau=4,tau_global=4,groups=1,asynchronous=true")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=90)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("asynchronous workers do not stop before the end of their run; once more to end at once", err)
        self.assertNotIn("stopping after this step", err)
        self.assertTrue(self.summary("run")["finished"])

    def test_the_second_signal_ends_at_once(self):
        process = self.start_long_run()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        self.assertIn(process.returncode, (-signal.SIGINT, -signal.SIGTERM))


if __name__ == "__main__":
    program.main()
