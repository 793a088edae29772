#!/bin/sh
# Plays some of OSWorld's tasks on container desktops, in this program and on workers: scores and actions have to be the same.
#   tests/osworld/workers.sh TASKS FOLDER [TASK ...]     # OSWorld's folder of task files of the ARPO era, where results go
# Needs a Docker engine, the image of `./x image` and target/release/arpo with arpo-worker. Each task is played twice, once as its
# script solves it and once wrongly.
set -eu
tasks=${1:?the folder that holds OSWorld\'s examples}
out=${2:?the folder for results}
shift 2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
arpo=${ARPO:-$here/../../target/release/arpo}
mkdir -p "$out"
python3 - "$here/solved-list.json" "$out/list.json" "$@" <<'END'
import json, sys

source, target, *wanted = sys.argv[1:]
listed = json.load(open(source))
chosen = {domain: [task for task in tasks if not wanted or task in wanted] for domain, tasks in listed.items()}
json.dump({domain: tasks for domain, tasks in chosen.items() if tasks}, open(target, "w"))
END

play() { # NAME SCRIPT ARGUMENTS
    name=$1 script=$2
    shift 2
    echo "== $name"
    "$arpo" eval --suite osworld --hard --script "$script" --result_dir "$out/$name" --set osworld.tasks="$tasks" \
        --set tasks.list="$out/list.json" --set osworld.offline=true --set osworld.cache="$out/cache" \
        --set osworld.settle_seconds=8 --set collect.desktops="${DESKTOPS:-2}" "$@"
}

for kind in solved wrong; do
    play "$kind-here" "$here/$kind.json"
    play "$kind-workers" "$here/$kind.json" --cluster "${CLUSTER:-local:2}"
done
python3 - "$out" <<'END'
import json, pathlib, sys

out = pathlib.Path(sys.argv[1])


def results(name):
    found = {}
    for file in sorted((out / name).rglob("result.txt")):
        lines = [json.loads(line) for line in (file.parent / "traj.jsonl").read_text().splitlines()]
        steps = [(line["step_num"], line["action"], line["response"], line["done"]) for line in lines if "action" in line]
        assert len(list(file.parent.glob("step_*.png"))) == len(steps), file.parent
        found[file.parent.name] = (float(file.read_text()), steps)
    return found


for script in ("solved", "wrong"):
    here, workers = results(f"{script}-here"), results(f"{script}-workers")
    assert here and here == workers, f"{script}: {here} is not {workers}"
    scores = [score for score, _ in here.values()]
    print(f"{script}: {len(scores)} tasks, the same scores and actions with and without workers: {scores}")
END
if [ -n "$(docker ps --all --quiet --filter label=arpo.provider)" ]; then
    echo "containers are left:" >&2
    docker ps --all --filter label=arpo.provider >&2
    exit 1
fi
