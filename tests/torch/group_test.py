"""Suites of tests/multirank on process groups of gloo: groups, combined contributions, and faulty ranks.
SPDX-License-Identifier: Apache-2.0"""
import os
import sys
import unittest

import torch.distributed as dist

from ranks import on_ranks


def suite(rank, size, folder, arguments):
    sys.path.insert(0, folder)
    import _c10d_ranks
    return _c10d_ranks.run(dist.group.WORLD, ["suite", *arguments])


def leave_early(rank, size, folder, by_exception):
    sys.path.insert(0, folder)
    import _c10d_ranks
    _c10d_ranks.leave_early(dist.group.WORLD, by_exception)


def read_late(rank, size, folder):
    sys.path.insert(0, folder)
    import _c10d_ranks
    _c10d_ranks.read_late(dist.group.WORLD)
    if rank == 1:
        os._exit(0)
    return "read"


class Suites(unittest.TestCase):
    def test_they_pass_on_two_to_four_ranks(self):
        for size in (2, 3, 4):
            self.expect_passed(size, "-*ExchangeCombine*:*ExchangeFaulty*:*ExchangeAttackers*", 21)

    def test_combined_contributions_are_those_of_the_definitions_on_three_to_nine_ranks(self):
        for size in (3, 4, 9):
            self.expect_passed(size, "*ExchangeCombine*", 14)

    def test_faulty_ranks_are_left_out_on_three_and_nine_ranks(self):
        for size in (3, 9):
            self.expect_passed(size, "*ExchangeFaulty*:*ExchangeAttackers*", 12)

    def expect_passed(self, size, tests, least):
        """The filter of GoogleTest chooses tests, `least` of them or more, which pass on all ranks."""
        for ran, passed in on_ranks(size, suite, os.environ["THINWIRE_SUITES"], ["--gtest_filter=" + tests]):
            self.assertTrue(passed, f"{size} ranks")
            self.assertGreaterEqual(ran, least)

    def test_what_a_rank_that_left_has_received_is_sent(self):
        for by_exception in (False, True):
            on_ranks(2, leave_early, os.environ["THINWIRE_SUITES"], by_exception)

    def test_what_a_rank_sent_before_it_left_is_read(self):
        self.assertEqual(on_ranks(2, read_late, os.environ["THINWIRE_SUITES"], lost={1})[0], "read")


if __name__ == "__main__":
    unittest.main()
