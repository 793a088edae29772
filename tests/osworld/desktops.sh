#!/bin/sh
# Container desktops as users meet them: the example tasks are judged, desktops reach nothing, and nothing stays behind when a
# command is interrupted or killed. Prints a line of PASS or FAIL for each; the exit code is the number of failures.
#   tests/osworld/desktops.sh FOLDER [PART ...]      # where results go; parts: tasks safety image noticed stopped
# Needs a Docker engine, the image of `./x image`, python3, curl and target/release/arpo; takes ten minutes.
set -eu
out=${1:?the folder for results}
shift
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
arpo=${ARPO:-$here/../../target/release/arpo}
examples=$here/../../docs/examples/own-tasks
image=${IMAGE:-arpo-desktop:latest}
rm -rf "$out" && mkdir -p "$out"
out=$(cd "$out" && pwd)
failures=0

pass() { echo "PASS $1"; }
fail() {
    failures=$((failures + 1))
    echo "FAIL $1: $2"
}
# NAME EXPECTED FOUND
same() { if [ "$2" = "$3" ]; then pass "$1"; else fail "$1" "expected $2, found $3"; fi; }
containers() { docker ps --all --quiet --filter label=arpo.provider | wc -l; }
networks() { docker network ls --quiet --filter label=arpo.provider | wc -l; }
nothing_left() { same "$1: no container and no network is left" "0 0" "$(containers) $(networks)"; }
# Waits for a command to succeed, so many seconds at most: SECONDS COMMAND...; what comes too late shows in the checks that follow.
within() {
    deadline=$(($(date +%s) + $1))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt "$deadline" ] || return 1
        sleep 0.2
    done
}
are_running() { [ "$(docker ps --quiet --filter label=arpo.provider | wc -l)" -ge "$1" ]; }
until_running() { within 120 are_running "$1" || fail "desktops come up" "$(containers) of $1 after two minutes"; }
status() { curl -s -m 5 -o /dev/null -w '%{http_code}' "$1" || true; } # of an address
answers() { [ "$(status "$1")" != 000 ]; }
has_file() { [ -n "$(find "$1" -name "$2" 2>/dev/null)" ]; } # FOLDER PATTERN

# Tasks that play for as long as they are let: the terminal's, slowly.
mkdir -p "$out/long"
for number in 1 2 3; do
    sed "s/\"terminal-note\"/\"long-$number\"/" "$examples/terminal-note.json" >"$out/long/long-$number.json"
done
python3 - "$out/long-script.json" <<'END'
import json, sys

json.dump({"long-1": [], "long-2": ["wait()"] * 200, "long-3": ["wait()"] * 200}, open(sys.argv[1], "w"))
END
# exec, so that a signal reaches the program itself; not frozen, because `docker exec` into a frozen container hangs
evaluate() { # RESULTS ARGUMENT...
    results=$1
    shift
    exec "$arpo" eval --suite osworld --hard --result_dir "$out/$results" --set osworld.image="$image" \
        --set osworld.settle_seconds=1 --set osworld.spares=1 --set osworld.freeze=false --set collect.max_steps=250 \
        --set collect.desktops=3 "$@"
}
long() { # RESULTS ARGUMENT...
    (evaluate "$@" --script "$out/long-script.json" --set osworld.tasks="$out/long" --set collect.refills=0 >"$out/$1.log" 2>&1) & run=$!
}
model() { # COMMAND NAME: the small model plays, badly
    (exec "$arpo" "$1" --preset osworld --out "$out/$2" --set model.base=pocket --set model.device=cpu \
        --set agent.prompt=short --set agent.max_tokens=24 --set agent.min_pixels=784 --set agent.max_pixels=1003520 \
        --set osworld.tasks="$out/long" --set osworld.image="$image" --set osworld.spares=1 --set collect.desktops=2 \
        --set collect.tasks=1 --set collect.max_steps=50 >"$out/$2.log" 2>&1) & run=$!
}
ends_by() { # SIGNAL NAME EXPECTED-CODE
    kill "-$1" "$run"
    code=0 && wait "$run" || code=$?
    same "$2: exit code" "$3" "$code"
}

