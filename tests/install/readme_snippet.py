#!/usr/bin/env python3
"""Prints the C++ program in README.md, line for line. SPDX-License-Identifier: Apache-2.0

usage: readme_snippet.py README.md
"""
import pathlib
import re
import sys

found = re.findall(r"^```cpp\n(.*?)^```$", pathlib.Path(sys.argv[1]).read_text(), re.M | re.S)
if len(found) != 1:
    sys.exit(f"{sys.argv[1]}: {len(found)} C++ snippets, where one is built")
print(found[0], end="")
