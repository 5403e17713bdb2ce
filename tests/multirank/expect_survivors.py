#!/usr/bin/env python3
"""Runs a job in which a rank is lost and the others go on; it must end in time, its output match as often as said.

usage: expect_survivors.py SECONDS TIMES REGEX [TIMES REGEX]... -- COMMAND...
"""
import re
import sys

import job

end = sys.argv.index("--")
seconds, wanted, command = float(sys.argv[1]), sys.argv[2:end], sys.argv[end + 1:]
_, output = job.run(command, seconds)
for times, regex in zip(wanted[::2], wanted[1::2]):
    found = len(re.findall(regex, output))
    if found != int(times):
        sys.exit(f"{found} times instead of {times}: {regex}")
