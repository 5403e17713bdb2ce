"""The program looks into libstdc++ before it looks into libtorch, which exports a std::filesystem of another compiler.

usage: libraries.py OBJDUMP PROGRAM
"""
# SPDX-License-Identifier: Apache-2.0
import re
import subprocess
import sys

objdump, program = sys.argv[1:3]
headers = subprocess.run([objdump, "-p", program], capture_output=True, text=True, check=True).stdout
needed = re.findall(r"^ *NEEDED +(\S+)", headers, re.MULTILINE)
first = {part: next((i for i, name in enumerate(needed) if name.startswith(part)), None)
         for part in ("libstdc++", "libtorch", "libc10")}
if None in first.values() or first["libstdc++"] > min(first["libtorch"], first["libc10"]):
    sys.exit(f"{program}: libstdc++ has to come before libtorch and libc10 (cmake/torch.cmake): {' '.join(needed)}")
