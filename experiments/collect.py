#!/usr/bin/env python3
"""Adds the finished runs of experiments/compare.sh to experiments/results/: collect.py FOLDER. Standard library only.

curves.csv has the success on the training tasks at every evaluation of every run, sets.csv the success of the last models
(and of the base) by set of tasks, generalisation.csv the success at every evaluation of the runs on different numbers of tasks.
Runs that are there already are replaced. table.py prints the tables from them.
"""

import csv
import json
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1])
HERE = Path(__file__).parent
TASKS = HERE / "../crates/arpo-env/tasks"
TRAINING, HELD_OUT = (
    {task["id"] for task in json.load((TASKS / f"pocket-{part}.json").open())} for part in ("train", "held-out")
)
SPLIT = {line for line in (HERE / "split.txt").read_text().splitlines() if not line.startswith("#")}
LAST = 140
LAST_GENERALISED = 200


def curve(run):
    """At every evaluation: iteration, updates so far, seconds of collection and training, success."""
    updates, seconds = 0, 0.0
    for line in map(json.loads, (run / "metrics.jsonl").open()):
        updates += line.get("update/count", 0) + line.get("update/skipped", 0)
        seconds += line.get("time/iteration", 0.0) - line.get("time/evaluate", 0.0)
        if "evaluation/training" in line:
            yield [run.name, line["iteration"], updates, f"{seconds:.1f}", f"{line['evaluation/training']:.6f}"]


def generalised(run):
    """At every evaluation: iteration, episodes and seconds of collection and training so far, success by set of tasks."""
    episodes, seconds = 0, 0.0
    for line in map(json.loads, (run / "metrics.jsonl").open()):
        episodes += line.get("collect/episodes", 0)
        seconds += line.get("time/iteration", 0.0) - line.get("time/evaluate", 0.0)
        if "evaluation/unseen" in line:
            found = (line.get(f"evaluation/{part}") for part in ("training", "unseen", "held_out"))
            success = ["" if value is None else f"{value:.6f}" for value in found]
            yield [run.name, line["iteration"], episodes, f"{seconds:.1f}"] + success


def sets(file):
    """Success on the 32 tasks of the split, the other training tasks and the held-out tasks."""
    sums = {part: [0.0, 0] for part in ("split", "others", "held out")}
    for task in json.load(file.open())["tasks"]:
        name = task["task"]
        if name not in TRAINING | HELD_OUT:
            continue  # `--part all` also evaluates unseen tasks, which the tables leave out
        part = sums["split" if name in SPLIT else "others" if name in TRAINING else "held out"]
        part[0] += sum(task["scores"])
        part[1] += len(task["scores"])
    return [file.stem] + [f"{successes / count:.6f}" for successes, count in sums.values()]


def add(name, header, rows):
    path = HERE / "results" / name
    old = list(csv.reader(path.open()))[1:] if path.exists() else []
    new = {row[0] for row in rows}
    rows = sorted([row for row in old if row[0] not in new] + rows, key=lambda row: row[0])
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header] + rows)
    print(f"{path.name}: {len(new)} added or replaced, {len({row[0] for row in rows})} in all")


made = [file.parent for file in sorted(FOLDER.glob("*/metrics.jsonl"))]
curves = [list(curve(run)) for run in made if not run.name.startswith("generalise-")]
curves = [rows for rows in curves if rows and rows[-1][1] == LAST]
add("curves.csv", ["run", "iteration", "updates", "seconds", "success"], sum(curves, []))
generalisation = [list(generalised(run)) for run in made if run.name.startswith("generalise-")]
generalisation = [rows for rows in generalisation if rows and rows[-1][1] == LAST_GENERALISED]
if generalisation:
    columns = ["run", "iteration", "episodes", "seconds", "training", "unseen", "held_out"]
    add("generalisation.csv", columns, sum(generalisation, []))
add("sets.csv", ["run", "split", "others", "held_out"], [sets(file) for file in sorted(FOLDER.glob("*.json"))])
