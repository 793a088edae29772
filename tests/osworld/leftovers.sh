#!/bin/sh
# Training on container desktops leaves no container: at its normal end, after an error, after Ctrl-C.
#   tests/osworld/leftovers.sh TASKS FOLDER      # OSWorld's folder of task files of the ARPO era, where runs go
# Needs a Docker engine, the image of `./x image` and target/release/arpo; takes two minutes.
set -eu
tasks=${1:?the folder that holds OSWorld\'s examples}
out=${2:?the folder for runs}
here=$(cd "$(dirname "$0")" && pwd)
arpo=${ARPO:-$here/../../target/release/arpo}
mkdir -p "$out"
echo '{"os": ["e0df059f-28a6-4169-924f-b9623e7184cc"]}' >"$out/list.json"

# the small model plays on large screens, badly: what matters is what stays behind
train() { # NAME SETTING...
    name=$1
    shift
    exec "$arpo" train --preset osworld --out "$out/$name" --set model.base=pocket --set model.device=cpu \
        --set agent.prompt=short --set agent.max_tokens=24 --set agent.min_pixels=784 --set agent.max_pixels=1003520 \
        --set osworld.tasks="$tasks" --set tasks.list="$out/list.json" --set osworld.offline=true \
        --set osworld.cache="$out/cache" --set osworld.settle_seconds=2 --set osworld.spares=1 --set collect.desktops=2 \
        --set collect.tasks=1 --set collect.group_size=2 --set collect.max_steps=2 --set evaluation.every=0 "$@"
}

# Waits for a file or folder, a minute at most.
appears() { # PATH
    for _ in $(seq 300); do
        [ -e "$1" ] && return
        sleep 0.2
    done
    echo "$1 never came" >&2
    exit 1
}

check() { # NAME EXPECTED ACTUAL
    left=$(docker ps --all --quiet --filter name=arpo- | wc -l)
    echo "$1: exit $3, $left containers left"
    [ "$2" = "$3" ] && [ "$left" = 0 ]
}

code=0 && (train whole --set iterations=2) || code=$?
check "normal end" 0 $code

(train broken --set iterations=50 --set checkpoints.every=1) & run=$!
appears "$out/broken/checkpoints/step-000001"
# the next checkpoint cannot be written
rm -rf "$out/broken/checkpoints" && : >"$out/broken/checkpoints"
code=0 && wait $run || code=$?
check "an error" 1 $code

stop() { # NAME: Ctrl-C, and how long it takes
    began=$(date +%s)
    kill -INT $run
    code=0 && wait $run || code=$?
    echo "$1: ended after $(($(date +%s) - began)) s"
    check "$1" 130 $code
}

(train stopped --set iterations=50 --set checkpoints.every=1) & run=$!
appears "$out/stopped/checkpoints/step-000001"
sleep 2
stop "Ctrl-C"

# while the first desktops come up, more of them than spares
(train early --set iterations=50 --set collect.desktops=4 --set collect.group_size=4) & run=$!
appears "$out/early/config.toml"
sleep 1
stop "Ctrl-C at the start"
