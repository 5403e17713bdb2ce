#!/usr/bin/env python3
"""Tests thin_links.py: links have their rates, and nothing is left behind after success, failure and a signal.

    thin_links_test.py      exits with 77, which CTest takes for skipped, where labs cannot be made
"""
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import signal
import subprocess
import sys
import time

import thin_links

LAB = pathlib.Path(__file__).with_name("thin_links.py")


def lab(*arguments, command):
    return subprocess.run([LAB, *arguments, "--", *command], capture_output=True, text=True,
                          timeout=120)


def traces(pid):
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    left = [line for line in spaces.splitlines() if line.startswith(f"thinwire-{pid}-")]
    folder = pathlib.Path("/etc/netns")
    return left + [str(f) for f in folder.glob(f"thinwire-{pid}-*")]


def check(holds, what, done=None):
    if not holds:
        sys.exit(f"{what}\n{done.stdout}{done.stderr}" if done else what)


def check_bursts():
    for rate, bytes_ in (("10gbit", 524288), ("1gbit", 262144), ("100Mbit", 62500), ("2.5mbit", 16384)):
        check(thin_links.burst_for(rate) == str(bytes_), f"the bucket of {rate} is {thin_links.burst_for(rate)}")
    check(thin_links.burst_for("fastmbit") == "256kb", "a rate that is none is left to tc")


def main():
    check_bursts()
    if os.geteuid() != 0:
        sys.exit(77)
    space = f"thinwire-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", space], capture_output=True).returncode != 0:
        sys.exit(77)
    subprocess.run(["ip", "netns", "delete", space], check=True)

    done = lab("--hosts", "3", "--rate", "50mbit", command=["sh", "-c", "hostname; tc qdisc show"])
    check(done.returncode == 0, "a command that succeeds did not", done)
    for host in ("host1", "host2", "host3"):
        check(host in done.stdout.split(), f"no process on {host}", done)
    check(done.stdout.count("rate 50Mbit") == 3, "not every link is shaped", done)

    done = lab("--rate", "50mbit", "--then", "20mbit@0.5", command=["sh", "-c", "sleep 2; tc qdisc show"])
    check(done.stdout.count("rate 20Mbit") == 2, "not every link has its later rate", done)
    done = lab("--then", "fast@0.1", command=["sleep", "1"])
    check(done.returncode != 0 and "fast" in done.stderr, "a later rate that is none was taken", done)
    done = lab("--then", "20mbit", command=["true"])
    check(done.returncode != 0 and "RATE@SECONDS" in done.stderr, "a later rate without a time was taken", done)

    done = lab(command=["sh", "-c", "exit 3"])
    check(done.returncode != 0, "a command that fails did not", done)

    done = lab("--rate", "fast", command=["true"])
    check(done.returncode != 0 and "rate" in done.stderr, "a rate that is none was taken", done)

    with subprocess.Popen([LAB, "--", "sleep", "100"], stderr=subprocess.PIPE) as running:
        for _ in range(600):
            if len(traces(running.pid)) == 6:
                break
            time.sleep(0.1)
        check(len(traces(running.pid)) == 6, "the lab was not set up")
        running.send_signal(signal.SIGTERM)
        running.wait(timeout=60)
        check(not traces(running.pid), f"left behind: {traces(running.pid)}")

    with subprocess.Popen([LAB, "--", "sleep", "100"], stderr=subprocess.PIPE) as killed:
        while len(traces(killed.pid)) < 6:
            time.sleep(0.1)
        killed.kill()
    check(traces(killed.pid), "a lab that was killed cleaned up, which cannot be")
    done = lab(command=["true"])
    check(done.returncode == 0 and not traces(killed.pid), "left-overs were not removed", done)


if __name__ == "__main__":
    main()
