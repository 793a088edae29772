"""What the real trackers must have of two runs: python check.py LIVE LATER MLFLOW_URL."""

import json
import pathlib
import struct
import sys
import time

import mlflow
import tensorboard
import wandb
from tensorboard.backend.event_processing import event_accumulator
from wandb.proto import wandb_internal_pb2


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    # "tasks" is the score of every task, and the time of a line is the time of its values
    return {
        line["iteration"]: {
            name: value
            for name, value in line.items()
            if isinstance(value, (int, float)) and name not in ("iteration", "time/wall")
        }
        for line in lines
    }


def same(expected, found, what):
    assert expected.keys() == found.keys(), f"{what}: iterations {sorted(found)}, expected {sorted(expected)}"
    for iteration, values in expected.items():
        assert values.keys() == found[iteration].keys(), (what, iteration, values.keys() ^ found[iteration].keys())
        for name, value in values.items():
            assert abs(found[iteration][name] - value) <= 1e-6 * max(1, abs(value)), (what, iteration, name)


def in_tensorboard(run):
    files = list((run / "tensorboard").iterdir())
    assert len(files) == 1, files
    board = event_accumulator.EventAccumulator(str(run / "tensorboard"), {key: 0 for key in ("scalars", "images", "tensors")})
    board.Reload()
    tags = board.Tags()
    found = {}
    for tag in tags["scalars"]:
        for event in board.Scalars(tag):
            found.setdefault(event.step, {})[tag] = event.value
    expected = metrics(run)
    same(expected, found, "tensorboard")
    walls = [json.loads(line)["time/wall"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    written = sorted({event.wall_time for tag in tags["scalars"] for event in board.Scalars(tag)})
    assert all(abs(one - other) < 1e-3 for one, other in zip(written, walls, strict=True)), (written, walls)
    pictures = 0
    for tag in tags["images"]:
        for image in board.Images(tag):
            assert image.encoded_image_string.startswith(b"\x89PNG") and (image.width, image.height) == (168, 140), tag
            pictures += 1
    texts = {tag: board.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in tags["tensors"]}
    assert "seed = 0" in texts["configuration"], texts.keys()
    shown = [text for tag, text in texts.items() if tag.startswith("episodes/evaluation/training/")]
    assert shown and all("Turn 1" in text and "score" in text for text in shown), texts
    assert pictures > 0
    print(f"tensorboard {tensorboard.__version__}: {len(found)} steps, {len(tags['scalars'])} scalars, {pictures} images, {len(texts)} texts")


def records(file):
    """The records of W&B's file: a header of 7 bytes, then LevelDB's log format, in which blocks hold parts of records."""
    block, header, (whole, first, last) = 32768, 7, (1, 2, 4)
    data, at, parts = file.read_bytes(), header, []
    assert data.startswith(b":W&B"), data[:8]
    while at + header <= len(data):
        if block - at % block < header:
            at += block - at % block  # too little room for another part
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts = ([] if kind in (whole, first) else parts) + [data[at + header : at + header + length]]
        at += header + length
        if kind in (whole, last):
            yield b"".join(parts)


def in_wandb(run):
    """The file of an offline run, as `wandb sync` reads it."""
    found, pictures, name, exits = {}, 0, None, []
    files = sorted((run / "wandb").glob("offline-run-*/run-*.wandb"))
    for file in files:
        for data in records(file):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "run":
                name, project = record.run.display_name, record.run.project
                assert project == "check", project
            elif record.WhichOneof("record_type") == "exit":
                exits.append(record.exit.exit_code)
            elif record.WhichOneof("record_type") == "history":
                items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                iteration = items.pop("iteration")
                for key, value in items.items():
                    if key.startswith("episodes/"):  # an image is given field by field
                        pictures += key.endswith("/path")
                        assert not key.endswith("/path") or (file.parent / "files" / value).is_file(), value
                    elif not key.startswith("_") and key != "time/wall":
                        assert key not in found.setdefault(iteration, {}), f"{key} of {iteration} was sent twice"
                        found[iteration][key] = value
    same(metrics(run), found, "wandb")
    assert name == run.name and pictures > 0 and set(exits) == {0}, (name, pictures, exits)
    print(f"wandb {wandb.__version__}: {len(found)} steps in {len(files)} files, {pictures} images")


def in_mlflow(run, url):
    client = mlflow.MlflowClient(tracking_uri=url)
    experiment = client.get_experiment_by_name("check")
    runs = [one for one in client.search_runs([experiment.experiment_id]) if one.info.run_name == run.name]
    assert len(runs) == 1, runs
    info, data = runs[0].info, runs[0].data
    found = {}
    for name in data.metrics:
        for metric in client.get_metric_history(info.run_id, name):
            assert name not in found.setdefault(metric.step, {}), f"{name} of {metric.step} was sent twice"
            found[metric.step][name] = metric.value
    same(metrics(run), found, "mlflow")
    assert info.status == "FINISHED" and info.start_time < info.end_time <= time.time() * 1000, info
    assert data.params["seed"] == "0" and data.params["tasks.count"] == "4" and len(data.params) > 100
    print(f"mlflow {mlflow.__version__}: {len(found)} steps, {len(data.metrics)} metrics, {len(data.params)} parameters")


def main(live, later, url):
    for run in (pathlib.Path(live), pathlib.Path(later)):
        print(f"{run.name}:")
        in_tensorboard(run)
        in_wandb(run)
        in_mlflow(run, url)


main(*sys.argv[1:])
