"""Runs a program that Ctrl-C can stop: a shell without job control lets its background processes ignore it.

interruptible.py PROGRAM ARGUMENTS"""

import os
import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
