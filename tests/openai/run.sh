#!/bin/sh
# The official `openai` client against `arpo serve` with the pocket model. Usage: tests/openai/run.sh FOLDER ARPO, with a folder
# for the client (kept for the next time) and the program arpo. `./x test --openai` does that. Every wait has an end.
set -eu

name=openai
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/../functions.sh"
folder=$(folder_at "$1")
program=$2
python_with "$folder/venv" "openai==2.*" openai "the openai client"

server=
clean_up() {
    trap - EXIT INT TERM
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
}
at_the_end clean_up

show_logs() {
    tail -n 5 "$log"
}

log=$folder/server.log
: >"$log"
ARPO_API_KEY=test-key "$program" serve --port 0 --max-running 8 --max-queue 8 >"$log" 2>&1 </dev/null &
server=$!
has_started() {
    grep -q '^serving ' "$log" || has_ended "$server"
}
wait_for 60 "the start of the server" has_started
url=$(sed -n 's/^serving .* at \(http[^ ]*\) .*/\1/p' "$log")
[ -n "$url" ] || fail "the server did not start"

timeout 300 "$folder/venv/bin/python" "$here/check.py" "$url" test-key

# Ctrl-C ends it at once
kill -INT "$server"
wait_for 10 "the end after Ctrl-C" has_ended "$server"
code=0
wait "$server" || code=$?
server=
[ "$code" -eq 130 ] || fail "the server ended with $code after Ctrl-C: expected 130"
printf 'the server ended in order\n'
