#!/usr/bin/env python3
"""Tests the table of compare_sharded.py. SPDX-License-Identifier: Apache-2.0"""
import argparse
import unittest

import compare_sharded


class Page(unittest.TestCase):
    def test_methods_are_compared_with_torchs_own_of_the_same_kind(self):
        methods = ["hsdp", "hsdp, int8", "fsdp", "fsdp, fp32, weights fp32"]
        rows = {"hsdp": {"ms": 400, "mb": 8}, "hsdp, int8": {"ms": 100, "mb": 2},
                "fsdp": {"ms": 900, "mb": 30}, "fsdp, fp32, weights fp32": {"ms": 600, "mb": 20}}
        options = argparse.Namespace(methods=methods, layers=4, tokens=32)
        lines = compare_sharded.page({"1gbit": {"values": 2_000_000, "methods": rows}}, options).splitlines()
        self.assertEqual(lines[0], "GPT of 2.0 million parameters, 4 blocks, 32 tokens a rank.")
        self.assertEqual(lines[4:], ["| hsdp | 400 | 8.000 |  |", "| hsdp, int8 | 100 (4.0x) | 2.000 | 4.0 |",
                                     "| fsdp | 900 | 30.000 |  |",
                                     "| fsdp, fp32, weights fp32 | 600 (1.5x) | 20.000 | 1.5 |"])


if __name__ == "__main__":
    unittest.main()
