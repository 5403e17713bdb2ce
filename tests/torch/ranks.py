"""Ranks of a gloo process group, each a process. SPDX-License-Identifier: Apache-2.0"""
import datetime
import os
import pathlib
import pickle
import tempfile
import sys
import traceback

import torch
import torch.distributed as dist

from run_suite import CONTEXT

torch.set_num_threads(1)  # two that wait for each other take seconds where a core is busy


def _main(rank, size, work, arguments, folder, results):
    torch.set_num_threads(1)
    try:
        store = dist.FileStore(str(pathlib.Path(folder) / "store"), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size,
                                timeout=datetime.timedelta(seconds=60))
        dist.barrier()  # or one whose work is to end at once may do so while others still connect to it
        # As bytes: torch would hand tensors over by memory that ends with this process.
        results.put((rank, pickle.dumps(work(rank, size, *arguments)), None))
    except BaseException as error:  # noqa: BLE001 - goes to the test
        results.put((rank, None, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
        results.close()
        results.join_thread()  # or the error does not leave this process
        os._exit(1)
    if "thinwire.torch" in sys.modules:  # what the interpreter's own end would do, and a fork's does not
        sys.modules["thinwire.torch._native"]._engine.close()
    dist.destroy_process_group()


def on_ranks(size, work, *arguments, limit=300, lost=frozenset()):
    """What work(rank, size, *arguments) returns on each rank; raises what the first of them raised.

    Ranks in `lost` end without a word, and the others must end well all the same."""
    results = CONTEXT.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [CONTEXT.Process(target=_main, args=(r, size, work, arguments, folder, results))
                 for r in range(size)]
        for process in ranks:
            process.start()
        found = {}
        try:
            for _ in range(size - len(lost)):
                rank, value, error = results.get(timeout=limit)
                if error is not None:
                    raise AssertionError(f"rank {rank}: {error}")
                found[rank] = pickle.loads(value)
            for r, process in enumerate(ranks):
                process.join(30)
                if r in lost:
                    continue
                assert process.exitcode == 0, f"a rank ended with {process.exitcode}"
        finally:
            for process in ranks:
                process.kill()
                process.join()
    return [found[r] for r in range(size) if r not in lost]


def error_of(call):
    """What an error of the call says; "nothing" if there is none."""
    try:
        call()
    except Exception as error:
        return str(error)
    return "nothing"
