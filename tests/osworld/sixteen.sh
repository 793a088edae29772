#!/bin/sh
# Sixteen container desktops with a chat policy that thinks for three seconds: resets per second, times of steps, memory.
#   tests/osworld/sixteen.sh FOLDER                              # where results go
#   DESKTOPS=8 THINK=1 ROUNDS=2 tests/osworld/sixteen.sh FOLDER  # other numbers; ROUNDS: episodes of each desktop
# Needs a Docker engine, the image of `./x image`, python3 and target/release/arpo (or $ARPO); two to five minutes. Every episode
# has to score 1, and nothing may be left on the engine.
set -eu
out=${1:?the folder for results}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
export ARPO="${ARPO:-$here/../../target/release/arpo}"
# what an earlier run made is removed, and nothing else
marker=$out/made-by-sixteen
if [ -e "$out" ] && [ ! -e "$marker" ] && [ -n "$(ls -A "$out")" ]; then
    echo "$out is not empty, and not of this script: expected a new or an empty folder" >&2
    exit 2
fi
rm -rf "$out" && mkdir -p "$out" && : >"$marker"
code=0
python3 "$here/sixteen.py" "$(cd "$out" && pwd)" || code=$?
containers=$(docker ps --all --quiet --filter label=arpo.provider | wc -l)
networks=$(docker network ls --quiet --filter label=arpo.provider | wc -l)
[ "$containers $networks" = "0 0" ] || { echo "left: $containers containers, $networks networks" >&2; code=1; }
exit "$code"