part_tasks() {
    (evaluate solved --script "$examples/solve.json" --set osworld.tasks="$examples" --set collect.desktops=2 --json) >"$out/solved.json" 2>"$out/solved.log" || true
    (evaluate idle --script "$examples/idle.json" --set osworld.tasks="$examples" --set collect.desktops=2 --json) >"$out/idle.json" 2>"$out/idle.log" || true
    for task in calc-total writer-closing gimp-mirror vlc-play chromium-page terminal-note; do
        score() { cat "$out/$1"/pyautogui/screenshot/script/0/*/"$task"/result.txt 2>/dev/null | cut -c1; }
        same "$task: solved 1, nothing done 0" "1 0" "$(score solved) $(score idle)"
    done
    code=0 && "$arpo" osworld check "$examples/calc-total.json" --set osworld.image="$image" >"$out/check.log" 2>&1 || code=$?
    same "arpo osworld check runs a task's set-up and evaluator" 0 "$code"
    (evaluate one --task terminal-note --script "$examples/solve.json" --set osworld.tasks="$examples") >"$out/one.log" 2>&1 || true
    same "--task plays one task" 1 "$(find "$out/one" -name result.txt | wc -l)"
    mkdir -p "$out/big"
    cat >"$out/big/big.json" <<'END'
{"id": "big", "instruction": "x", "config": [{"type": "execute", "parameters": {"command": ["truncate", "-s", "1G", "/home/user/big.txt"]}}],
 "evaluator": {"func": "compare_text_file", "result": {"type": "vm_file", "path": "/home/user/big.txt", "dest": "big.txt"},
  "expected": {"type": "vm_file", "path": "/home/user/big.txt", "dest": "other.txt"}}}
END
    echo '{"big": []}' >"$out/big-script.json"
    (evaluate large --script "$out/big-script.json" --set osworld.tasks="$out/big" >"$out/large.log" 2>&1) & run=$!
    peak=0
    while kill -0 "$run" 2>/dev/null; do
        now=$(awk '/VmHWM/ { print int($2 / 1024) }' "/proc/$run/status" 2>/dev/null || true)
        [ "${now:-0}" -le "$peak" ] || peak=$now
        sleep 0.1
    done
    if [ "$peak" -lt 600 ]; then pass "a file of 1 GB: $peak MiB of memory"; else fail "a file of 1 GB" "$peak MiB of memory"; fi
    same "a file of 1 GB scores 0" 0 "$(cat "$out"/large/pyautogui/screenshot/script/0/*/big/result.txt 2>/dev/null | cut -c1)"
}

