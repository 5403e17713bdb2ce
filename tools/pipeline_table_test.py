#!/usr/bin/env python3
"""Tests pipeline_table.py. SPDX-License-Identifier: Apache-2.0"""
import unittest

import pipeline_table
import study

STUDY = {"first": "1f1b"}
SIDE = {"message_bytes": 1_000_000, "values": 500_000}


def run(error: float, on: float, schedule: str = "", idle: float = 0.0) -> dict:
    return {"final_test_error": error, "final_compressed_test_error": on, "idle_share": idle,
            "boundaries": [{"forward": SIDE, "backward": SIDE}],
            "settings": {"model.name": "resnet20", "pipeline.schedule": schedule}}


class Pipelines(unittest.TestCase):
    def test_errors_with_compression_off_and_on_are_paired_by_seed(self) -> None:
        found = {"a": {"1f1b": {1: run(0.1, 0.1), 2: run(0.2, 0.2)}, "top": {1: run(0.12, 0.11), 2: run(0.22, 0.21)}}}
        self.assertIs(study.table_for(found, STUDY), pipeline_table.pipeline_table)
        self.assertEqual(pipeline_table.pipeline_table(STUDY, found), [
            "| variant | seeds | error %, compression off | difference | error %, on | difference | MB forward | MB back |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            "| 1f1b | 2 | 15.00 ± 63.53 |  | 15.00 ± 63.53 |  | 1.000 (2.0x) | 1.000 (2.0x) |",
            "| top | 2 | 17.00 ± 63.53 | +2.00 ± 0.00 | 16.00 ± 63.53 | +1.00 ± 0.00 | 1.000 (2.0x) | 1.000 (2.0x) |"])

    def test_schedules_without_compression_show_one_error_and_how_long_stages_wait(self) -> None:
        found = {"two": {"1f1b": {1: run(0.1, 0.1, "synchronous", 0.25)}, "apart": {1: run(0.3, 0.3, "decoupled", 0.1)}},
                 "four": {"apart": {1: run(0.4, 0.4, "decoupled", 0.08)}}}
        titles = ["| variant | seeds | error % | difference | stages wait, % | MB forward | MB back |",
                  "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
        self.assertEqual(pipeline_table.pipeline_table(STUDY, found), [
            "## two", "", *titles,
            "| 1f1b | 1 | 10.00 |  | 25 | 1.000 (2.0x) | 1.000 (2.0x) |",
            "| apart | 1 | 30.00 | +20.00 | 10 | 1.000 (2.0x) | 1.000 (2.0x) |",
            "", "## four", "", *titles,
            "| apart | 1 | 40.00 |  | 8 | 1.000 (2.0x) | 1.000 (2.0x) |"])


if __name__ == "__main__":
    unittest.main()
