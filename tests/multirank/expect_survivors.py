#!/usr/bin/env python3
"""Runs a job in which a rank is lost and the others go on; the job must end in time, and its output match as often as said.

usage: expect_survivors.py SECONDS TIMES REGEX [TIMES REGEX]... -- COMMAND...
"""
import os
import re
import signal
import subprocess
import sys
import time

end = sys.argv.index("--")
seconds, wanted, command = float(sys.argv[1]), sys.argv[2:end], sys.argv[end + 1:]
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
for times, regex in zip(wanted[::2], wanted[1::2]):
    found = len(re.findall(regex, output))
    if found != int(times):
        sys.exit(f"{found} times instead of {times}: {regex}")
