#!/usr/bin/env python3
"""Runs a job in which a rank fails; it must end in failure, in time, and its output must match.

usage: expect_fault.py SECONDS REGEX COMMAND...
"""
import re
import sys

import job

seconds, regex, command = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
status, output = job.run(command, seconds)
if status == 0:
    sys.exit("the job should have failed")
if not re.search(regex, output):
    sys.exit(f"no output matches {regex}")
