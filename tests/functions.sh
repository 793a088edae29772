# Functions of the tests that run a server or a cluster of somebody else's. A script that reads this file with `.` has set `name`,
# which its messages begin with, and defines `show_logs`, which `fail` calls.

# A folder as an absolute path; it is made if need be.
folder_at() {
    mkdir -p "$1"
    (CDPATH='' cd -- "$1" && pwd)
}

# Ends the test with a message and what the logs say.
fail() {
    printf '%s: %s\n' "$name" "$1" >&2
    show_logs >&2
    exit 1
}

# Ends the test well, because something cannot be installed: what, the log of the attempt.
skip() {
    printf 'skipped: %s cannot be installed here: %s\n' "$1" "$(tail -n 1 "$2")"
    exit 0
}

# A Python environment with a package, kept for the next time: its folder, the package for pip, its module, its name.
python_with() {
    ! "$1/bin/python" -c "import $3" 2>/dev/null || return 0
    rm -rf "$1"
    if ! { python3 -m venv "$1" && timeout 600 "$1/bin/pip" install --quiet "$2"; } >"$1.log" 2>&1; then
        rm -rf "$1"
        skip "$4" "$1.log"
    fi
}

# Calls a function when the script ends, however it ends; the function must not be interrupted, and does `trap - EXIT INT TERM`.
at_the_end() {
    # shellcheck disable=SC2064 # the name is known now
    trap "$1" EXIT
    trap 'exit 1' INT TERM
}

# Waits for a command to succeed: seconds, what for, the command.
wait_for() {
    seconds=$1 what=$2
    shift 2
    deadline=$(($(date +%s) + seconds))
    until "$@"; do
        [ "$(date +%s)" -lt "$deadline" ] || fail "$what did not happen within $seconds s"
        sleep 0.5
    done
}

has_ended() {
    ! kill -0 "$1" 2>/dev/null
}

# Whether a run has done so many iterations, or has ended: its folder, how many, its process.
has_done() {
    count=$({ grep -c '"collect/episodes"' "$1/metrics.jsonl" 2>/dev/null || true; } | head -n 1)
    [ "${count:-0}" -ge "$2" ] || has_ended "$3"
}
