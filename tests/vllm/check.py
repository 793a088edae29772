"""Checks the runs of run.sh: check.py learnt BUILTIN VLLM | survived RUN ITERATIONS | same REPORT REPORT."""

import json
import math
import pathlib
import sys

MISMATCH = 1e-3


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
    """The rise of success on the trained tasks, with the half-width of its interval."""
    evaluated = [line for line in lines(run) if "evaluation/training" in line]
    first, last = evaluated[0], evaluated[-1]
    half = math.hypot(*(line["evaluation/training/high"] - line["evaluation/training"] for line in (first, last)))
    return first["evaluation/training"], last["evaluation/training"], half


def learnt(builtin, vllm):
    done, worst = check_sampling(vllm, 30)
    check(sum(line["collect/lost"] for line in done) == 0, "episodes were lost")
    rises = {}
    for name, run in (("built-in", builtin), ("vLLM", vllm)):
        first, last, half = rise(run)
        rises[name] = (last - first, half)
        print(f"   {name}: success {first:.3f} -> {last:.3f}, a rise of {last - first:.3f} +-{half:.3f}")
    seconds = {name: sum(line["time/collect"] for line in iterations(run)) / 30
               for name, run in (("built-in", builtin), ("vLLM", vllm))}
    print(f"   mismatch at most {worst:.1e}; collecting took {seconds['built-in']:.1f} s and {seconds['vLLM']:.1f} s")
    (one, half_one), (other, half_other) = rises.values()
    check(other - half_other > 0, "the run with vLLM did not learn")
    check(abs(one - other) <= math.hypot(half_one, half_other), "the rises differ by more than their intervals")


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
