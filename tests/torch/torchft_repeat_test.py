"""A step that thinwire.torchft repeats, in memory that is filled again in every step. SPDX-License-Identifier: Apache-2.0"""
import logging
import os
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

from ranks import on_ranks

try:
    import torchft
except ImportError:
    torchft = None


class Manager:
    """What torchft's says of steps."""
    step, replicas = 0, 2

    def current_step(self):
        return self.step

    def is_participating(self):
        return True

    def num_participants(self):
        return self.replicas


def loses_a_replica(rank, size, dtype):
    """What rank 0 has of step 0, the error of step 1 without rank 1, and what it has of step 1 again."""
    from thinwire.torchft import ProcessGroup
    logging.getLogger("thinwire").setLevel(logging.CRITICAL)
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(2)] if rank == 0 else []
    ports = [[store.port for store in stores]]
    dist.broadcast_object_list(ports)
    manager, group = Manager(), ProcessGroup("fp32", timeout=timedelta(seconds=20), smallest=1)
    group.attach(manager)
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.SUM
    bucket = torch.empty(5000, dtype=dtype)

    def quorum(number, replicas):
        manager.replicas = replicas
        group.configure(f"127.0.0.1:{ports[0][number]}/quorum{number}", f"replica{rank}", rank, replicas, number + 1)

    def summed(gradient):
        bucket.fill_(gradient)
        group.allreduce([bucket], options).get_future().wait()
        return bucket.unique().tolist()

    quorum(0, 2)
    found = [summed(1.0 + rank)]
    manager.step = 1
    if rank == 1:
        os._exit(0)
    time.sleep(0.2)
    try:
        found.append(summed(5.0))
    except Exception as error:  # noqa: BLE001 - torch wraps it
        found.append(type(error).__name__)
    quorum(1, 1)
    found.append(summed(7.0))
    return found


@unittest.skipIf(torchft is None, "torchft is not installed")
class Repeated(unittest.TestCase):
    def test_sends_the_gradients_of_its_own_pass(self):
        for dtype in (torch.float32, torch.bfloat16):
            first, failed, again = on_ranks(2, loses_a_replica, dtype, lost={1})[0]
            self.assertEqual((first, again), ([3.0], [7.0]), dtype)
            self.assertIsInstance(failed, str)


if __name__ == "__main__":
    unittest.main()
