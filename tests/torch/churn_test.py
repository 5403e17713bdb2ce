"""Processes are killed and join at random moments, over gloo and under torchft: nothing hangs, weights stay equal, and what is
owed is accounted for. THINWIRE_CHURN_EVENTS says how many kills and joins there are (14), THINWIRE_CHURN_SEED which.
SPDX-License-Identifier: Apache-2.0"""
import importlib.util
import os
import tempfile
import unittest

import churn_gloo
import churn_torchft
from churn_audit import Audit

EVENTS = int(os.environ.get("THINWIRE_CHURN_EVENTS", "14"))
SEED = int(os.environ.get("THINWIRE_CHURN_SEED", "3"))


class Churn(unittest.TestCase):
    def run_and_audit(self, conductor_of, longest):
        with tempfile.TemporaryDirectory() as folder:
            conductor = conductor_of(folder, SEED)
            conductor.run(EVENTS)
            audit = Audit(folder, conductor.numbers, conductor.killed)
        lost, reported = audit.norms()
        waits = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in sorted(audit.longest.items()))
        print(f"kills {conductor.kills}, joins {conductor.joins}, steps {audit.steps}, reported lost {audit.reported} of "
              f"{len(conductor.killed)} with norms of {reported:.4g} together (lost: {lost:.4g}); longest waits: {waits}",
              flush=True)
        self.assertEqual(conductor.errors + audit.errors, [])
        self.assertGreater(conductor.kills, EVENTS // 4)
        self.assertGreater(audit.steps, EVENTS // 2)
        self.assertGreater(lost, 0)
        for what, seconds in audit.longest.items():
            self.assertLess(seconds, longest.get(what, 2) * conductor.deadline, what)

    def test_over_gloo(self):
        # Gloo tries five times to reach one that was killed while a group is made.
        self.run_and_audit(churn_gloo.Conductor, {"group": 7})

    @unittest.skipUnless(importlib.util.find_spec("torchft"), "torchft is not installed: pip install torchft")
    def test_under_torchft(self):
        # A quorum waits for replicas that were killed until their heartbeat is missed, and for those that begin.
        self.run_and_audit(churn_torchft.Conductor, {"quorum": 6})


if __name__ == "__main__":
    unittest.main()
