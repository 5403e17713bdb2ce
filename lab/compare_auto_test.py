#!/usr/bin/env python3
"""Tests compare_auto.py: its table, and where a link changed. SPDX-License-Identifier: Apache-2.0"""
import argparse
import math
import pathlib
import tempfile
import unittest

import compare_auto
import compare_training


def steps_of(durations, decisions=()):
    """Metrics of steps, whose ends are the sums of the durations; decisions: codec by step."""
    steps, now = [], 0.0
    for number, duration in enumerate(durations):
        now += duration
        step = {"seconds": now}
        if number in dict(decisions):
            step |= {"decisions": [{"why": ""}], "codecs": {dict(decisions)[number]: ["a", "b"], "fp32": ["c"]}}
        steps.append(step)
    return steps


CHOICES = {"auto:loss=small": ["fp32", "int8"], "auto:loss=any": ["fp32", "int8", "topk:density=0.01"]}


class CompareAuto(unittest.TestCase):
    def test_what_auto_chooses_from_is_what_the_program_says(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "thinwire"
            program.write_text('#!/bin/sh\ntest "$*" = "codecs --auto any" && printf "fp32\\ntopk @ sparse-reduce\\n"\n')
            program.chmod(0o755)
            self.assertEqual(compare_auto.choices_of(str(program), "auto:loss=any"), ["fp32", "topk @ sparse-reduce"])
            with self.assertRaises(SystemExit):
                compare_auto.choices_of(str(program), "auto:loss=small")

    def test_a_codec_may_name_its_grouping_or_its_method(self):
        settings = compare_training.codec_settings
        self.assertEqual(settings("int8"), {"exchange.codec": "int8", "exchange.grouping": "auto"})
        self.assertEqual(settings("topk @ model"), {"exchange.codec": "topk", "exchange.grouping": "model"})
        self.assertEqual(settings("topk @ sparse-reduce"), {"exchange.codec": "topk", "exchange.grouping": "auto",
                                                            "exchange.method": "sparse-reduce"})

    def test_ratios_are_to_what_each_auto_may_choose(self):
        mixed = "int8\tfp32\tfirst.bias"
        seconds = {"fp32": 0.3, "int8": 0.2, "topk:density=0.01": 0.1, mixed: 0.19}
        errors = {"fp32": 0.003, "int8": 0.002, "topk:density=0.01": 0.01, mixed: 0.0}
        small = [{"decision": mixed, "decided": 6, "steps": 60}, {"decision": "int8", "decided": 14, "steps": 60}]
        any_loss = [{"decision": "fp32", "decided": 3, "steps": 60}]
        # Each auto has the times of its own run: fp32 takes longer in that of loss=any.
        autos = {"auto:loss=small": compare_auto.Measured(seconds, errors, small),
                 "auto:loss=any": compare_auto.Measured({**seconds, "fp32": 0.4}, errors, any_loss)}
        lines = compare_auto.rows_of([("mlp", "1gbit", autos)], CHOICES)
        self.assertEqual(lines[2], "| mlp | 1gbit | 300.0 | `auto:loss=small` | `int8` | 200.0 | 14 of 60 | 2 | `int8`, others for 1 tensors | "
                                   "190.0 | 1.05 ± 0.02 | 0.67 ± 0.02 |")
        self.assertEqual(lines[3], "| mlp | 1gbit | 400.0 | `auto:loss=any` | `fp32` | 400.0 | 3 of 60 | 1 | `topk:density=0.01` | 100.0 | "
                                   "4.00 ± 0.80 | 1.00 |")
        self.assertEqual(lines[-1], "Auto is within 1.05 times the best in 0 of 2 cells. In 1 of the other 2 the spread reaches down "
                                    "to that. Auto is within 1.02 times dense in 2 of 2 cells.")

    def test_a_cell_that_the_spread_leaves_open_is_counted(self):
        self.assertEqual(compare_auto.told_of("1.02 times dense", 3, 1, 5),
                         "Auto is within 1.02 times dense in 3 of 5 cells. In 1 of the other 2 the spread reaches down to that.")

    def test_each_auto_has_turns_of_its_own(self):
        runs = []

        def trained(_, codec, steps, rate, texts=None):
            runs.append((codec.partition("plan=")[0], rate))
            if texts:
                texts["decisions.txt"] = "thinwire decisions 1\n0\tint8\n"
            return [{**step, "times": {"processor": 0.1}} for step in steps_of([0.2] * steps, {0: "int8"})]

        real, compare_auto.train = compare_auto.train, trained
        try:
            with tempfile.TemporaryDirectory() as folder:
                kept = compare_training.Kept(pathlib.Path(folder) / "kept.jsonl")
                options = argparse.Namespace(autos=list(compare_auto.AUTOS), rounds=1, auto_steps=30, settled=5, turns=2, affordable=100)
                found = compare_auto.cell(options, kept, "1gbit", CHOICES)
                again = len(runs)
                compare_auto.cell(options, kept, "1gbit", CHOICES)
        finally:
            compare_auto.train = real
        # Auto itself, then one turn of each codec, which says how many are affordable, then that many.
        self.assertEqual([name for name, _ in runs], ["auto:loss=small", "auto:loss=any", *2 * ["auto:loss=small,"], *2 * ["auto:loss=any,"]])
        self.assertEqual(len(runs), again)
        self.assertEqual(list(found["auto:loss=small"].seconds), ["fp32", "int8"])
        self.assertEqual(list(found["auto:loss=any"].seconds), ["fp32", "int8", "topk:density=0.01"])
        self.assertEqual([of[0] for of in kept.rows], ["auto", "auto", "turns of auto:loss=small", "turns"])

    def test_rounds_are_compared_one_by_one(self):
        found = {"fp32": [0.010, 0.020, 0.030], "auto:loss=any": [0.011, 0.020, 0.027]}
        self.assertEqual(compare_auto.rows_alone("mlp", "none", found),
                         ["| mlp | none | 20.0 (10.0 to 30.0) | `auto:loss=any` | 20.0 (11.0 to 27.0) | 1.00 (0.90 to 1.10) |"])

    def test_the_spread_of_a_median_is_that_of_its_turns(self):
        self.assertAlmostEqual(compare_auto.standard_error(1, 1 + 1.35, 25), 1.25 / 5)
        self.assertTrue(math.isnan(compare_auto.standard_error(1, 1, 1)))

    def test_codecs_take_turns_whose_first_steps_do_not_count(self):
        self.assertEqual(compare_auto.plan_text(["fp32", "int8\tfp32\ta"], 5, 2),
                         "thinwire decisions 1\n0\tfp32\n5\tfp32\n10\tint8\tfp32\ta\n15\tfp32\n20\tint8\tfp32\ta\n")
        turn = [9.0, 9.0, 9.0, 1.0, 1.2, 7.0, 7.0, 7.0, 2.0, 2.4]
        found = compare_auto.seconds_by_turns(steps_of([5.0] * 5 + turn + turn), 2, 5, 3)
        self.assertEqual([[round(seconds, 6) for seconds in one] for one in found], [[1.1] * 3, [2.2] * 3])
        # All steps of the second cycle take twice as long.
        found = compare_auto.seconds_by_turns(steps_of([5.0] * 5 + turn + [2 * seconds for seconds in turn]), 2, 5, 3)
        self.assertEqual([[round(seconds, 6) for seconds in one] for one in found], [[1.65] * 3, [3.3] * 3])

    def test_the_last_decision_is_read_with_its_exceptions(self):
        text = "thinwire decisions 1\n# first\n0\tfp32\n# why\n12\tint8\tfp32\tb\n"
        self.assertEqual(compare_auto.last_decision(text), "int8\tfp32\tb")
        self.assertEqual(compare_auto.short_name("int8\tfp32\tb"), "`int8`, others for 1 tensors")

    def test_changes_of_the_link_are_found_by_the_first_one(self):
        steps = steps_of([1.0] * 30 + [5.0] * 10 + [1.5] * 60 + [1.2] * 40, {0: "fp32", 40: "sidco", 110: "int8"})
        # Step 30 began at second 30, and step 100 at 170. The lab's clock began three seconds before training.
        at = compare_auto.changed_at(steps, [33.0, 33.0 + 170.5 - 30])
        self.assertEqual(at, [30, 100])
        self.assertEqual(compare_auto.decisions_after(steps, 0, 30), "stays with `fp32`")
        self.assertEqual(compare_auto.decisions_after(steps, 30, 100), "10: `sidco`")
        self.assertEqual(compare_auto.decisions_after(steps, 100, 140), "10: `int8`")
        self.assertEqual(compare_auto.changed_at(steps, [33.0, 1e4]), [30, 140])

    def test_the_codec_of_a_run_is_that_of_most_tensors(self):
        steps = steps_of([1.0, 1.0], {1: "int8"})
        self.assertEqual(compare_auto.largest_codec(steps), "int8")
        steps[-1]["codecs"] = {"fp32": ["a", "b", "c"]}
        self.assertEqual(compare_auto.largest_codec(steps), "fp32")


if __name__ == "__main__":
    unittest.main()
