#!/usr/bin/env python3
"""OSWorld's own Python program plays tasks on our container desktop, and both score the same end: they have to agree.

    original_runner.py TASKS FOLDER [ID...]      # called by original_runner.sh, which installs what it imports

`DesktopEnv` and the agent for UI-TARS are those of the package desktop-env. The environment gets its desktops from a provider of its own
interface that starts our image; the agent asks a chat server that reads its responses from solved.json and wrong.json. Each task is
played twice, solved and done wrongly. After `DesktopEnv.evaluate()`, `arpo osworld judge` scores the desktop as that left it.
TASKS is OSWorld's folder of task files; ids choose among those that have scripts.
"""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import requests
from PIL import Image

# reads text in images and needs torch: no task here uses it
easyocr = types.ModuleType("easyocr")
easyocr.__getattr__ = lambda name: MagicMock(name=name)
sys.modules["easyocr"] = easyocr

import desktop_env.desktop_env as original  # noqa: E402
from desktop_env.providers.base import Provider, VMManager  # noqa: E402
from mm_agents.uitars15_v1 import UITARSAgent  # noqa: E402

HERE = Path(__file__).resolve().parent
ARPO = os.environ.get("ARPO", HERE.parent.parent / "target/release/arpo")
IMAGE = os.environ.get("IMAGE", "arpo-desktop:latest")
GENERATION = os.environ.get("GENERATION", "arpo_era")
SCREEN = (1920, 1080)
# what the agent's resizing makes of such a screenshot: its coordinates are pixels of this
SEEN = (1932, 1092)
PAUSE_SECONDS, WINDOW_SECONDS, STILL_SECONDS, START_SECONDS = 2, 30, 60, 120
MOST_STEPS = 40
# what the agent's code for the key of a terminal contains
TERMINAL = "hotkey('ctrl', 'alt', 't')"
# one or two of each application, and one that is infeasible
CHOSEN = (
    "e0df059f-28a6-4169-924f-b9623e7184cc",
    "b6781586-6346-41cd-935a-a6b1487918fc",
    "ec4e3f68-9ea4-4c18-a5c9-69f89d1178b3",
    "b3d4a89c-53f2-4d6b-8b6a-541fb5d205fa",
    "2ad9387a-65d8-4e33-ad5b-7580065a27ca",
    "7767eef2-56a3-4cea-8c9f-48c070c7d65b",
    "a5bbbcd5-b398-4c91-83d4-55e1e31bbb81",
    "2cd43775-7085-45d8-89fa-9e35c0a915cf",
)


