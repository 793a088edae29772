"""Checks a run that survived the faults of run.sh: check.py RUN ITERATIONS DASHBOARD PLAIN, the last being the same run without
faults; or that no job is left: check.py --jobs DASHBOARD."""

import json
import os
import pathlib
import sys
import urllib.request

# Largest difference of the mean score between the run with faults and the one without. Scores are 0 to 1; the mean of 240
# episodes varies by about 0.03.
TOLERANCE = 0.15


def check_jobs(dashboard):
    token = os.environ.get("RAY_AUTH_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://{dashboard}/api/jobs/", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        left = [job["submission_id"] for job in json.load(answer) if job["status"] in ("PENDING", "RUNNING")]
    assert not left, f"jobs are left: {left}"


def read(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "collect/episodes" in line]


def score(lines):
    return sum(line["reward/score"] for line in lines) / len(lines)


if sys.argv[1] == "--jobs":
    check_jobs(sys.argv[2])
    sys.exit()

run, iterations, dashboard, plain = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4])
lines = read(run)
assert len(lines) == iterations, f"{len(lines)} of {iterations} iterations"

index = [json.loads(line) for line in (run / "episodes/index.jsonl").read_text().splitlines()]
assert not any("dropped" in line for line in index), "the disk for episodes was full"
ids = [line["id"] for line in index if line["origin"] == "fresh" and line["outcome"] != "environment_error"]
assert len(ids) == len(set(ids)), "an episode id occurs twice"

episodes = sum(line["collect/episodes"] for line in lines)
assert episodes == len(ids), f"{episodes} episodes were counted, {len(ids)} are recorded"
lost = sum(line["collect/lost"] for line in lines)
assert lost > 0, "two losses of a worker lost no episode"
hosts = {key.split("/")[1]: 0 for line in lines for key in line if key.startswith("cluster/")}
for host in hosts:
    hosts[host] = sum(line.get(f"cluster/{host}/failures", 0) for line in lines)
assert hosts.get("127.0.0.3", 0) > 0, f"failures by host: {hosts}"
assert not (run / "cluster.json").exists(), "the run is over"
check_jobs(dashboard)

faulty, reference = score(lines), score(read(plain))
assert abs(faulty - reference) < TOLERANCE, f"mean score {faulty:.3f}, without faults {reference:.3f}"
slowest = max(line["time/iteration"] for line in lines)
median = sorted(line["time/iteration"] for line in lines)[len(lines) // 2]
print(f"{iterations} iterations, {len(ids)} episodes with different ids, {lost} lost and counted, no job and no worker left")
print(f"mean score {faulty:.3f}, without faults {reference:.3f}; an iteration took {median:.1f} s, the slowest {slowest:.1f} s")
