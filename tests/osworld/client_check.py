"""Shows that OSWorld's own Python client works against our server inside a guest.

Usage: python client_check.py URL [--editor PROGRAM] [--no-accessibility]
URL is where `arpo-desktop` listens, such as http://127.0.0.1:5000, with a display, a window manager and an editor
(gedit, as in the container desktop, or another) in the guest. It must be allowed to use /tmp there. Each line of the output is one thing that was tried; the
exit status is 1 if any of them failed.
Made with Python 3.11, requests 2.32.5, requests-toolbelt 1.0.0 and desktop-env 1.0.2, the last installed without what
it depends on (`pip install --no-deps`): its controllers are used as they are, and the packages that they import for
tasks with a browser or a drive are replaced by empty ones.
"""

import io
import os
import struct
import sys
import tempfile
import time
import types
import uuid
from unittest.mock import MagicMock
from urllib.parse import urlsplit
from xml.etree import ElementTree

for missing in (
    "playwright",
    "playwright.sync_api",
    "pydrive",
    "pydrive.auth",
    "pydrive.drive",
    "dotenv",
    "desktop_env.evaluators",
    "desktop_env.evaluators.metrics",
    "desktop_env.evaluators.metrics.utils",
    "desktop_env.providers.aws.proxy_pool",
):
    module = types.ModuleType(missing)
    module.__getattr__ = lambda name: MagicMock(name=name)
    module.__path__ = []
    sys.modules[missing] = module

from desktop_env.controllers.python import PythonController  # noqa: E402
from desktop_env.controllers.setup import SetupController  # noqa: E402

address = urlsplit(sys.argv[1])
EDITOR = sys.argv[sys.argv.index("--editor") + 1] if "--editor" in sys.argv else "gedit"
controller = PythonController(address.hostname, address.port)
controller.retry_times, controller.retry_interval = 1, 0
cache = tempfile.mkdtemp()
setup = SetupController(address.hostname, address.port, cache_dir=cache)
failures = 0
STATE = "{https://accessibility.ubuntu.example.org/ns/state}"
COMPONENT = "{https://accessibility.ubuntu.example.org/ns/component}"


def check(name, work):
    global failures
    start = time.monotonic()
    try:
        said = work()
    except Exception as error:  # whatever it is, it is a failure of this check
        failures += 1
        said = f"FAILED: {type(error).__name__}: {error}"
    print(f"{name:<28} {(time.monotonic() - start) * 1000:7.0f} ms  {said}", flush=True)


def soon(work, seconds=15):
    """Tries again until it holds."""
    end = time.monotonic() + seconds
    while True:
        try:
            return work()
        except AssertionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)


def screenshot():
    png = controller.get_screenshot()
    width, height = struct.unpack(">II", png[16:24])
    size = controller.get_vm_screen_size()
    assert (size["width"], size["height"]) == (width, height), size
    return f"{width}x{height}, {len(png)} bytes"


def execute():
    answer = controller.execute_python_command("pyautogui.moveTo(321, 123)")
    assert answer == {"status": "success", "output": "", "error": "", "returncode": 0}, answer
    return "the pointer moved"


def actions():
    """The client throws the answers away, so they are looked at on their way."""
    answers, send = [], controller.execute_python_command
    controller.execute_python_command = lambda code: answers.append((code, send(code)))
    for action in (
        {"action_type": "MOVE_TO", "parameters": {"x": 200, "y": 150}},
        {"action_type": "SCROLL", "parameters": {"dx": 0, "dy": -1}},
        {"action_type": "DRAG_TO", "parameters": {"x": 210, "y": 160}},
        {"action_type": "PRESS", "parameters": {"key": "esc"}},
    ):
        controller.execute_action(action)
    controller.execute_python_command = send
    failed = [(code, answer) for code, answer in answers if not answer or answer["returncode"] != 0]
    assert len(answers) >= 4 and not failed, failed
    return "move, scroll, drag, press"


def files():
    data = os.urandom(1 << 20)
    path = os.path.join(cache, "random")
    with open(path, "wb") as file:
        file.write(data)
    target = f"/tmp/client-check-{uuid.uuid4()}"
    assert setup.setup([{"type": "upload_file", "parameters": {"files": [{"local_path": path, "path": target}]}}])
    assert controller.get_file(target) == data, "another file came back"
    assert controller.get_file(target + "-none") is None, "a file that is not there came back"
    setup.setup([{"type": "execute", "parameters": {"command": ["rm", target]}}])
    return "1 MiB there and back"


def command():
    setup.setup([{"type": "execute", "parameters": {"command": "echo out; exit 3", "shell": True, "stdout": "said"}}])
    with open(os.path.join(cache, "said")) as file:
        assert file.read() == "out\n"
    return "its output is kept"


NOTE = f"/tmp/client-check-{uuid.uuid4().hex}.txt"


def type_into_editor():
    """An editor is launched, found among the windows, brought to the front and typed into; its file is read back."""
    text = "Größe <3 'quoted' \"twice\" 漢字"
    steps = [
        {"type": "execute", "parameters": {"command": ["touch", NOTE]}},
        {"type": "launch", "parameters": {"command": [EDITOR, NOTE]}},
    ]
    assert setup.setup(steps)
    soon(lambda: window_size() and None)
    assert setup.setup([{"type": "activate_window", "parameters": {"window_name": os.path.basename(NOTE)}}])
    time.sleep(1)
    controller.execute_python_command(f"pyautogui.write({text!r}); pyautogui.hotkey('ctrl', 's')")

    def saved():
        assert controller.get_file(NOTE).decode().rstrip("\n") == text, controller.get_file(NOTE)

    soon(saved)
    return "typed and saved"


def window_size():
    controller_said = controller.get_vm_window_size(EDITOR)
    assert controller_said and controller_said["width"] > 50, controller_said
    return f"{controller_said['width']}x{controller_said['height']}"


def accessibility():
    tree = ElementTree.parse(io.StringIO(controller.get_accessibility_tree())).getroot()
    assert tree.tag == "desktop-frame", tree.tag
    frames = [node for node in tree.iter("frame") if os.path.basename(NOTE) in node.get("name")]
    assert frames and frames[0].get(COMPONENT + "screencoord"), "the editor's window is not in the tree"
    texts = [node for node in frames[0].iter("text") if node.get(STATE + "showing") == "true"]
    assert any("漢字" in (node.text or "") for node in texts), "the editor's text is not in the tree"
    return f"{sum(1 for _ in tree.iter())} things"


def close():
    assert setup.setup([{"type": "close_window", "parameters": {"window_name": os.path.basename(NOTE)}}])

    def gone():
        # without such a window OSWorld's server fails, and its client then has nothing to say
        assert controller.get_vm_window_size(EDITOR) is None, "the window is still there"

    soon(gone)
    setup.setup([{"type": "execute", "parameters": {"command": ["rm", "-f", NOTE]}}])
    return "the window is gone"


def platform():
    assert controller.get_vm_platform() == "Linux"
    return "Linux"


def directory():
    tree = controller.get_vm_directory_tree("/tmp")
    assert tree["type"] == "directory" and tree["name"] == "tmp", tree
    return f"{len(tree['children'])} entries"


check("screenshot and size", screenshot)
check("execute", execute)
check("actions of computer_13", actions)
check("platform", platform)
check("upload and download", files)
check("command", command)
check("directory tree", directory)
check("launch, activate, type", type_into_editor)
check("window size", window_size)
if "--no-accessibility" not in sys.argv:
    check("accessibility tree", accessibility)
    check("terminal", lambda: repr(controller.get_terminal_output()))
check("close window", close)
sys.exit(1 if failures else 0)
