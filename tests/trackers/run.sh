#!/bin/sh
# A training that is logged to the real TensorBoard, W&B (offline) and MLflow at once. Usage: tests/trackers/run.sh FOLDER ARPO, with a
# folder for their packages (kept for the next time) and the program arpo. `./x test --trackers` does that. Every wait has an end.
set -eu

folder=$1
program=$2
mkdir -p "$folder"
folder=$(CDPATH='' cd -- "$folder" && pwd)
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=$folder/venv/bin/python

if ! "$python" -c 'import tensorboard, wandb, mlflow' 2>/dev/null; then
    rm -rf "$folder/venv"
    if ! { python3 -m venv "$folder/venv" &&
        timeout 1200 "$folder/venv/bin/pip" install --quiet tensorboard wandb mlflow; } >"$folder/pip.log" 2>&1; then
        rm -rf "$folder/venv"
        printf 'skipped: tensorboard, wandb and mlflow cannot be installed here: %s\n' "$(tail -n 1 "$folder/pip.log")"
        exit 0
    fi
fi

work=$folder/work
rm -rf "$work"
mkdir -p "$work"
server=
clean_up() {
    trap - EXIT INT TERM
    [ -z "$server" ] || kill -TERM "$server" 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 1' INT TERM

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port
"$folder/venv/bin/mlflow" server --host 127.0.0.1 --port "$port" --workers 1 --backend-store-uri "sqlite:///$work/mlflow.db" \
    --default-artifact-root "$work/artifacts" >"$work/mlflow.log" 2>&1 </dev/null &
server=$!
for _ in $(seq 600); do
    ! "$python" -c "import urllib.request as u; u.urlopen('$url/health', timeout=2)" 2>/dev/null || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.2
done
"$python" -c "import urllib.request as u; u.urlopen('$url/health', timeout=5)" 2>/dev/null || {
    printf 'trackers: mlflow did not start: %s\n' "$(tail -n 1 "$work/mlflow.log")" >&2
    exit 1
}

export WANDB_MODE=offline WANDB_CONSOLE=off
small="--set tasks.count=4 --set effort.informative_groups=0 --set collect.tasks=2 --set collect.group_size=4
    --set collect.max_steps=4 --set evaluation.every=4 --set evaluation.samples=1 --set evaluation.unseen=never --set evaluation.held_out=never --set checkpoints.every=4"
to="--set logging.python=$python --set logging.mlflow_server=$url --set logging.project=check"
# live
# shellcheck disable=SC2086
timeout 600 "$program" train --quiet --out "$work/live" --set iterations=8 $small $to \
    --set 'logging.to=["tensorboard","wandb","mlflow"]' >"$work/live.log" 2>&1 </dev/null
# afterwards, the same code; then again, which adds nothing
# shellcheck disable=SC2086
timeout 600 "$program" train --quiet --out "$work/later" --set iterations=4 $small >"$work/later.log" 2>&1 </dev/null
for _ in 1 2; do
    # shellcheck disable=SC2086
    timeout 300 "$program" log "$work/later" --to tensorboard,wandb,mlflow $to </dev/null
done
timeout 300 "$python" "$here/check.py" "$work/live" "$work/later" "$url"

# a server that is not there costs one notice and not the run
# shellcheck disable=SC2086
timeout 600 "$program" train --quiet --out "$work/alone" --set iterations=1 $small --set 'logging.to=["mlflow"]' \
    --set logging.mlflow_server=http://127.0.0.1:9 --set evaluation.every=0 >"$work/alone.log" 2>&1 </dev/null
grep -q '"iteration":1' "$work/alone/metrics.jsonl"
[ "$(grep -c 'mlflow: ' "$work/alone.log")" -le 2 ] || {
    printf 'trackers: too many notices: %s\n' "$(cat "$work/alone.log")" >&2
    exit 1
}
printf 'a server that is not there: %s\n' "$(grep 'mlflow: ' "$work/alone.log" | tail -n 1)"
