#!/bin/sh
# A short training on a real Ray cluster of two nodes on this machine, over loopback. While it runs, a worker is killed, then
# a whole node, which then joins again; its rewards are compared with those of a run without faults. Then a training is stopped
# with Ctrl-C, and one runs on a cluster that wants a token. Usage: tests/ray/run.sh FOLDER ARPO, with a folder for Ray (about 400 MB, kept for the
# next time) and the program arpo with arpo-worker beside it. `./x test --ray` does that. Every wait has an end.
#
# Everything that is started here inherits a variable with the test's own mark, and is found and ended by that: `ray stop`
# would end every Ray of this machine.
set -eu

name=ray
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/../functions.sh"
folder=$(folder_at "$1")
program=$2
ray=$folder/venv/bin/ray
port=${ARPO_RAY_PORT:-6399}
dashboard=${ARPO_RAY_DASHBOARD:-8265}

python_with "$folder/venv" "ray[default]==2.60.0" ray Ray

mark=arpo-ray-test-$$
trainer=
work=$folder/work
said=$work/train.log
rm -rf "$work"
mkdir -p "$work"
# sockets of Ray have paths of at most 107 bytes
sockets=$(mktemp -d /tmp/arpo-ray.XXXXXX)

# The folder of workers on their hosts
export XDG_CACHE_HOME=$work/cache

# The ids of this test's processes of a node ("" for all) whose command line contains a text.
ours() {
    python3 "$here/processes.py" "$mark" "$1" "$2"
}

end_ours() {
    for process in $(ours "$1" ""); do
        kill -"$2" "$process" 2>/dev/null || true
    done
}

end_ray() {
    end_ours "" TERM
    for _ in $(seq 50); do
        [ -n "$(ours "" "")" ] || return 0
        sleep 0.2
    done
    end_ours "" KILL
}

clean_up() {
    trap - EXIT INT TERM
    [ -z "$trainer" ] || kill -TERM "$trainer" 2>/dev/null || true
    end_ray
    rm -rf "$sockets"
}
at_the_end clean_up

show_logs() {
    printf '%s\n' "--- what the training said:"
    tail -n 30 "$said" 2>/dev/null || true
}

export RAY_DISABLE_IMPORT_WARNING=1 RAY_USAGE_STATS_ENABLED=0
unset RAY_AUTH_MODE

start_head() {
    ARPO_RAY_TEST="$mark:head" timeout 180 "$ray" start --head --node-ip-address=127.0.0.1 --port="$port" \
        --dashboard-port="$dashboard" --temp-dir="$sockets" --num-cpus=1 --object-store-memory=100000000 \
        --resources='{"docker:127.0.0.2": 8}' --disable-usage-stats >"$work/head.log" 2>&1 </dev/null ||
        fail "the head did not start: $(tail -n 1 "$work/head.log")"
}

# Ray gives a node 30 s to start, which a busy machine may exceed.
start_second() {
    for _ in 1 2 3; do
        if ARPO_RAY_TEST="$mark:second" timeout 90 "$ray" start --address="127.0.0.1:$port" --node-ip-address=127.0.0.1 \
            --dashboard-agent-listen-port=52366 --num-cpus=1 --object-store-memory=100000000 \
            --resources='{"docker:127.0.0.3": 8}' --disable-usage-stats >>"$work/second.log" 2>&1 </dev/null; then
            return
        fi
        end_ours second KILL
    done
    fail "the second node did not start: $(tail -n 1 "$work/second.log")"
}

worker_of() {
    [ -n "$(ours "$1" arpo-worker)" ]
}

has_said() {
    grep -q "$1" "$said"
}

# The training: its folder, iterations, further arguments.
train() {
    run=$1 count=$2
    shift 2
    OMP_NUM_THREADS=1 exec "$program" train --out "$run" --set "iterations=$count" --set tasks.count=4 --set collect.tasks=2 \
        --set effort.informative_groups=0 --set collect.group_size=4 --set collect.desktops=8 --set collect.max_steps=4 --set evaluation.every=0 \
        --set logging.episodes_gib=10 --set cluster.grace_seconds=4 "$@" </dev/null
}

no_worker() {
    [ -z "$(ours "" arpo-worker)" ]
}