def docker(*words):
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        sys.exit(f"docker {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def labels():
    """Those of arpo's own containers: `arpo osworld clean` removes what a killed run of this script leaves."""
    stat = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    # the state is the third field, the time of the start the 22nd
    started = stat[22 - 3]
    machine, boot = (Path(path).read_text().strip() if Path(path).is_file() else "" for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"))
    owner = f"{machine}/{boot}/{os.readlink('/proc/self/ns/pid')}/{os.getpid()}/{started}"
    values = {"arpo.run": f"original-{os.getpid()}", "arpo.owner": owner, "arpo.provider": f"original-{os.getpid()}"}
    return [word for name, value in values.items() for word in ("--label", f"{name}={value}")]


class ContainerProvider(Provider):
    """Desktops of our image, for `DesktopEnv`: its snapshot is a new container."""

    def __init__(self):
        super().__init__()
        self.name, self.address, self.started, self.windows_at_start = None, None, 0, 0

    def start_emulator(self, *_):
        if self.name:
            return
        self.started += 1
        self.name = f"arpo-original-{os.getpid()}-{self.started}"
        words = ["run", "--detach", "--name", self.name, "--shm-size", "256m", "--env", "ARPO_TIMEZONE=America/New_York", *labels()]
        if GENERATION == "verified":
            words += ["--env", "ARPO_DESKTOP_GENERATION=verified"]
        docker(*words, IMAGE)
        self.address = docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", self.name)
        until(START_SECONDS, lambda: self.screenshot() is not None, f"{self.name} shows a screen")
        self.wait_until_still()
        self.windows_at_start = self.windows()

    def get_ip_address(self, *_):
        # the ports are the usual ones
        return self.address

    def revert_to_snapshot(self, path_to_vm, *_):
        self.stop_emulator()
        return path_to_vm

    def stop_emulator(self, *_):
        if self.name:
            docker("rm", "--force", self.name)
        self.name = None

    def save_state(self, *_):
        raise NotImplementedError("nothing here saves a desktop")

    def url(self, path):
        return f"http://{self.address}:5000{path}"

    def screenshot(self):
        """The pixels of the screen; none while the server does not answer."""
        try:
            answer = requests.get(self.url("/screenshot"), timeout=10)
            answer.raise_for_status()
        except requests.RequestException:
            return None
        return np.asarray(Image.open(io.BytesIO(answer.content)).convert("RGB"))

    def windows(self):
        """How many windows are open."""
        body = {"command": "wmctrl -l | wc -l", "shell": True}
        return int(requests.post(self.url("/execute"), json=body, timeout=30).json()["output"])

    def wait_until_still(self):
        """Waits until the screen shows something and hardly changes: a caret may blink. A screen that never rests is accepted."""
        deadline, before = time.monotonic() + STILL_SECONDS, self.screenshot()
        while time.monotonic() < deadline:
            time.sleep(1)
            after = self.screenshot()
            if before is not None and after is not None and before.shape == after.shape:
                changed = (before != after).any(axis=2).mean()
                is_empty = (after == after[0, 0]).all(axis=2).mean() > 0.995
                if changed < 0.001 and not is_empty:
                    return
            before = after

    def wait_for_window(self):
        """Waits for a window that was not there at the start; some tasks launch a program that does not open one."""
        with contextlib.suppress(TimeoutError):
            until(WINDOW_SECONDS, lambda: self.windows() > self.windows_at_start, "a window")


class NoManager(VMManager):
    """There is no register of machines: the provider starts them."""

    def initialize_registry(self, **_):
        pass

    add_vm = delete_vm = occupy_vm = list_free_vms = check_and_clean = initialize_registry

    def get_vm_path(self, *_, **__):
        return IMAGE


def until(seconds, holds, what):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.5)


def response(action):
    """A response of UI-TARS for an action whose coordinates are pixels of the screen."""

    def seen(match):
        x, y = (round(float(value) * side / full) for value, side, full in zip(match.groups(), SEEN, SCREEN))
        return f"'({x},{y})'"

    action = re.sub(r"'\(([\d.]+),\s*([\d.]+)\)'", seen, action)
    return f"Thought: The next step.\n{action}" if action.startswith("Action:") else f"Thought: The next step.\nAction: {action}"


def chat_server(scripts):
    """A chat server that answers by instruction; `scripts` may change while it runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
            instruction = messages[1]["content"][0]["text"].split("## User Instruction\n", 1)[1].strip()
            turn = sum(message["role"] == "assistant" for message in messages)
            script = scripts[instruction]
            text = response(script[turn] if turn < len(script) else "finished()")
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            body = json.dumps({"id": "0", "object": "chat.completion", "created": 0, "model": "ui-tars", "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def agent_at(port):
    os.environ["DOUBAO_API_URL"], os.environ["DOUBAO_API_KEY"] = f"http://127.0.0.1:{port}/v1", "none"
    # the settings of ARPO's evaluations: text is typed, not pasted
    settings = {
        "infer_mode": "qwen25vl_normal",
        "prompt_style": "qwen25vl_normal",
        "input_swap": False,
        "language": "English",
        "history_n": 5,
        "max_pixels": 16384 * 28 * 28,
        "min_pixels": 100 * 28 * 28,
        "callusr_tolerance": 3,
        "temperature": 0.0,
        "top_k": -1,
        "top_p": 0.9,
        "max_tokens": 1000,
    }
    return UITARSAgent(model="ui-tars", runtime_conf=settings, max_trajectory_length=MOST_STEPS)


def play(env, provider, agent, task):
    """Plays a task to its end, as OSWorld's loop does; the last action."""
    agent.reset()
    env.reset(task_config=task)
    if any(step["type"] in ("launch", "open") for step in task.get("config", [])):
        provider.wait_for_window()
    action = None
    for _ in range(MOST_STEPS):
        provider.wait_until_still()
        _, actions = agent.predict(task["instruction"], env._get_obs())
        for action in actions:
            _, _, done, _ = env.step(action, pause=PAUSE_SECONDS)
            if done:
                return action
            if TERMINAL in action:
                provider.wait_for_window()
    return action


def original_score(env):
    """The score of OSWorld's evaluator; one that raises counts as 0, as ARPO counts it."""
    try:
        return float(env.evaluate())
    except Exception as error:  # whatever a metric raises
        print(f"OSWorld's evaluator raised {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 0.0


def our_score(provider, task, action, folder):
    """The score of `arpo` on the same desktop; the steps before the evaluation have been run already."""
    task = {**task, "evaluator": {key: value for key, value in task["evaluator"].items() if key != "postconfig"}}
    path = folder / "task.json"
    path.write_text(json.dumps(task))
    command = [ARPO, "osworld", "judge", path, "--desktop", provider.url("")]
    command += ["--set", f"osworld.generation={GENERATION}", "--set", f"osworld.cache={folder / 'cache'}"]
    command += ["--gave-up"] if action == "FAIL" else []
    judged = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if judged.returncode != 0:
        sys.exit(f"arpo osworld judge: {judged.stderr.strip()}")
    return float(judged.stdout)


def main():
    tasks, folder, chosen = Path(sys.argv[1]), Path(sys.argv[2]).resolve(), sys.argv[3:] or CHOSEN
    folder.mkdir(parents=True, exist_ok=True)
    # so that the desktop is removed at a SIGTERM, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    domains = {one: domain for domain, ids in json.loads((HERE / "solved-list.json").read_text()).items() for one in ids}
    unknown = [one for one in chosen if one not in domains]
    if unknown:
        sys.exit(f"no script for {', '.join(unknown)}: expected ids of solved-list.json")
    files = {one: json.loads((tasks / "examples" / domains[one] / f"{one}.json").read_text()) for one in chosen}
    scripts, provider, different, solved = {}, ContainerProvider(), [], 0
    server = chat_server(scripts)
    agent = agent_at(server.server_port)
    original.create_vm_manager_and_provider = lambda *_, **__: (NoManager(), provider)
    try:
        with open(folder / "agent.log", "w") as log:
            env = original.DesktopEnv(
                provider_name="docker", action_space="pyautogui", cache_dir=str(folder / "original-cache"), require_a11y_tree=False
            )
            for kind in ("solved", "wrong"):
                plans = json.loads((HERE / f"{kind}.json").read_text())
                for one, task in files.items():
                    scripts[task["instruction"].strip()] = plans[one]
                    # a desktop that was stepped on is replaced by every version, one that was only set up by some
                    env.is_environment_used = True
                    with contextlib.redirect_stdout(log):
                        action = play(env, provider, agent, task)
                        theirs = original_score(env)
                    ours = our_score(provider, task, action, folder)
                    agree = abs(theirs - ours) < 1e-9
                    print(f"{domains[one]}/{one} {kind}: OSWorld {theirs}, arpo {ours}{'' if agree else ': DIFFERENT'}", flush=True)
                    solved += theirs == 1.0
                    if not agree:
                        different.append(f"{one} {kind}")
    finally:
        provider.stop_emulator()
        server.shutdown()
    print(f"{2 * len(files) - len(different)} of {2 * len(files)} ends have the same score; OSWorld scores {solved} of them 1")
    if different or not solved:
        sys.exit(f"different scores: {', '.join(different) or 'none, but no task was solved'}")


if __name__ == "__main__":
    main()
