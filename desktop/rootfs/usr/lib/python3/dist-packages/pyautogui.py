"""The mouse and the keyboard of this desktop for scripts in Python, with pyautogui's functions.

Debian has no package of pyautogui. Scripts of straight calls never come here: the desktop's server carries them out itself.
Those with loops and conditions run in Python, and every call is passed to the server on its own.
"""

import io
import json
import os
import time
import urllib.request
from collections import namedtuple

SERVER = os.environ.get("ARPO_DESKTOP_SERVER", "http://127.0.0.1:5000")
TIMEOUT_SECONDS = 130

FAILSAFE = True
PAUSE = 0.1
MINIMUM_DURATION = 0.1

Point = namedtuple("Point", "x y")
Size = namedtuple("Size", "width height")


class PyAutoGUIException(Exception):
    """A call that the desktop did not carry out."""


FailSafeException = PyAutoGUIException


def _ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, data, {"Content-Type": "application/json"})
    token = os.environ.get("ARPO_DESKTOP_TOKEN")
    if token:
        request.add_header("Authorization", "Bearer " + token)
    # a proxy of the environment is not for this machine
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
        return response.read()


def _plain(value):
    """A value as the literal that the server reads."""
    if callable(value):
        return "pyautogui.linear"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_plain(item) for item in value) + "]"
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, (int, float)):
        return repr(float(value)) if isinstance(value, float) else str(int(value))
    return repr(str(value))


def _call(name, *arguments, **named):
    given = [_plain(value) for value in arguments]
    given += [key + "=" + _plain(value) for key, value in named.items()]
    code = "import pyautogui; pyautogui.%s(%s)" % (name, ", ".join(given))
    # Python would only pass the call back to the server, for ever
    request = {"command": ["python", "-c", code], "shell": False, "without_python": True}
    done = json.loads(_ask("/execute", request))
    if done.get("returncode") != 0:
        raise PyAutoGUIException("%s: %s" % (code, done.get("error", "").strip()))
    time.sleep(PAUSE)


def _forwarded(name):
    def function(*arguments, **named):
        _call(name, *arguments, **named)

    function.__name__ = name
    return function


# What the server carries out.
for _name in (
    "click doubleClick tripleClick rightClick middleClick leftClick moveTo dragTo mouseDown mouseUp scroll vscroll hscroll "
    "write typewrite press keyDown keyUp hotkey"
).split():
    globals()[_name] = _forwarded(_name)


def position():
    """Where the pointer is."""
    return Point(*json.loads(_ask("/cursor_position")))


def size():
    """How large the screen is."""
    found = json.loads(_ask("/screen_size", {}))
    return Size(found["width"], found["height"])


def onScreen(x, y=None):
    """Whether a point is on the screen."""
    x, y = x if y is None else (x, y)
    width, height = size()
    return 0 <= x < width and 0 <= y < height


def move(xOffset=0, yOffset=0, duration=0.0, **_):
    """Moves the pointer from where it is."""
    x, y = position()
    _call("moveTo", x + (xOffset or 0), y + (yOffset or 0), duration=duration)


moveRel = move


def drag(xOffset=0, yOffset=0, duration=0.0, button="left", **_):
    """Drags from where the pointer is."""
    x, y = position()
    _call("dragTo", x + (xOffset or 0), y + (yOffset or 0), duration=duration, button=button)


dragRel = drag


def sleep(seconds):
    """Sleeps."""
    time.sleep(seconds)


def linear(n):
    """The easing of a straight move; the server knows no other."""
    return n


easeInQuad = easeOutQuad = easeInOutQuad = easeInCubic = easeOutCubic = easeInOutCubic = linear


def screenshot(imageFilename=None, region=None):
    """The screen as an image of Pillow's; without Pillow, only into a file."""
    png = _ask("/screenshot")
    if imageFilename and region is None:
        with open(imageFilename, "wb") as file:
            file.write(png)
    from PIL import Image

    image = Image.open(io.BytesIO(png))
    if region is not None:
        left, top, width, height = region
        image = image.crop((left, top, left + width, top + height))
        if imageFilename:
            image.save(imageFilename)
    return image