total=30
began=$(date +%s)
printf 'the training without workers and faults ...\n'
said=$work/plain.log
(train "$work/plain" "$total") >"$said" 2>&1 &
trainer=$!
wait "$trainer" || fail "it failed"
said=$work/train.log
printf 'Ray with two nodes ...\n'
start_head
start_second

printf 'a training of %s iterations, 8 desktops on two hosts with room for 8 each ...\n' "$total"
# calls take half a second longer than they would: so the faults fall into the run
(train "$work/run" "$total" --cluster "ray://127.0.0.1:$dashboard" --set faults.slow=1 --set faults.slow_seconds=0.5) \
    >"$said" 2>&1 &
trainer=$!
wait_for 120 "a worker on each node" sh -c "test -e '$work/run' || ! kill -0 $trainer"
wait_for 120 "an iteration" has_done "$work/run" 2 "$trainer"
worker_of head && worker_of second || fail "not a worker on each node"
"$program" cluster status "$work/run" || fail "no status"

printf 'kill a worker\n'
before=$(ours second arpo-worker)
for process in $before; do kill -KILL "$process" 2>/dev/null || true; done
wait_for 60 "a new job for the killed worker" has_said "worker on 127.0.0.3 has ended"
wait_for 60 "a new worker" worker_of second
wait_for 120 "further iterations" has_done "$work/run" 8 "$trainer"

printf 'kill a node: its raylet\n'
raylet=$(ours second raylet/raylet)
[ -n "$raylet" ] || fail "no raylet of the second node"
for process in $raylet; do kill -KILL "$process" 2>/dev/null || true; done
wait_for 90 "the notice of the lost node" has_said "127.0.0.3 has left the Ray cluster"
end_ours second KILL

printf 'start the node again\n'
start_second
wait_for 90 "the notice of the new node" has_said "127.0.0.3 has joined the Ray cluster again"
wait_for 90 "a worker on the new node" worker_of second

wait_for 300 "the end of the training" has_ended "$trainer"
wait "$trainer" || fail "the training failed with $?"
trainer=

no_worker || fail "worker processes are left: $(ours "" arpo-worker)"
python3 "$here/check.py" "$work/run" "$total" "127.0.0.1:$dashboard" "$work/plain" || fail "the run is not as it should be"
printf 'so far %s s\n' "$(($(date +%s) - began))"

printf 'Ctrl-C\n'
said=$work/stopped.log
# not in the background of this shell alone: those ignore Ctrl-C
python3 "$here/interruptible.py" "$program" train --out "$work/stopped" --cluster "ray://127.0.0.1:$dashboard" \
    --set iterations=1000 --set tasks.count=4 --set effort.informative_groups=0 --set collect.desktops=8 \
    --set evaluation.every=0 >"$said" 2>&1 </dev/null &
trainer=$!
wait_for 120 "an iteration" sh -c "test -s '$work/stopped/metrics.jsonl' || ! kill -0 $trainer"
kill -INT "$trainer"
wait_for 90 "the end after Ctrl-C" has_ended "$trainer"
code=0
wait "$trainer" || code=$?
trainer=
[ "$code" = 130 ] || fail "it ended with status $code: expected 130"
! has_said "could not be ended" || fail "jobs could not be ended"
no_worker || fail "worker processes are left: $(ours "" arpo-worker)"
python3 "$here/check.py" --jobs "127.0.0.1:$dashboard" || fail "jobs are left"

printf 'a cluster that wants a token\n'
end_ray
rm -rf "$sockets"/*
said=$work/refused.log
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=0123456789abcdef0123456789abcdef
start_head
(unset RAY_AUTH_MODE RAY_AUTH_TOKEN && train "$work/refused" 1 --cluster "ray://127.0.0.1:$dashboard") >"$said" 2>&1 &&
    fail "a run without the token was not refused"
[ "$(wc -l <"$said")" = 1 ] && has_said "requires a token" || fail "no clear refusal"
said=$work/token.log
(train "$work/token" 2 --cluster "ray://127.0.0.1:$dashboard") >"$said" 2>&1 || fail "a run with the token failed"
python3 "$here/check.py" --jobs "127.0.0.1:$dashboard" || fail "jobs are left"
printf 'all of it took %s s\n' "$(($(date +%s) - began))"
