#!/usr/bin/env python3
"""The tables of docs/results.md from the runs of experiments/compare.sh: table.py FOLDER. Standard library only."""

import json
import statistics
import sys
from pathlib import Path

POINTS = (60, 100, 140)
# half the width of a 95 % interval (Student's t), in standard errors, by the number of seeds
STUDENT_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
FOLDER = Path(sys.argv[1])
HERE = Path(__file__).parent
TASKS = HERE / "../crates/arpo-env/tasks"
TRAINING, HELD_OUT = (
    {task["id"] for task in json.load((TASKS / f"pocket-{part}.json").open())} for part in ("train", "held-out")
)
SPLIT = {line for line in (HERE / "split.txt").read_text().splitlines() if not line.startswith("#")}


def curve(run):
    """By iteration: success on the training tasks, updates so far, seconds of collection and training."""
    points, updates, seconds = {}, 0, 0.0
    for line in map(json.loads, (run / "metrics.jsonl").open()):
        updates += line.get("update/count", 0) + line.get("update/skipped", 0)
        seconds += line.get("time/iteration", 0.0) - line.get("time/evaluate", 0.0)
        if "evaluation/training" in line:
            points[line["iteration"]] = (line["evaluation/training"], updates, seconds)
    return points


def runs(kind, regime, method):
    """The complete runs of a method by seed."""
    found = {}
    for run in FOLDER.glob(f"{kind}-{regime}-{method}-*-*"):
        if (run / "metrics.jsonl").exists():
            points = curve(run)
            if POINTS[-1] in points:
                found[int(run.name.rsplit("-", 1)[1])] = points
    return found


def interval(values, scale=1.0, sign="", digits=3):
    """The mean and its 95 % interval over seeds."""
    mean = scale * statistics.mean(values)
    if len(values) < 2:
        return f"{mean:{sign}.{digits}f}"
    half = scale * STUDENT_95[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:{sign}.{digits}f} ± {half:.{digits}f}"


def online(objective):
    rows = []
    for regime in ("hard", "mixed", "split", "easy", "all"):
        grpo, arpo = (runs(objective, regime, method) for method in ("grpo", "arpo"))
        seeds = sorted(set(grpo) & set(arpo))
        for point in POINTS if seeds else ():
            values = [[run[seed][point][0] for seed in seeds] for run in (grpo, arpo)]
            updates = {run[seed][point][1] for run in (grpo, arpo) for seed in seeds}
            gain = interval([a - g for g, a in zip(*values)], 100, "+", 1)
            ahead = sum(a > g for g, a in zip(*values))
            cells = [regime, f"{len(seeds)}", f"{point}", "/".join(map(str, sorted(updates)))]
            rows.append(cells + [interval(v) for v in values] + [gain, f"{ahead} of {len(seeds)}"])
    if rows:
        print(f"\n{objective} objective\n")
        print("| tasks | seeds | iteration | updates | GRPO | ARPO | gain, points | ARPO ahead |")
        print("|---|---|---|---|---|---|---|---|")
        for row in rows:
            print("| " + " | ".join(row) + " |")


def times():
    """Seconds of collection and training of the runs that were made one at a time."""
    rows = []
    for regime in ("hard", "mixed", "split"):
        grpo, arpo = (runs("alone", regime, method) for method in ("grpo", "arpo"))
        for seed in sorted(set(grpo) & set(arpo)):
            end = grpo[seed][POINTS[-1]]
            seconds = [run[seed][POINTS[-1]][2] for run in (grpo, arpo)]
            same = max((p for p in arpo[seed].values() if p[2] <= end[2]), key=lambda p: p[2])
            rows.append(f"| {regime} | {seconds[0]:.0f} s | {seconds[1]:.0f} s | {end[0]:.3f} | {same[0]:.3f} |")
    if rows:
        print("\n| tasks | 140 iterations of GRPO | of ARPO | GRPO then | ARPO at that time |\n|---|---|---|---|---|")
        print("\n".join(rows))


def success_by_set(files):
    """Success over seeds on the trained tasks, the other training tasks and the held-out tasks."""
    parts = {"trained": [], "others": [], "held out": []}
    for file in files:
        sums = {part: [0.0, 0] for part in parts}
        for task in json.load(file.open())["tasks"]:
            name = task["task"]
            if name not in TRAINING | HELD_OUT:
                continue  # `--part all` also evaluates unseen tasks, which these tables leave out
            part = "trained" if name in SPLIT else "others" if name in TRAINING else "held out"
            sums[part][0] += sum(task["scores"])
            sums[part][1] += len(task["scores"])
        for part, (successes, count) in sums.items():
            if count:
                parts[part].append(successes / count)
    return " | ".join(interval(values) for values in parts.values() if values)


def methods():
    print("\n| method | seeds | 32 trained | the other 96 | 64 held out |\n|---|---|---|---|---|")
    for name, pattern in (
        ("base", "base.json"),
        ("rejection", "offline-rejection-*.json"),
        ("dpo", "offline-dpo-*.json"),
        ("kto", "offline-kto-*.json"),
        ("grpo", "quick-split-grpo-*.json"),
        ("arpo", "quick-split-arpo-*.json"),
    ):
        files = sorted(FOLDER.glob(pattern))
        if files:
            print(f"| {name} | {len(files)} | {success_by_set(files)} |")


online("quick")
online("paper")
times()
methods()
