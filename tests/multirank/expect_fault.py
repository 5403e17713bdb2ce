#!/usr/bin/env python3
"""Runs a job in which a rank fails; it must end in failure, in time, and its output must match.

usage: expect_fault.py SECONDS REGEX COMMAND...
"""
import os
import re
import signal
import subprocess
import sys
import time

seconds, regex, command = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
begin = time.monotonic()
job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       start_new_session=True)
try:
    output, _ = job.communicate(timeout=seconds)
except subprocess.TimeoutExpired:
    os.killpg(job.pid, signal.SIGKILL)
    output, _ = job.communicate()
    print(output)
    sys.exit(f"the job had not ended after {seconds} s")
print(output)
print(f"ended with {job.returncode} after {time.monotonic() - begin:.1f} s")
if job.returncode == 0:
    sys.exit("the job should have failed")
if not re.search(regex, output):
    sys.exit(f"no output matches {regex}")
