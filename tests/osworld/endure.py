#!/usr/bin/env python3
"""Plays 200 episodes on eight container desktops while desktops are killed, their servers stopped, their disks filled.

    tests/osworld/endure.py TASKS LIST FOLDER      # OSWorld's task folder, 25 of its tasks, where results go

Needs root, a Docker engine, the image arpo-desktop:latest and target/release/arpo (or $ARPO); standard library only.
Every episode has to end with a score, and nothing may be left on the engine. Prints what was done to desktops and what
came of it. TRIALS=3 plays 75 episodes.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

TRIALS, DESKTOPS, SECONDS_BETWEEN_FAULTS = int(os.environ.get("TRIALS", "8")), 8, 6.0
LABEL = "arpo.run"
FULL = """
mount -t tmpfs -o size=16k tmpfs /tmp && head -c 1M /dev/zero >/tmp/full
mount -t tmpfs -o size=16k,uid=1000 tmpfs /home/user/Desktop && head -c 1M /dev/zero >/home/user/Desktop/full
"""


def docker(*words):
    return subprocess.run(["docker", *words], capture_output=True, text=True, timeout=60, check=False)


def desktops(*state):
    return docker("ps", *state, "--quiet", "--filter", f"label={LABEL}").stdout.split()


def kill(name):
    return docker("kill", name).returncode == 0


def stop_server(name):
    """The server is process 1's child; it is stopped from outside, where it has another number."""
    for line in docker("top", name, "-eo", "pid,comm").stdout.splitlines()[1:]:
        pid, program = line.split(None, 1)
        if program.strip() == "arpo-desktop":
            os.kill(int(pid), signal.SIGSTOP)
    return True


def fill_disk(name):
    """From outside: a `docker exec` into a desktop that is frozen at that moment hangs the engine, too."""
    pid = docker("inspect", "--format", "{{.State.Pid}}", name).stdout.strip()
    enter = ["nsenter", "--target", pid, "--mount", "sh", "-c", FULL]
    # head fails where the disk is full, as it should
    subprocess.run(enter, capture_output=True, timeout=20, check=False)
    return True


def disturb(over, done):
    draw = random.Random(7)
    while not over.wait(SECONDS_BETWEEN_FAULTS):
        running = desktops("--filter", "status=running")
        if running:
            fault = draw.choice((kill, stop_server, fill_disk))
            try:
                done[fault.__name__] += bool(fault(draw.choice(running)))
            except (OSError, subprocess.SubprocessError):
                done["too late"] += 1


def main():
    tasks, chosen, folder = sys.argv[1:]
    ids = [task for domain in json.loads(Path(chosen).read_text()).values() for task in domain]
    script = Path(folder) / "script.json"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(json.dumps({task: ["wait()", "wait()", "error_env()"] for task in ids}))
    arpo = os.environ.get("ARPO", Path(__file__).parent / "../../target/release/arpo")
    limits = {"reset": 90, "step": 30, "evaluate": 60}
    command = [arpo, "eval", "--suite", "osworld", "--script", script, "--result_dir", folder, "--hard"]
    command += ["--samples", str(TRIALS), "--num_envs", str(DESKTOPS), "--set", f"tasks.list={chosen}"]
    command += ["--set", f"osworld.tasks={tasks}", "--set", "osworld.offline=true", "--set", "osworld.settle_seconds=1"]
    # as often as training does: at this rate of faults one episode in thirty loses three desktops in a row
    command += ["--set", "collect.refills=8"]
    for call, seconds in limits.items():
        command += ["--set", f"collect.{call}_seconds={seconds}"]
    done, over, began = Counter(), threading.Event(), time.monotonic()
    disturber = threading.Thread(target=disturb, args=(over, done))
    disturber.start()
    try:
        code = subprocess.run(command, check=False).returncode
    finally:
        over.set()
        disturber.join()
    scores = list(Path(folder).glob("pyautogui/screenshot/script/*/*/*/result.txt"))
    left = desktops("--all")
    networks = docker("network", "ls", "--quiet", "--filter", f"label={LABEL}").stdout.split()
    print(f"{len(scores)} of {TRIALS * len(ids)} episodes have a score; exit {code}; {time.monotonic() - began:.0f} s")
    print(f"faults: {dict(done)}; left behind: {len(left)} containers, {len(networks)} networks")
    return 0 if code == 0 and len(scores) == TRIALS * len(ids) and not left and not networks else 1


if __name__ == "__main__":
    sys.exit(main())
