#!/usr/bin/env python3
"""Plays OSWorld's tasks on container desktops through tool calls: a chat server that knows the solutions answers with
`computer_use`, and `arpo eval --policy chat` reads it.

    python3 tests/osworld/computer_use.py TASKS FOLDER [ID...]

TASKS is OSWorld's folder of task files of the ARPO era, FOLDER where results go; ids choose tasks. The solutions are those of
solved.json, translated. Needs a Docker engine, the image of `./x image` and target/release/arpo. Every score has to be 1.
"""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCREEN = (1920, 1080)
GRID = 999


def grid(text):
    """A point of the screen as steps of the grid."""
    x, y = map(float, re.findall(r"-?[\d.]+", text)[:2])
    return [round((value + 0.5) * GRID / side) for value, side in zip((x, y), SCREEN)]


def calls(action):
    """The tool calls of one action of UI-TARS."""
    name, rest = re.fullmatch(r"(\w+)\((.*)\)", action.strip(), re.S).groups()
    given = dict(re.findall(r"(\w+)='((?:\\.|[^'\\])*)'", rest, re.S))
    given = {key: value.encode().decode("unicode_escape") for key, value in given.items()}
    point = {"coordinate": grid(given["start_box"])} if "start_box" in given else {}
    clicks = {"click": "left_click", "left_double": "double_click", "right_single": "right_click", "hover": "mouse_move"}
    if name in clicks:
        return [{"action": clicks[name], **point}]
    if name in ("drag", "select"):
        end = {"action": "left_click_drag", "coordinate": grid(given["end_box"])}
        return [{"action": "mouse_move", **point}, end]
    if name == "scroll":
        turn = {"up": ("scroll", 5), "down": ("scroll", -5), "left": ("hscroll", -5), "right": ("hscroll", 5)}
        kind, pixels = turn[given["direction"]]
        return ([{"action": "mouse_move", **point}] if point else []) + [{"action": kind, "pixels": pixels}]
    if name in ("hotkey", "press"):
        return [{"action": "key", "keys": given["key"].split()}]
    if name == "type":
        return [{"action": "type", "text": given["content"]}]
    if name == "wait":
        return [{"action": "wait", "time": 1}]
    if name in ("error_env", "call_user"):
        return [{"action": "terminate", "status": "failure"}]
    if name == "finished":
        return [{"action": "terminate", "status": "success"}]
    sys.exit(f"no tool call for {action}")


def response(script, turn):
    """What the server says at a turn."""
    if turn >= len(script):
        actions = [{"action": "terminate", "status": "success"}]
    else:
        text = script[turn].split("Action: ")[-1]
        actions = [call for action in text.split("\n\n") for call in calls(action)]
    written = [json.dumps({"name": "computer_use", "arguments": arguments}, ensure_ascii=False) for arguments in actions]
    blocks = "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in written)
    return f"Action: Take step {turn + 1}.\n{blocks}"


def handler(scripts):
    """Answers requests; `scripts` by instruction."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer({"data": [{"id": "qwen3-vl"}]})

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            messages = request["messages"]
            first = next(part["text"] for part in messages[1]["content"] if part["type"] == "text")
            instruction = first.split("Instruction: ", 1)[1].rsplit("\n\nPrevious actions:", 1)[0]
            summarised = re.findall(r"^Step \d+: ", first.rsplit("Previous actions:", 1)[1], re.M)
            turn = len(summarised) + sum(message["role"] == "assistant" for message in messages)
            pictures = sum(part["type"] == "image_url" for message in messages for part in message["content"])
            if pictures > 5 or instruction not in scripts:
                self.send_error(400, f"{pictures} pictures, or an unknown instruction: {instruction!r}")
                return
            self.answer({"choices": [{"message": {"content": response(scripts[instruction], turn)}}]})

        def answer(self, value):
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


def main():
    tasks, out, chosen = Path(sys.argv[1]), Path(sys.argv[2]), set(sys.argv[3:])
    out.mkdir(parents=True, exist_ok=True)
    solved = json.loads((HERE / "solved.json").read_text())
    listed = json.loads((HERE / "solved-list.json").read_text())
    listed = {domain: [one for one in ids if not chosen or one in chosen] for domain, ids in listed.items()}
    listed = {domain: ids for domain, ids in listed.items() if ids}
    (out / "list.json").write_text(json.dumps(listed))
    scripts = {}
    for domain, ids in listed.items():
        for one in ids:
            task = json.loads((tasks / "examples" / domain / f"{one}.json").read_text())
            scripts[task["instruction"]] = solved[one]
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(scripts))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [os.environ.get("ARPO", HERE.parent.parent / "target/release/arpo"), "eval", "--suite", "osworld", "--hard"]
    command += ["--policy", "chat", "--model", "qwen3-vl", "--result_dir", out / "results"]
    for setting in (
        f"chat.servers=http://127.0.0.1:{server.server_port}/v1",
        "agent.max_screenshots=5",
        "agent.window_advance=1",
        f"osworld.tasks={tasks}",
        f"tasks.list={out / 'list.json'}",
        "osworld.offline=true",
        f"osworld.cache={out / 'cache'}",
        "osworld.settle_seconds=8",
        f"collect.desktops={os.environ.get('DESKTOPS', '1')}",
    ):
        command += ["--set", setting]
    code = subprocess.run(command, check=False).returncode
    server.shutdown()
    scores = {path.parent.name: float(path.read_text()) for path in (out / "results").rglob("result.txt")}
    wrong = sorted(one for ids in listed.values() for one in ids if scores.get(one) != 1.0)
    print(f"{len(scores) - len(wrong)} of {sum(map(len, listed.values()))} solved through tool calls")
    if code or wrong:
        sys.exit(f"exit code {code}, not solved: {', '.join(wrong) or 'none'}")


if __name__ == "__main__":
    main()
