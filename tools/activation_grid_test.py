#!/usr/bin/env python3
"""Tests activation_grid.py: its tables, and how claims are judged. SPDX-License-Identifier: Apache-2.0"""
import math
import unittest

import activation_grid
import study


def run(off: float, on: float, sent: int) -> dict:
    """By perplexities."""
    way = {"message_bytes": sent // 2}
    return {"final_test_loss": math.log(off), "final_compressed_test_loss": math.log(on),
            "settings": {"model.name": "gpt-mini"}, "boundaries": [{"forward": way, "backward": way}]}


def grid_of(training: str, last: dict, everything: dict) -> dict:
    place = f"{training}, pipeline cuts, "
    return {place + "last 1": {codec: {1: one} for codec, one in last.items()},
            place + "all": {"none": {1: run(10, 10, 8_000_000)}, **{codec: {1: one} for codec, one in everything.items()}}}


FOUND = {**grid_of("from scratch", {"random 25 %": run(12, 13, 6_000_000)},
                   {"random 25 %": run(13, 15, 2_000_000), "top 25 %": run(11, 12, 2_100_000), "2 bits": run(11, 14, 900_000),
                    "code, 4x": run(11, 11, 1_000_000)}),
         **grid_of("fine-tuning", {"random 25 %": run(12, 12.5, 6_000_000)}, {"random 25 %": run(12, 12.25, 2_000_000)})}


class Grids(unittest.TestCase):
    def test_are_found_by_the_names_of_their_cases(self):
        self.assertIs(study.table_for(FOUND, {}), activation_grid.grid_table)
        self.assertFalse(activation_grid.is_grid({"training, all": FOUND["from scratch, pipeline cuts, all"]}))
        self.assertFalse(activation_grid.is_grid({}))

    def test_have_a_row_for_each_codec_and_columns_for_each_depth(self):
        lines = activation_grid.grid_table({"first": "none"}, FOUND)
        self.assertIn("## From scratch, pipeline cuts", lines)
        self.assertIn("Without compression: perplexity 10.000.", lines)
        self.assertIn("| random 25 % | +3.000 | +2.000 | 6.00 | +5.000 | +3.000 | 2.00 |", lines)
        self.assertIn("| code, 4x |  |  |  | +1.000 | +1.000 | 1.00 |", lines)

    def test_show_how_far_apart_seeds_are(self):
        found = {case: {codec: {1: seeds[1], 2: seeds[1]} for codec, seeds in codecs.items()}
                 for case, codecs in FOUND.items()}
        found["from scratch, pipeline cuts, all"]["2 bits"] = {1: run(11, 14, 900_000), 2: run(11, 13, 900_000)}
        lines = activation_grid.grid_table({"first": "none"}, found)
        self.assertIn("± is half the distance", lines[0])
        self.assertIn("| 2 bits |  |  |  | +3.500 ± 0.500 | +1.000 | 0.90 |", lines)

    def test_judge_claims_by_pairs_that_were_run(self):
        found = {text.split(":")[0]: (less, of) for text, less, of in
                 activation_grid.claims(activation_grid.Grid({"first": "none"}, FOUND))}
        self.assertEqual(list(found.values()), [(1, 2), (0, 0), (1, 1), (1, 1), (2, 2)])

    def test_verdicts(self):
        self.assertEqual([activation_grid.verdict(*pair) for pair in ((0, 0), (3, 4), (2, 3), (1, 4), (1, 3))],
                         ["not run", "holds", "mixed", "does not hold", "mixed"])


if __name__ == "__main__":
    unittest.main()
