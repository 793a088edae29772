"""Checks a run that survived the faults of run.sh: check.py RUN ITERATIONS DASHBOARD."""

import json
import pathlib
import sys
import urllib.request

run, iterations, dashboard = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
lines = [line for line in lines if "collect/episodes" in line]
assert len(lines) == iterations, f"{len(lines)} of {iterations} iterations"

ids = []
for file in sorted((run / "episodes").glob("iteration-*.jsonl")):
    ids += [json.dumps(json.loads(line)["id"]) for line in file.read_text().splitlines()]
assert len(ids) == len(set(ids)), "an episode id occurs twice"

episodes = sum(line["collect/episodes"] for line in lines)
assert episodes == len(ids), f"{episodes} episodes were counted, {len(ids)} are recorded"
lost = sum(line["collect/lost"] for line in lines)
assert lost > 0, "two losses of a worker lost no episode"

with urllib.request.urlopen(f"http://{dashboard}/api/jobs/", timeout=10) as answer:
    left = [job["submission_id"] for job in json.load(answer) if job["status"] in ("PENDING", "RUNNING")]
assert not left, f"jobs are left: {left}"
print(f"{iterations} iterations, {len(ids)} episodes with different ids, {lost} lost and counted, no job and no worker left")
