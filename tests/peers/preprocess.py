"""What `arpo bench preprocess` is compared with: transformers' own image processor on one core.

Run by hand (transformers 5.17, torch and torchvision for it): `python tests/peers/preprocess.py`.
"""

import json
import statistics
import time

import numpy
import torch
from PIL import Image
from transformers.models.qwen2_vl import image_processing_qwen2_vl

torch.set_num_threads(1)


def milliseconds(processor, picture):
    times = []
    for _ in range(11):
        started = time.perf_counter()
        processor(images=[picture], return_tensors="pt")
        times.append(1000 * (time.perf_counter() - started))
    return round(statistics.median(times[1:]), 2)


def main():
    rng = numpy.random.default_rng(0)
    blocks = rng.integers(0, 256, (68, 120, 3), dtype=numpy.uint8)
    picture = Image.fromarray(blocks).resize((1920, 1080), Image.Resampling.NEAREST)
    limits = dict(min_pixels=56 * 56, max_pixels=28 * 28 * 16384)
    results = {}
    for name in dir(image_processing_qwen2_vl):
        if name.startswith("Qwen2VLImageProcessor") and not name.endswith("Kwargs"):
            processor = getattr(image_processing_qwen2_vl, name)(**limits)
            results[name] = milliseconds(processor, picture)
    print(json.dumps(results))


main()
