"""Checks the runs of run.sh: check.py learnt FOLDER | survived RUN ITERATIONS | same REPORT REPORT."""

import json
import math
import pathlib
import statistics
import sys

MISMATCH = 1e-3
SEEDS = 3
STUDENT_T = 2.776  # of 95 % with 2 * (SEEDS - 1) degrees of freedom


def lines(run):
    return [json.loads(line) for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()]


def iterations(run):
    return [line for line in lines(run) if "collect/episodes" in line]


def check(holds, problem):
    if not holds:
        sys.exit(problem)


def check_sampling(run, count):
    done = iterations(run)
    check(len(done) == count, f"{len(done)} iterations, expected {count}")
    worst = max(line["policy/mismatch"] for line in done)
    check(worst < MISMATCH, f"the mean difference of log-probabilities reached {worst}")
    check(any(line["policy/mismatch"] > 0 for line in done), "no log-probabilities were compared")
    check(all(line["policy/staleness"] == 0 for line in done), "episodes were sampled with old weights")
    return done, worst


def rise(run):
    """The rise of success on the trained tasks."""
    evaluated = [line["evaluation/training"] for line in lines(run) if "evaluation/training" in line]
    print(f"   {run.name}: success {evaluated[0]:.3f} -> {evaluated[-1]:.3f}")
    return evaluated[-1] - evaluated[0]


def half_width(runs_each, spread):
    """Of the 95 % interval of a mean over as many runs, or of the difference of two such means if the spread is that of it."""
    return STUDENT_T * spread / math.sqrt(runs_each)


def learnt(work):
    """Seeds differ by more than the rollouts explain, so the intervals are over seeds (Student's t, equal variances)."""
    runs = {kind: sorted(pathlib.Path(work).glob(f"{kind}-?")) for kind in ("builtin", "started")}
    check(all(len(found) == SEEDS for found in runs.values()), f"expected {SEEDS} runs of each kind: {runs}")
    checked = [check_sampling(run, 30) for run in runs["started"]]
    check(sum(line["collect/lost"] for done, _ in checked for line in done) == 0, "episodes were lost")
    rises = {kind: [rise(run) for run in found] for kind, found in runs.items()}
    builtin, vllm = (statistics.mean(of_kind) for of_kind in rises.values())
    spread = math.sqrt(statistics.mean(statistics.variance(of_kind) for of_kind in rises.values()))
    own, difference = half_width(SEEDS, spread), half_width(SEEDS, spread * math.sqrt(2))
    seconds = [statistics.mean(line["time/collect"] for run in found for line in iterations(run)) for found in runs.values()]
    print(f"   mean rise {builtin:.3f} built-in, {vllm:.3f} with vLLM, each +-{own:.3f}")
    print(f"   a difference of {vllm - builtin:+.3f} +-{difference:.3f}")
    print(f"   mismatch at most {max(worst for _, worst in checked):.1e}; collecting took {seconds[0]:.1f} s and {seconds[1]:.1f} s")
    for name, mean in (("built-in engine", builtin), ("vLLM", vllm)):
        check(mean > own, f"the runs with the {name} did not learn")
    check(abs(vllm - builtin) <= difference, "the rises differ by more than their interval")


def survived(run, count):
    done, worst = check_sampling(run, int(count))
    lost, all_of_them = (sum(line[key] for line in done) for key in ("collect/lost", "collect/episodes"))
    print(f"   {all_of_them} episodes, {lost} lost, mismatch at most {worst:.1e}")
    check(all_of_them == 16 * int(count), "episodes are missing")


def same(one, other):
    success = [json.loads(pathlib.Path(path).read_text())["success"] for path in (one, other)]
    for name, one in zip(("checkpoint", "over chat"), success):
        print(f"   {name}: {one['mean']:.3f} [{one['low']:.3f}, {one['high']:.3f}] of {one['rollouts']} rollouts")
    check(success[0]["low"] <= success[1]["high"] and success[1]["low"] <= success[0]["high"], "the intervals do not meet")


{"learnt": learnt, "survived": survived, "same": same}[sys.argv[1]](*sys.argv[2:])
