#!/usr/bin/env python3
"""The tables of docs/results.md and docs/lab-notes.md, from experiments/results/ (see collect.py). Standard library only."""

import csv
import statistics
from pathlib import Path

POINTS = (60, 100, 140)
# half the width of a 95 % interval (Student's t), in standard errors, by the number of seeds
STUDENT_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
RESULTS = Path(__file__).parent / "results"
CURVES = list(csv.DictReader((RESULTS / "curves.csv").open()))
SETS = list(csv.DictReader((RESULTS / "sets.csv").open()))
GENERALISED = RESULTS / "generalisation.csv"
# the names of the losses' methods, and how many iterations earlier each is compared, too: one evaluation, if it uses episodes before
# its first iteration
LOSSES = {
    "grpo": ("GRPO", 0),
    "arpo": ("ARPO", 0),
    "gspo": ("GSPO + replay", 0),
    "sapo": ("SAPO + replay", 0),
    "gigpo": ("GiGPO + replay", 0),
    "seeded": ("ARPO seeded with hints", 20),
}


def runs(kind, regime, method):
    """The runs of a method by seed, each by iteration: success on the training tasks, updates and seconds so far."""
    found = {}
    for row in CURVES:
        if row["run"].startswith(f"{kind}-{regime}-{method}-"):
            points = found.setdefault(int(row["run"].rsplit("-", 1)[1]), {})
            points[int(row["iteration"])] = (float(row["success"]), int(row["updates"]), float(row["seconds"]))
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


def losses():
    """Every method against ARPO, by pairs of the same seed, at equal updates; a method that uses episodes before its first
    iteration also at the last evaluation at which it has used no more of them than the others."""
    rows = []
    for regime in ("hard", "mixed"):
        arpo = runs("losses", regime, "arpo")
        for method, (name, before) in LOSSES.items():
            found = runs("losses", regime, method)
            seeds = sorted(set(found) & set(arpo))
            for point in POINTS if seeds else ():
                for earlier, label in ((0, ""), (before, f", its iteration {point - before}")):
                    if label and not before:
                        continue
                    values = [found[seed][point - earlier][0] for seed in seeds]
                    gains = [value - arpo[seed][point][0] for seed, value in zip(seeds, values)]
                    gain = "" if method == "arpo" else interval(gains, 100, "+", 1)
                    ahead = "" if method == "arpo" else f"{sum(gain > 0 for gain in gains)} of {len(seeds)}"
                    cells = [regime, name + label, f"{len(seeds)}", f"{point}", interval(values), gain, ahead]
                    rows.append(cells)
    if rows:
        print("\n| tasks | method | seeds | iteration | success | against ARPO, points | ahead of ARPO |")
        print("|---|---|---|---|---|---|---|")
        for row in rows:
            print("| " + " | ".join(row) + " |")


def generalised():
    """The first and the last evaluation of the runs by their number of tasks and their seed, `endless` last."""
    found = {}
    for row in csv.DictReader(GENERALISED.open()) if GENERALISED.exists() else ():
        _, tasks, seed = row["run"].split("-")
        found.setdefault(tasks, {}).setdefault(int(seed), []).append(row)
    ordered = sorted(found, key=lambda tasks: float("inf") if tasks == "endless" else int(tasks))
    return {tasks: {seed: (rows[0], rows[-1]) for seed, rows in found[tasks].items()} for tasks in ordered}


def generalisation():
    """Success after training on a number of tasks, and what it gained on the base, by seed."""
    found = generalised()
    if not found:
        return
    first = [begun for runs in found.values() for begun, _ in runs.values()]
    base = {part: statistics.mean(float(row[part]) for row in first if row[part]) for part in ("unseen", "held_out")}
    print("\n| training tasks | seeds | trained | gain, points | unseen | gain, points | held-out | gain, points |\n|---|---|---|---|---|---|---|---|")
    print(f"| base | | | | {base['unseen']:.2f} | | {base['held_out']:.2f} | |")
    for tasks, runs in found.items():
        cells = []
        for part in ("training", "unseen", "held_out"):
            pairs = [(float(begun[part]), float(ended[part])) for begun, ended in runs.values() if ended[part]]
            cells.append(interval([ended for _, ended in pairs]) if pairs else "")
            cells.append(interval([ended - begun for begun, ended in pairs], 100, "+", 1) if pairs else "")
        print(f"| {tasks} | {len(runs)} | {' | '.join(cells)} |")


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


def methods():
    print("\n| method | seeds | 32 trained | the other 96 | 64 held out |\n|---|---|---|---|---|")
    for name, prefix in (
        ("base", "base"),
        ("rejection", "offline-rejection-"),
        ("dpo", "offline-dpo-"),
        ("kto", "offline-kto-"),
        ("grpo", "quick-split-grpo-"),
        ("arpo", "quick-split-arpo-"),
    ):
        found = [row for row in SETS if row["run"].startswith(prefix)]
        if found:
            cells = (interval([float(row[part]) for row in found]) for part in ("split", "others", "held_out"))
            print(f"| {name} | {len(found)} | {' | '.join(cells)} |")


def rates():
    """The pilot runs that the learning rates were chosen by."""
    pilots = {}
    for row in CURVES:
        if row["run"].startswith("pilot-") and int(row["iteration"]) == POINTS[-1]:
            kind, _ = row["run"].rsplit("-", 1)
            pilots.setdefault(kind.replace("pilot-", "").replace("-split", ""), []).append(float(row["success"]))
    for row in SETS:
        if row["run"].startswith("pilot-"):
            kind, _ = row["run"].rsplit("-", 1)
            pilots.setdefault(kind.replace("pilot-", ""), []).append(float(row["split"]))
    if pilots:
        print("\n| objective, method, learning rate | mean | seeds |\n|---|---|---|")
        for kind, values in sorted(pilots.items()):
            print(f"| {kind} | {statistics.mean(values):.3f} | {' '.join(f'{value:.3f}' for value in values)} |")


if __name__ == "__main__":
    online("quick")
    online("paper")
    losses()
    generalisation()
    times()
    methods()
    rates()
