#!/bin/sh
# Plays OSWorld's tasks that need no internet on container desktops: solved by script, done wrongly, and left alone.
#   tests/osworld/solve.sh TASKS FOLDER      # OSWorld's folder of task files of the ARPO era, where results go
# Needs a Docker engine, the image of `./x image` and target/release/arpo. The first table has to be all 1, the others 0.
set -eu
tasks=${1:?the folder that holds OSWorld\'s examples}
out=${2:?the folder for results}
here=$(dirname "$0")
arpo=${ARPO:-$here/../../target/release/arpo}
mkdir -p "$out"
sed 's/\[.*\]/[]/' "$here/wrong.json" >"$out/alone.json"

play() { # NAME SCRIPT
    echo "== $1"
    "$arpo" eval --suite osworld --hard --script "$2" --result_dir "$out/$1" --set osworld.tasks="$tasks" \
        --set tasks.list="$here/solved-list.json" --set osworld.offline=true --set osworld.cache="$out/cache" \
        --set osworld.settle_seconds=8 --set collect.desktops="${DESKTOPS:-1}"
}

play solved "$here/solved.json"
play wrong "$here/wrong.json"
play alone "$out/alone.json"
