"""Sends a run folder of arpo to Weights & Biases, while the run writes it or afterwards.

    python wandb_sidecar.py RUN [--project NAME] [--name NAME]

`arpo train --set logging.to=wandb` and `arpo log RUN --to wandb` start it with the Python of `logging.python`. It follows
metrics.jsonl, and shows a success and a failure of every evaluation and of every tenth iteration. It ends when its standard
input does (a line `0` before that: the run finished; `1`: it did not), after everything is sent. The variables of wandb have
their usual effect: WANDB_MODE=offline writes to the folder `wandb` of the run, for `wandb sync`.

wandb.json in the run folder holds the run's id there and the last iteration that was sent, so that a run that resumes
continues there and nothing is sent twice.
"""

import argparse
import json
import os
import pathlib
import secrets
import sys
import threading

try:
    import tomllib
except ImportError:  # before Python 3.11
    tomllib = None

EVERY = 1.0  # seconds between two looks at the run
SHOWN_EVERY = 10  # iterations whose episodes are shown


def fail(message):
    print(message, flush=True)
    sys.exit(1)


class Lines:
    """The lines of a file that grows, each once, as soon as it is whole; those that are not JSON are skipped."""

    def __init__(self, path):
        self.path, self.position = path, 0

    def more(self):
        try:
            with open(self.path, "rb") as file:
                if file.seek(0, os.SEEK_END) < self.position:
                    self.position = 0  # a run that resumes has cut it
                file.seek(self.position)
                new = file.read()
        except FileNotFoundError:
            return
        whole = new.rfind(b"\n") + 1
        self.position += whole
        for line in new[:whole].splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                pass


class Sidecar:
    def __init__(self, wandb, run, project, name):
        self.wandb, self.run = wandb, run
        self.state_file = run / "wandb.json"
        try:
            self.state = json.loads(self.state_file.read_text())
        except (OSError, ValueError):
            self.state = {"id": secrets.token_hex(4), "logged": -1}
        self.since = self.state["logged"]
        self.config = tomllib.loads((run / "config.toml").read_text()) if tomllib else {}
        self.threshold = self.config.get("reward", {}).get("success_above", 0.1)
        self.metrics, self.index = Lines(run / "metrics.jsonl"), Lines(run / "episodes/index.jsonl")
        self.chosen = set()
        self.session = wandb.init(
            project=project,
            name=name or run.name,
            id=self.state["id"],
            resume="allow",
            dir=run,
            config=self.config,
            settings=wandb.Settings(silent=True),
        )
        self.session.define_metric("iteration")
        self.session.define_metric("*", step_metric="iteration")
        self.keep()

    def keep(self):
        hidden = self.state_file.with_suffix(".writing")
        hidden.write_text(json.dumps(self.state))
        hidden.replace(self.state_file)

    def look(self):
        """Sends what is new."""
        pictures = {}
        for line in self.index.more():
            picture = self.picture(line)
            if picture:
                pictures.setdefault(line["iteration"], {}).update(picture)
        for line in self.metrics.more():
            iteration = line.get("iteration")
            if not isinstance(iteration, int) or iteration <= self.state["logged"]:
                continue
            values = {name: value for name, value in line.items() if isinstance(value, (int, float))}
            self.session.log(values | pictures.pop(iteration, {}))
            self.state["logged"] = iteration
            self.keep()
        for iteration, shown in pictures.items():
            self.session.log({"iteration": iteration} | shown)

    def picture(self, line):
        """The last screenshot of an episode that is to be shown, with what was asked and how it ended."""
        iteration, origin = line.get("iteration", 0), line.get("origin")
        if iteration <= self.since or line.get("outcome") == "environment_error":
            return None
        if origin == "evaluation":
            name = f"episodes/evaluation/{line.get('set')}"
        elif origin == "fresh" and iteration % SHOWN_EVERY == 0:
            name = "episodes/training"
        else:
            return None
        name += "/success" if line["score"] > self.threshold else "/failure"
        if (line["file"], name) in self.chosen or "/" in line["file"]:
            return None
        try:
            with open(self.run / "episodes" / line["file"], "rb") as file:
                file.seek(line["offset"])
                steps = json.loads(file.read(line["length"]))["steps"]
            digest = steps[-1]["observation"]["screenshot"]["digest"]
            if not digest.isalnum():
                return None
            screen = self.run / "episodes/screens" / digest[:2] / f"{digest}.png"
            caption = f"{line.get('instruction') or line['task']}: score {line['score']:.2f}"
            image = self.wandb.Image(str(screen), caption=caption)
        except (OSError, ValueError, LookupError):
            return None  # removed meanwhile
        self.chosen.add((line["file"], name))
        return {name: image}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--project", default="arpo")
    parser.add_argument("--name", default="")
    arguments = parser.parse_args()
    if not (arguments.run / "config.toml").is_file():
        fail(f"{arguments.run}: holds no run: expected a folder with the config.toml of one")
    try:
        import wandb
    except ImportError as error:
        fail(f"{sys.executable} cannot use wandb ({error}): `{sys.executable} -m pip install wandb`, or another `logging.python`")
    told, ended = [], threading.Event()

    def listen():
        told.extend(line.strip() for line in sys.stdin)
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        sidecar = Sidecar(wandb, arguments.run.resolve(), arguments.project, arguments.name)
        while not ended.wait(EVERY):
            sidecar.look()
        sidecar.look()  # what was written before the end
        sidecar.session.finish(exit_code=0 if told[-1:] == ["0"] else 1)
    except Exception as error:  # whatever it is, one line for the user
        fail(f"{type(error).__name__}: {' '.join(str(error).split())}")


if __name__ == "__main__":
    main()
