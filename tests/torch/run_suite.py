"""Runs a suite of this folder: run_suite.py SUITE [arguments of unittest].

The process that ranks are forked from imports torch while this one does, on another core.
SPDX-License-Identifier: Apache-2.0"""
import multiprocessing
import multiprocessing.forkserver
import runpy
import sys

# What torch itself imports when the first DistributedDataParallel or optimiser is made is here too: it would cost
# every rank seconds.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "torch.distributed._functional_collectives",
                                "torch.distributed.pipelining", "thinwire.torch"])

if __name__ == "__main__":
    multiprocessing.forkserver.ensure_running()
    sys.argv.pop(0)
    runpy.run_path(sys.argv[0], run_name="__main__")
