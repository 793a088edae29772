"""The ids of the processes that inherited the mark of a test: processes.py MARK NODE TEXT, one id a line.

NODE: only those of this node; empty for all. TEXT: only those whose command line contains it. Processes that have ended
but were not waited for are left out."""

import os
import sys

mark, node, text = sys.argv[1:]
wanted = f"ARPO_RAY_TEST={mark}:{node}".encode()
for name in os.listdir("/proc"):
    if not name.isdigit():
        continue
    try:
        with open(f"/proc/{name}/environ", "rb") as file:
            variables = file.read().split(b"\0")
        with open(f"/proc/{name}/cmdline", "rb") as file:
            command = file.read().replace(b"\0", b" ")
        with open(f"/proc/{name}/stat") as file:
            state = file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        continue
    marked = any(variable == wanted or not node and variable.startswith(wanted) for variable in variables)
    if marked and state != "Z" and text.encode() in command:
        print(name)
