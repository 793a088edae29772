"""A training with 64 desktops on 4 local workers, one of which is killed every 5 seconds: endure.py ARPO FOLDER [ITERATIONS].

Every iteration has 64 episodes. At the end: all iterations are there, no episode id occurs twice, every episode was counted, no
worker is left, and how much memory trainer and workers had. Connections that are cut are tested in
crates/arpo-cluster/tests/it/endurance.rs."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
iterations = int(sys.argv[3]) if len(sys.argv) > 3 else 16
every, limit = 5.0, 3600
settings = {
    "iterations": iterations,
    "collect.tasks": 16,
    "collect.group_size": 4,
    "collect.desktops": 64,
    "collect.max_steps": 4,
    "evaluation.every": 0,
    "logging.episodes_gib": 10,
    "cluster.grace_seconds": 2,
}


def children(process):
    """The worker processes of a trainer."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path(f"/proc/{name}/stat").read_text()
        except OSError:
            continue
        inside, after = stat.rsplit(")", 1)
        if after.split()[1] == str(process) and "arpo-worker" in inside and after.split()[0] != "Z":
            found.append(int(name))
    return found


def resident_mib(process):
    try:
        lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:"))
    except (OSError, StopIteration):
        return 0


command = [program, "train", "--quiet", "--out", str(folder), "--cluster", "local:4"]
for key, value in settings.items():
    command += ["--set", f"{key}={value}"]
trainer = subprocess.Popen(command, stdin=subprocess.DEVNULL)
chance, killed, largest, began = random.Random(1), 0, 0, time.monotonic()
last, seen = began, set()
try:
    while trainer.poll() is None:
        assert time.monotonic() - began < limit, "it does not end"
        workers = children(trainer.pid)
        seen.update(workers)
        largest = max([largest, *map(resident_mib, workers)])
        if workers and (folder / "metrics.jsonl").exists() and time.monotonic() - last >= every:
            os.kill(chance.choice(workers), signal.SIGKILL)
            killed, last = killed + 1, time.monotonic()
        time.sleep(0.1)
finally:
    if trainer.poll() is None:
        trainer.terminate()
assert trainer.returncode == 0, f"the training ended with {trainer.returncode}"

lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
lines = [line for line in lines if "collect/episodes" in line]
assert len(lines) == iterations, f"{len(lines)} of {iterations} iterations"
index = [json.loads(line) for line in (folder / "episodes/index.jsonl").read_text().splitlines()]
assert not any("dropped" in line for line in index), "the disk for episodes was full"
ids = [line["id"] for line in index if line["origin"] == "fresh" and line["outcome"] != "environment_error"]
assert len(ids) == len(set(ids)), "an episode id occurs twice"
counted = sum(line["collect/episodes"] for line in lines)
assert counted == len(ids), f"{counted} episodes were counted, {len(ids)} are recorded"
left = [worker for worker in seen if os.path.exists(f"/proc/{worker}")]
assert not left, f"workers are left: {left}"
lost = sum(line["collect/lost"] for line in lines)
print(f"{len(ids)} episodes with different ids, {killed} workers killed, {lost} episodes lost and counted, no worker left")
print("MiB of the trainer after each iteration:", *(int(line["time/resident_mib"]) for line in lines))
print(f"most MiB of a worker: {largest}; {time.monotonic() - began:.0f} s")