part_safety() {
    long safety
    until_running 3
    name=$(docker ps --filter label=arpo.provider --format '{{.Names}}' | head -n 1)
    network=$(docker inspect --format '{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}' "$name")
    gateway=$(docker network inspect --format '{{(index .IPAM.Config 0).Gateway}}' "$network")
    address=$(docker inspect --format '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$name")
    python3 -m http.server --bind 0.0.0.0 --directory "$out/long" 8765 >/dev/null 2>&1 & server=$!
    within 30 answers "http://$gateway:8765/" || true
    same "the host's server answers the host" 200 "$(status "http://$gateway:8765/")"
    token=$(docker exec "$name" printenv ARPO_DESKTOP_TOKEN)
    # its server answers before its display is there
    is_ready() { curl -s -f -m 5 -o /dev/null -H "Authorization: Bearer $token" "http://$address:5000/screenshot"; }
    within 60 is_ready || true
    # through the desktop's server: a process of `docker exec` has capabilities that the desktop's own do not have
    inside() { curl -s -m 30 -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \
        --data "$(python3 -c 'import json, sys; print(json.dumps({"command": sys.argv[1], "shell": True}))' "$1")" "http://$address:5000/execute" |
        python3 -c 'import json, sys; answer = json.load(sys.stdin); print(answer.get("output", str(answer)).strip())'; }
    reach="curl -s -m 5 -o /dev/null -w '%{http_code}' http://$gateway:8765/ || true"
    same "it does not answer a desktop" 000 "$(inside "$reach")"
    same "root of a desktop cannot open the way" refused "$(inside 'echo password | sudo -S iptables --flush OUTPUT 2>/dev/null && echo opened || echo refused')"
    same "it still does not answer" 000 "$(inside "$reach")"
    same "a server of a desktop wants its token" 401 "$(status "http://$address:5000/screenshot")"
    kill "$server"
    ends_by INT "safety" 130
    nothing_left "safety"
}

part_image() {
    docker run --detach --name arpo-image-test --publish 127.0.0.1:5765:5000 "$image" >/dev/null
    inside() { docker exec "$@"; }
    within 60 answers http://127.0.0.1:5765/screenshot || true
    for program in wmctrl xsel git expect iostat pip3 code; do
        [ "$program" != code ] || inside arpo-image-test sh -c 'test -x /usr/bin/code -o -x /usr/bin/codium' || continue
        if inside arpo-image-test sh -c "command -v $program" >/dev/null; then pass "$program is there"; else fail "$program" "not in the image"; fi
    done
    docker cp "$examples/files/sales.xlsx" arpo-image-test:/tmp/sales.xlsx >/dev/null
    inside arpo-image-test sh -c 'cd /tmp && soffice --headless --convert-to csv sales.xlsx >/dev/null 2>&1'
    inside --detach arpo-image-test soffice --calc
    calc_width() { inside arpo-image-test sh -c "wmctrl -lG | awk '/Calc/ { print \$5; exit }'"; }
    # a window is small until it has been laid out
    is_wide() { width=$(calc_width) && [ "${width:-0}" -gt 500 ]; }
    width=
    within 120 is_wide || true
    if [ "${width:-0}" -gt 500 ]; then pass "Calc is $width pixels wide after a conversion"; else fail "Calc after a conversion" "${width:-no} pixels wide"; fi
    execute() { python3 -c 'import json, sys, urllib.request
body = json.dumps({"command": ["python", "-c", sys.argv[1]], "shell": False}).encode()
request = urllib.request.Request("http://127.0.0.1:5765/execute", body, {"Content-Type": "application/json"})
answer = json.load(urllib.request.urlopen(request, timeout=60))
print(answer["status"], answer["returncode"])' "$1"; }
    same "a script of UI-TARS's agent" "success 0" "$(execute "import pyautogui
import time
'''
Thought: I type it
'''
import pyperclip
pyperclip.copy('Grüße')
x = 600
pyautogui.click(x, 400)
time.sleep(0.1)")"
    same "its text is in the clipboard" "Grüße" "$(inside arpo-image-test xclip -selection clipboard -out)"
    same "a script with a loop" "success 0" "$(execute 'import pyautogui
for x in range(100, 400, 100):
    pyautogui.moveTo(x, 77)
assert pyautogui.position() == (300, 77)')"
    same "a script that fails is no success" "error 1" "$(execute 'import pyautogui
raise ValueError')"
    docker rm --force arpo-image-test >/dev/null
}

part_noticed() {
    long noticed --task long-2 --task long-3
    until_running 3
    within 120 has_file "$out/noticed" 'step_*.png' || true
    is_noticed() { grep -q "exit code 137" "$out/noticed.log"; }
    # one of them is a spare, which nobody asks anything
    for victim in $(docker ps --filter label=arpo.provider --format '{{.Names}}'); do
        docker kill "$victim" >/dev/null 2>&1 || true
        if within 5 is_noticed; then break; fi
    done
    if is_noticed; then pass "a killed desktop is noticed within 5 s"; else fail "a killed desktop" "not noticed within 5 s"; fi
    ends_by TERM "noticed" 130
    nothing_left "noticed"
}

part_stopped() {
    for signal in INT TERM; do
        long "eval-$signal"
        until_running 3
        within 120 has_file "$out/eval-$signal" result.txt || true
        ends_by $signal "eval, SIG$signal" 130
        nothing_left "eval, SIG$signal"
        same "eval, SIG$signal: the finished task is written" 1 "$(find "$out/eval-$signal" -name result.txt | wc -l)"
    done
    for command in rollout select; do
        model $command $command
        until_running 2
        ends_by INT "$command, SIGINT" 130
        nothing_left "$command, SIGINT"
    done
    long killed
    until_running 3
    ends_by KILL "eval, SIGKILL" 137
    [ "$(containers)" -gt 0 ] && pass "a killed evaluation leaves containers" || fail "a killed evaluation" "left nothing to clean"
    "$arpo" osworld clean >"$out/clean.log"
    nothing_left "arpo osworld clean"
    long again
    until_running 3
    ends_by KILL "eval again, SIGKILL" 137
    (evaluate next --task long-1 --script "$out/long-script.json" --set osworld.tasks="$out/long") >"$out/next.log" 2>&1 || true
    nothing_left "the next run"
    (evaluate workers --cluster local:2 --script "$out/long-script.json" --set osworld.tasks="$out/long" >"$out/workers.log" 2>&1) & run=$!
    until_running 3
    ends_by INT "workers, SIGINT" 130
    # workers outlive the command by the time that they need to remove their desktops
    is_empty() { [ "$(containers) $(networks)" = "0 0" ]; }
    within 30 is_empty || true
    nothing_left "workers, SIGINT"
}

[ "$(containers)" = 0 ] || { echo "other desktops run on this engine: end them first" >&2; exit 2; }
for part in ${*:-tasks safety image noticed stopped}; do
    "part_$part"
done
exit "$failures"
