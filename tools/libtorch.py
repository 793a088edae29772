#!/usr/bin/env python3
"""Puts libtorch into a folder of its own, once.

    libtorch.py DEST

Takes the pinned wheels of this platform with `pip download` (pip refuses a wheel whose SHA-256 is not
the pinned one), keeps the libraries and headers a build needs, and moves the finished folder to DEST in
one rename: DEST either does not exist or is whole. A lock keeps two callers from doing it twice.
"""

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PINS = Path(__file__).resolve().parent / "libtorch"

# One entry per platform: the wheel tags its pins were published under, newest first.
# A new platform is one line here and one file of pins beside the others.
PLATFORMS = {
    ("Linux", "x86_64"): ("linux-x86_64", ["manylinux_2_28_x86_64", "manylinux_2_25_x86_64", "manylinux2014_x86_64"]),
}

# torch's C++ side is the same in the wheel of every Python version; the pins name this one's.
PYTHON = "311"

# libtorch_cuda.so is left out on purpose: it is of no use without gigabytes of CUDA libraries beside it.
# A host with a GPU has a PyTorch with all of them, and LIBTORCH points there.
KEPT = {
    "torch/lib/libc10.so": "lib",
    "torch/lib/libgomp.so.1": "lib",
    "torch/lib/libtorch.so": "lib",
    "torch/lib/libtorch_cpu.so": "lib",
    "torch/version.py": ".",
    "nvidia/cu13/lib/libcudart.so.13": "lib",
    "nvidia/cu13/lib/libcupti.so.13": "lib",
}
KEPT_TREE = "torch/include/"


def say(text):
    print(f"libtorch: {text}", file=sys.stderr, flush=True)


def download(pins, tags, folder):
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--quiet"]
    command += ["--python-version", PYTHON, "--implementation", "cp", "--abi", f"cp{PYTHON}", "--abi", "none"]
    for tag in tags:
        command += ["--platform", tag]
    command += ["--dest", str(folder), "--requirement", str(pins)]
    with subprocess.Popen(command, stdout=sys.stderr, preexec_fn=die_with_parent) as pip:
        try:
            report_progress(pip, folder)
        finally:
            pip.kill()
    if pip.returncode != 0:
        sys.exit("libtorch: the download failed (pip's words are above); run the same command to try again")


def die_with_parent():
    """Run in pip's process: even if this script is killed outright, pip does not go on alone."""
    parent_death_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


def report_progress(pip, folder):
    """pip shows no bar off a terminal: the sizes of the growing files are the progress, everywhere alike."""
    on_terminal = sys.stderr.isatty()
    while True:
        try:
            pip.wait(timeout=1 if on_terminal else 15)
            return
        except subprocess.TimeoutExpired:
            places = [folder, Path(os.environ["TMPDIR"])]
            done = sum(size(file) for place in places for file in place.rglob("*.whl"))
            line = f"libtorch: {done / 1e6:6.0f} of about 546 MB"
            print(line, end="\r" if on_terminal else "\n", file=sys.stderr, flush=True)


def size(file):
    try:
        return file.stat().st_size
    except OSError:
        return 0  # pip has just moved it


def unpack(wheels, folder):
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                if entry.is_dir():
                    continue
                if entry.filename in KEPT:
                    target = folder / KEPT[entry.filename] / Path(entry.filename).name
                elif entry.filename.startswith(KEPT_TREE):
                    target = folder / Path(entry.filename).relative_to("torch")
                else:
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, open(target, "wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
    missing = [name for name, place in KEPT.items() if not (folder / place / Path(name).name).is_file()]
    if missing:
        sys.exit(f"libtorch: the pinned wheels do not hold {', '.join(missing)}")


def fetch(destination, name, tags, stamp):
    say(f"{name}: getting about 546 MB of wheels, once (kept: 0.5 GB in {destination.name}/)")
    # The working folder is a sibling of DEST, so that the last step is a rename on one file system, and
    # goes away however this ends, short of a kill.
    with tempfile.TemporaryDirectory(prefix=f"{destination.name}.new-", dir=destination.parent) as scratch:
        scratch = Path(scratch)
        for part in ("wheels", "tmp", "tree"):
            (scratch / part).mkdir()
        os.environ["TMPDIR"] = str(scratch / "tmp")
        download(PINS / f"{name}.txt", tags, scratch / "wheels")
        say("checksums hold; unpacking")
        unpack(scratch / "wheels", scratch / "tree")
        (scratch / "tree" / "pins.sha256").write_text(stamp)
        if destination.exists():
            os.rename(destination, scratch / "old")
        os.rename(scratch / "tree", destination)
    say("ready")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: libtorch.py DEST")
    destination = Path(sys.argv[1]).resolve()
    here = (platform.system(), platform.machine())
    if here not in PLATFORMS:
        known = ", ".join(" ".join(each) for each in PLATFORMS)
        sys.exit(
            f"libtorch: no pinned wheels for {' '.join(here)} (there are for: {known}); "
            "set LIBTORCH to the folder of an installed PyTorch 2.11 instead"
        )
    name, tags = PLATFORMS[here]
    stamp = hashlib.sha256((PINS / f"{name}.txt").read_bytes()).hexdigest()
    with open(destination.with_name(destination.name + ".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("waiting for another process that is getting it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        # what a kill left behind
        for stale in destination.parent.glob(f"{destination.name}.new-*"):
            shutil.rmtree(stale, ignore_errors=True)
        kept = destination / "pins.sha256"
        if not kept.is_file() or kept.read_text() != stamp:
            fetch(destination, name, tags, stamp)


def interrupt(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, interrupt)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("libtorch: interrupted; nothing was kept")
