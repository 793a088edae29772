#!/bin/sh
# Training with a real vLLM on this machine's CPU: tests/vllm/run.sh FOLDER ARPO [PARTS], with a folder for vLLM (6 GB, kept
# for the next time), the program arpo, and the parts to run (123). `./x test --vllm` does that; about 20 minutes on two
# cores. What is shown:
#
# 1. `rollout.start`: the program starts the server itself and ends it. 30 iterations learn as with the built-in engine, within the
#    interval over three seeds; the mismatch between sampler and learner stays below 1e-3, no episode is lost.
# 2. `arpo eval --policy chat`: the same success as of the checkpoint itself.
# 3. `--servers`: a server that somebody else started. It is killed while episodes run and started again: the run waits for
#    it, gives it the weights, and goes on.
#
# Everything that is started here is ended by its process group. Every wait has an end.
set -eu

name=vllm
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/../functions.sh"
folder=$(folder_at "$1")
program=$2
parts=${3:-123}
port=${ARPO_VLLM_PORT:-9127}
server=
trainer=

"$here/install.sh" "$folder/venv" >"$folder/install.log" 2>&1 || skip vLLM "$folder/install.log"
vllm=$folder/venv/bin/vllm
work=$folder/work
rm -rf "$work"
mkdir -p "$work"

# one thread for the server, so that the trainer has the other core; nothing is looked up on the network
export VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_OMP_THREADS_BIND=nobind
options="--max-model-len 4096 --enforce-eager"

stop_server() {
    [ -z "$server" ] || kill -s KILL -- "-$server" 2>/dev/null || true
    server=
}

clean_up() {
    trap - EXIT INT TERM
    [ -z "$trainer" ] || kill -TERM "$trainer" 2>/dev/null || true
    stop_server
}
at_the_end clean_up

show_logs() {
    for log in "$work"/*.log; do
        printf '%s\n' "--- $log"
        tail -n 8 "$log"
    done
}

is_up() {
    python3 -c "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=2)" \
        "http://127.0.0.1:$port/health" 2>/dev/null
}

# The server of part 2 and 3, of a copy of the pocket model with an output head of its own: vLLM on a CPU does not renew a
# tied one.
start_server() {
    VLLM_SERVER_DEV_MODE=1 setsid "$vllm" serve "$work/pocket" --served-model-name pocket --host 127.0.0.1 --port "$port" \
        --dtype float32 --enable-scale-out --logprobs-mode processed_logprobs --limit-mm-per-prompt '{"image": 32}' \
        $options >>"$work/server.log" 2>&1 </dev/null &
    server=$!
}

# The quick preset on eight listed tasks, evaluated before and after. At its own learning rate so few iterations would hardly show
# a rise.
learning="--set iterations=30 --set tasks.list=quick --set tasks.count=8 --set effort.informative_groups=0
    --set optimiser.learning_rate=2e-4
    --set collect.tasks=4 --set collect.desktops=32 --set evaluation.every=30 --set evaluation.samples=16
    --set evaluation.unseen=never --set evaluation.held_out=never"

includes() {
    case $parts in *"$1"*) ;; *) return 1 ;; esac
}

part_1() {
    printf '1. thirty iterations with the built-in engine and with a vLLM that the run starts, three seeds of each ...\n'
    for seed in 0 1 2; do
        timeout 1800 "$program" train --out "$work/builtin-$seed" $learning --set seed=$seed >"$work/builtin-$seed.log" 2>&1 ||
            fail "the built-in run failed"
        timeout 3000 "$program" train --out "$work/started-$seed" $learning --set seed=$seed --set rollout.engine=vllm \
            --set "rollout.start=$vllm serve $options" >"$work/started-$seed.log" 2>&1 || fail "the run with vLLM failed"
    done
    python3 "$here/check.py" learnt "$work" || fail "the runs with vLLM are not as they should be"
}

part_2() {
    printf '2. the same success over chat ...\n'
    timeout 1200 "$program" eval --json --quiet --samples 4 >"$work/checkpoint.json" 2>"$work/checkpoint.log" ||
        fail "the evaluation failed"
    timeout 1200 "$program" eval --policy chat --model pocket --json --quiet --samples 4 --set chat.seeded=false \
        --set "chat.servers=http://127.0.0.1:$port/v1" >"$work/chat.json" 2>"$work/chat.log" ||
        fail "the evaluation over chat failed"
    python3 "$here/check.py" same "$work/checkpoint.json" "$work/chat.json" || fail "the successes differ"
}

part_3() {
    printf '3. a server that is killed while episodes run ...\n'
    timeout 1800 "$program" train --out "$work/killed" --servers "http://127.0.0.1:$port" --set iterations=8 --set tasks.list=quick \
        --set tasks.count=8 --set effort.informative_groups=0 --set collect.tasks=4 --set collect.group_size=4 \
        --set collect.desktops=16 --set evaluation.every=0 \
        >"$work/killed.log" 2>&1 &
    trainer=$!
    wait_for 300 "two iterations" has_done "$work/killed" 2 "$trainer"
    sleep 1
    stop_server
    wait_for 60 "the notice of the lost server" grep -q "its episodes move or wait" "$work/killed.log"
    start_server
    wait_for 900 "the end of the run" has_done "$work/killed" 8 "$trainer"
    wait "$trainer" || fail "the run whose server was killed failed"
    trainer=
    python3 "$here/check.py" survived "$work/killed" 8 || fail "the run whose server was killed is not as it should be"
}

! includes 1 || part_1
if includes 2 || includes 3; then
    "$folder/venv/bin/python" "$here/own_head.py" "$here/../../models/pocket" "$work/pocket"
    start_server
    wait_for 300 "the start of the server" is_up
fi
! includes 2 || part_2
! includes 3 || part_3
printf 'vLLM samples as the built-in engine does\n'
