#!/usr/bin/env python3
"""Tests of what influence_study.py computes from scores. SPDX-License-Identifier: Apache-2.0"""
import array
import json
import pathlib
import tempfile
import unittest

import influence_study as study


class Study(unittest.TestCase):

    def test_rank_correlation(self):
        self.assertEqual(study.spearman([1.0, 2.0, 9.0, 4.0], [0.1, 0.2, 0.9, 0.4]), 1)
        self.assertEqual(study.spearman([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]), -1)
        self.assertAlmostEqual(study.spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]), 0.8)

    def test_share_of_wrong_labels_that_is_found(self):
        arrays = {"self": array.array("d", range(40)), "true_labels": array.array("q", [3] * 40),
                  "labels": array.array("q", [3] * 40)}
        for index in (39, 36, 33, 0):  # the first, the fourth, the seventh, the last
            arrays["labels"][index] = 5
        self.assertEqual(study.shares_found(arrays), {"0.05": 0.25, "0.1": 0.5, "0.2": 0.75})

    def test_likeness_is_a_mean_over_test_samples(self):
        count = 60
        up = array.array("d", range(count))
        down = array.array("d", reversed(range(count)))
        a = {"self": up, "influence": up + up}
        b = {"self": up, "influence": up + down}
        like = study.likeness(a, b)
        self.assertEqual(like["self"], 1)
        self.assertAlmostEqual(like["influence"], 0)
        self.assertEqual(like["proponents"], 0.5)

    def test_reads_arrays(self):
        header = json.dumps({"__metadata__": {}, "self": {"dtype": "F64", "shape": [2], "data_offsets": [8, 24]},
                             "labels": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}).encode()
        data = array.array("q", [7]).tobytes() + array.array("d", [0.5, -2.0]).tobytes()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "scores"
            path.write_bytes(len(header).to_bytes(8, "little") + header + data)
            arrays = study.read_arrays(path)
        self.assertEqual((list(arrays["self"]), list(arrays["labels"])), ([0.5, -2.0], [7]))


if __name__ == "__main__":
    unittest.main()
