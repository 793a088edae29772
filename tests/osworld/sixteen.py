#!/usr/bin/env python3
"""Many container desktops with a chat policy that takes its time; called by sixteen.sh, which says how.

A chat server on this machine answers each request after THINK seconds with the next response of a script. It sees when requests come,
so it also measures: the first request of an episode is the end of a reset, and the time from a response to the next request is a step.
The memory of desktops is what the engine reports, and what the machine has less available. Standard library only.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DESKTOPS, ROUNDS = int(os.environ.get("DESKTOPS", "16")), int(os.environ.get("ROUNDS", "3"))
THINK_SECONDS, PAUSE_SECONDS = float(os.environ.get("THINK", "3")), 0.5
IMAGE = os.environ.get("IMAGE", "arpo-desktop:latest")
EXAMPLE = Path(__file__).resolve().parent / "../../docs/examples/own-tasks/terminal-note.json"
CLICK = "click(start_box='(1500,300)')"
# a desktop is frozen while the policy thinks, so a terminal opens during the waits
SCRIPT = [
    "hotkey(key='ctrl alt t')",
    *["wait()"] * 8,
    r"type(content='mkdir notes && echo water the plants > notes/today.txt\n')",
    "wait()",
    *[CLICK] * 8,
    "wait()",
    "finished()",
]
SAMPLE_SECONDS = 5
UNITS = {"B": 1 / 2**20, "KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}


class Timeline:
    """When requests came and were answered."""

    def __init__(self):
        self.lock, self.turns, self.answered = threading.Lock(), {}, {}
        self.starts, self.ends, self.clicks, self.thinking, self.most_thinking = [], [], [], 0, 0

    def request(self, episode, is_first):
        """The response of the next turn of an episode."""
        with self.lock:
            now = time.monotonic()
            turn = self.turns[episode] = 0 if is_first else self.turns[episode] + 1
            if is_first:
                self.starts.append(now)
            elif SCRIPT[min(turn, len(SCRIPT)) - 1] == CLICK:
                self.clicks.append(now - self.answered[episode])
            self.thinking += 1
            self.most_thinking = max(self.most_thinking, self.thinking)
        return SCRIPT[min(turn, len(SCRIPT) - 1)]

    def answer(self, episode, response):
        with self.lock:
            self.thinking -= 1
            self.answered[episode] = time.monotonic()
            if response == SCRIPT[-1]:
                self.ends.append(time.monotonic())


def handler(timeline):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send({"data": [{"id": "ui-tars"}]})

        def do_POST(self):
            messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
            # the number of the task is in its instruction, and that in the prompt
            number = re.search(r"\(number (\d+)\)", json.dumps(messages[:3])).group(1)
            is_first = not any(message["role"] == "assistant" for message in messages)
            response = timeline.request(number, is_first)
            time.sleep(THINK_SECONDS)
            timeline.answer(number, response)
            content = f"Thought: The next step.\nAction: {response}"
            self.send({"choices": [{"message": {"role": "assistant", "content": content}}]})

        def send(self, value):
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


def available_mib():
    return int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text()).group(1)) / 1024


def peak_mib(pid):
    try:
        return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024
    except (OSError, AttributeError):  # it has ended
        return 0


def docker(*words):
    return subprocess.run(["docker", *words], capture_output=True, text=True, timeout=60, check=False).stdout


def desktops_mib():
    """The memory of every desktop that runs; of none where the engine is too busy to say."""
    try:
        names = docker("ps", "--quiet", "--filter", "label=arpo.provider").split()
        # one that has ended meanwhile fails the command
        used = docker("stats", "--no-stream", "--format", "{{.MemUsage}}", *names).splitlines() if names else []
    except subprocess.TimeoutExpired:
        return []
    amounts = [re.match(r"([\d.]+)(\w+)", line.strip()) for line in used]
    return [float(amount[1]) * UNITS[amount[2]] for amount in amounts if amount]


def seconds(values):
    """Median, nine of ten, and the longest."""
    if not values:
        return "none"
    values = sorted(values)
    tenth = values[min(len(values) - 1, len(values) * 9 // 10)]
    return f"median {statistics.median(values):.3f} s, 90 % within {tenth:.3f} s, longest {values[-1]:.3f} s"


def main():
    out, count = Path(sys.argv[1]), DESKTOPS * ROUNDS
    task, tasks = json.loads(EXAMPLE.read_text()), out / "tasks"
    tasks.mkdir()
    for number in range(count):
        one = {**task, "id": f"note-{number:03}", "instruction": f"{task['instruction']} (number {number})"}
        (tasks / f"note-{number:03}.json").write_text(json.dumps(one))
    timeline = Timeline()
    # all desktops may ask at once
    ThreadingHTTPServer.request_queue_size = 2 * DESKTOPS
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(timeline))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [os.environ["ARPO"], "eval", "--suite", "osworld", "--hard", "--policy", "chat", "--model", "ui-tars", "--result_dir", out / "results"]
    for setting in (
        f"chat.servers=http://127.0.0.1:{server.server_port}/v1",
        f"osworld.tasks={tasks}",
        f"osworld.image={IMAGE}",
        "osworld.settle_seconds=1",
        f"osworld.pause_seconds={PAUSE_SECONDS}",
        f"collect.desktops={DESKTOPS}",
        f"collect.max_steps={len(SCRIPT) + 5}",
    ):
        command += ["--set", setting]
    before, began = available_mib(), time.monotonic()
    used, least, peak = [], before, 0
    with open(out / "eval.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                used += desktops_mib()
                least, peak = min(least, available_mib()), max(peak, peak_mib(process.pid))
                time.sleep(SAMPLE_SECONDS)
        finally:
            if process.poll() is None:
                process.terminate()
            code = process.wait(timeout=120)
    server.shutdown()
    whole = time.monotonic() - began
    scores = [float(path.read_text()) for path in (out / "results").rglob("result.txt")]
    starts, ends = sorted(timeline.starts), sorted(timeline.ends)
    print(f"{os.cpu_count()} cores, {DESKTOPS} desktops, {THINK_SECONDS} s of thinking: {scores.count(1.0)} of {count} episodes score 1, exit {code}, {whole:.0f} s")
    print(f"at most {timeline.most_thinking} requests at once")
    if len(starts) > 1:
        print(f"first reset after {starts[0] - began:.1f} s, all {min(DESKTOPS, len(starts))} desktops after {starts[:DESKTOPS][-1] - began:.1f} s")
        print(f"resets: {len(starts)} in {starts[-1] - began:.1f} s, {len(starts) / (starts[-1] - began):.2f} per second")
    # on a full set of desktops an episode begins where another ended
    print(f"evaluation and next reset: {seconds([start - end for end, start in zip(ends, starts[DESKTOPS:])])}")
    print(f"step (click, screenshot, request), without the pause of {PAUSE_SECONDS} s: {seconds([click - PAUSE_SECONDS for click in timeline.clicks])}")
    if used:
        print(f"memory of a desktop: median {statistics.median(used):.0f} MiB, most {max(used):.0f} MiB")
    print(f"memory: arpo {peak:.0f} MiB; available on the machine: {before - least:.0f} MiB less than before")
    if code or scores.count(1.0) != count:
        sys.exit(f"not every episode scored 1: see {out / 'eval.log'}")


if __name__ == "__main__":
    main()
