#!/usr/bin/env python3
"""Tests compare_auto.py: its table, and where a link changed. SPDX-License-Identifier: Apache-2.0"""
import unittest

import compare_auto


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


class CompareAuto(unittest.TestCase):
    def test_ratios_are_to_what_each_auto_may_choose(self):
        fixed = dict.fromkeys(compare_auto.ANY, 0.3) | {"int8": 0.2, "topk:density=0.01": 0.1}
        autos = {"auto:loss=small": [{"seconds": 0.209, "codec": "int8"}],
                 "auto:loss=any": [{"seconds": 0.31, "codec": "int8"}, {"seconds": 0.31, "codec": "fp32"}]}
        lines = compare_auto.rows_of([("mlp", "1gbit", fixed, autos)])
        self.assertEqual(lines[2], "| mlp | 1gbit | 300.0 | `auto:loss=small` | `int8` | 209.0 | `int8` | 200.0 | 1.04 | 0.70 |")
        self.assertEqual(lines[3], "| mlp | 1gbit | 300.0 | `auto:loss=any` | `int8`, `fp32` | 310.0 | "
                                   "`topk:density=0.01` | 100.0 | 3.10 | 1.03 |")
        self.assertEqual(lines[-1], "Auto is within 1.05 times the best in 1 of 2 cells, and within 1.02 times dense in 1.")

    def test_a_change_of_the_link_is_a_step_of_another_length(self):
        durations = [1.0] * 30 + [5.0] * 10 + [1.5] * 60 + [0.5] * 40
        steps = steps_of(durations, {0: "int8", 40: "sidco", 110: "int8"})
        self.assertEqual(compare_auto.after_changes(steps), [(30, 10, "sidco"), (100, 10, "int8")])
        self.assertEqual(compare_auto.after_changes(steps_of([1.0] * 50, {0: "int8"})), [])

    def test_the_codec_of_a_run_is_that_of_most_tensors(self):
        steps = steps_of([1.0, 1.0], {1: "int8"})
        self.assertEqual(compare_auto.largest_codec(steps), "int8")
        steps[-1]["codecs"] = {"fp32": ["a", "b", "c"]}
        self.assertEqual(compare_auto.largest_codec(steps), "fp32")


if __name__ == "__main__":
    unittest.main()
