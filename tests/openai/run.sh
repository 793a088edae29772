#!/bin/sh
# The official `openai` client against `arpo serve` with the pocket model. Usage: tests/openai/run.sh FOLDER ARPO, with a folder
# for the client (kept for the next time) and the program arpo. `./x test --openai` does that. Every wait has an end.
set -eu

folder=$1
program=$2
mkdir -p "$folder"
folder=$(CDPATH='' cd -- "$folder" && pwd)
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=$folder/venv/bin/python

if ! "$python" -c 'import openai' 2>/dev/null; then
    rm -rf "$folder/venv"
    if ! { python3 -m venv "$folder/venv" &&
        timeout 600 "$folder/venv/bin/pip" install --quiet "openai==2.*"; } >"$folder/pip.log" 2>&1; then
        rm -rf "$folder/venv"
        printf 'skipped: the openai client cannot be installed here: %s\n' "$(tail -n 1 "$folder/pip.log")"
        exit 0
    fi
fi

server=
clean_up() {
    trap - EXIT INT TERM
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 1' INT TERM

log=$folder/server.log
: >"$log"
ARPO_API_KEY=test-key "$program" serve --port 0 --max-running 8 --max-queue 8 >"$log" 2>&1 </dev/null &
server=$!
for _ in $(seq 300); do
    url=$(sed -n 's/^serving .* at \(http[^ ]*\) .*/\1/p' "$log")
    [ -z "$url" ] || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.2
done
if [ -z "$url" ]; then
    printf 'openai: the server did not start: %s\n' "$(tail -n 1 "$log")" >&2
    exit 1
fi

timeout 300 "$python" "$here/check.py" "$url" test-key

# Ctrl-C ends it at once
kill -INT "$server"
for _ in $(seq 100); do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
code=0
wait "$server" || code=$?
server=
if [ "$code" -ne 130 ]; then
    printf 'openai: the server ended with %s after Ctrl-C: expected 130\n' "$code" >&2
    exit 1
fi
printf 'the server ended in order\n'
