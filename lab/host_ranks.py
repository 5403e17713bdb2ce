"""Runs a script as ranks of torch.distributed, which are processes on hosts of thin_links.py.

SPDX-License-Identifier: Apache-2.0
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import thin_links


def measure(script, arguments, rate, hosts, ranks_per_host=1, timeout=3600):
    """What rank 0 of the script writes into the file of its option --out, as text.

    Consecutive ranks are on the same host. `rate` is that of every host's link as tc writes it, or none. Ends with an
    error if a rank does, or after `timeout` seconds.
    """
    lab = thin_links.Lab(hosts, "1gbit" if rate == "none" else rate, None, "50ms")
    thin_links.remove(thin_links.is_left_over)
    try:
        lab.set_up()
        if rate == "none":
            for host in lab.hosts:
                thin_links.sh("tc", "-n", lab.namespace(host), "qdisc", "del", "dev", "net0", "root")
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out"
            ranks = [subprocess.Popen(["ip", "netns", "exec", lab.namespace(lab.hosts[rank // ranks_per_host]),
                                       sys.executable, str(script), *arguments, "--out", str(out)],
                                      env=environment(rank, hosts * ranks_per_host))
                     for rank in range(hosts * ranks_per_host)]
            try:
                wait(ranks, pathlib.Path(script).stem, time.monotonic() + timeout)
            finally:
                for rank in ranks:
                    rank.kill()
                    rank.wait()
            return out.read_text()
    finally:
        lab.tear_down()


def wait(ranks, name, deadline):
    while any(rank.poll() is None for rank in ranks):
        codes = [rank.poll() for rank in ranks]
        if any(codes):
            sys.exit(f"{name}: ranks end with {codes}; None: it runs")
        if time.monotonic() > deadline:
            sys.exit(f"{name}: no end before the time limit")
        time.sleep(0.1)
    if any(codes := [rank.returncode for rank in ranks]):
        sys.exit(f"{name}: ranks end with {codes}")


def environment(rank, world_size):
    return dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR=f"{thin_links.NET}.1",
                MASTER_PORT="29500", GLOO_SOCKET_IFNAME="net0", TORCH_CPP_LOG_LEVEL="ERROR")
