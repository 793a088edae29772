#!/usr/bin/env python3
"""The tables of docs/results.md from the runs of experiments/compare.sh: table.py FOLDER. Standard library only."""

import json
import statistics
import sys
from pathlib import Path

POINTS = (60, 100, 140)
SEEDS = (11, 12, 13)
STUDENT_95 = 4.303  # half the width of a 95 % interval of three values, in standard errors
FOLDER = Path(sys.argv[1])
HERE = Path(__file__).parent
TRAINING = {line["id"] for line in json.load((HERE / "../crates/arpo-env/tasks/pocket-train.json").open())}


def curve(name):
    """Success on the training tasks by iteration, with the seconds of collecting and learning until then."""
    points, seconds = {}, 0.0
    for line in map(json.loads, (FOLDER / name / "metrics.jsonl").open()):
        seconds += line.get("time/iteration", 0.0) - line.get("time/evaluate", 0.0)
        if "evaluation/training" in line:
            points[line["iteration"]] = (line["evaluation/training"], seconds)
    return points


def at_time(points, seconds):
    """Success after so many seconds, on a straight line between evaluations."""
    before = max(i for i in points if points[i][1] <= seconds)
    later = [i for i in points if points[i][1] > seconds]
    if not later:
        return points[before][0]
    (a, s), (b, t) = points[before], points[min(later)]
    return a + (b - a) * (seconds - s) / (t - s)


def with_interval(values):
    half = STUDENT_95 * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):+.1f} ± {half:.1f}"


def wilson(successes, count):
    share, z = successes / count, 1.96
    centre = (share + z * z / 2 / count) / (1 + z * z / count)
    half = z * (share * (1 - share) / count + z * z / 4 / count**2) ** 0.5 / (1 + z * z / count)
    return f"{share:.3f} [{centre - half:.2f}, {centre + half:.2f}]"


def online():
    print("| tasks | iteration | GRPO (seeds) | ARPO (seeds) | gain, points | same time: GRPO, ARPO | gain |")
    print("|---|---|---|---|---|---|---|")
    for regime in ("mixed", "hard", "easy", "split", "all"):
        grpo, arpo = ([curve(f"{regime}-{method}-{seed}") for seed in SEEDS] for method in ("grpo", "arpo"))
        for point in POINTS:
            values = [[run[point][0] for run in runs] for runs in (grpo, arpo)]
            cells = [f"{statistics.mean(v):.3f} ({' '.join(f'{x:.2f}' for x in v)})" for v in values]
            gain = with_interval([100 * (a - g) for g, a in zip(*values)])
            seconds = statistics.mean(run[point][1] for run in grpo)
            timed = [statistics.mean(at_time(run, seconds) for run in runs) for runs in (grpo, arpo)]
            same = f"{seconds:.0f} s: {timed[0]:.3f}, {timed[1]:.3f}"
            print(f"| {regime} | {point} | {' | '.join(cells)} | {gain} | {same} | {100 * (timed[1] - timed[0]):+.1f} |")


def judged(names, trained):
    """Success on the trained tasks, on the other training tasks if there are any, on the 64 held-out ones."""
    sums = {"trained": [0, 0], "others": [0, 0], "held out": [0, 0]}
    for name in names:
        for task in json.load((FOLDER / f"{name}.json").open())["tasks"]:
            part = "trained" if task["task"] in trained else "others" if task["task"] in TRAINING else "held out"
            sums[part][0] += sum(task["scores"])
            sums[part][1] += len(task["scores"])
    return " | ".join(wilson(*pair) for pair in sums.values() if pair[1])


def methods():
    lines = (HERE / "split.txt").read_text().splitlines()
    split = {line for line in lines if not line.startswith("#")}
    print("\n| method | 32 trained | the other 96 | 64 held out |\n|---|---|---|---|")
    print(f"| base | {judged(['base'], split)} |")
    for method in ("rejection", "dpo", "kto", "grpo", "arpo"):
        print(f"| {method} | {judged([f'split-{method}-{seed}' for seed in SEEDS], split)} |")
    print("\n| method | 128 trained | 64 held out |\n|---|---|---|")
    print(f"| base | {judged(['base'], TRAINING)} |")
    for method in ("grpo", "arpo"):
        print(f"| {method} | {judged([f'all-{method}-{seed}' for seed in SEEDS], TRAINING)} |")


online()
methods()
