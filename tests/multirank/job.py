"""Runs a job under a time limit, for the checks of this folder. SPDX-License-Identifier: Apache-2.0"""
import os
import signal
import subprocess
import sys
import time


def run(command, seconds):
    """Its exit status and all that it printed, which is printed on; ends the check if the job is late."""
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
    return job.returncode, output
