#!/usr/bin/env python3
"""Shows that transformers loads what we saved and gives the same logits. Run by hand, not by `./x test`:

    pip install torch==2.11.0 transformers==5.17.0 safetensors pillow
    cargo test --release --workspace --test it -- --ignored leave_saved_models
    python3 tests/transformers_loads_ours.py [FOLDER [GOLDEN]]

FOLDER has the checkpoints that the second line leaves (default: target/saved-models), one for each golden model, of either
family; GOLDEN has the golden models (default: tests/golden), whose `expected.safetensors` holds the inputs and the logits of
the original.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

ROOT = Path(__file__).resolve().parent.parent


def difference(folder, golden):
    """The largest difference of a logit."""
    expected = load_file(golden / "expected.safetensors")
    model, report = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[kind]:
            sys.exit(f"{folder}: {kind}: {report[kind]}")
    ids = expected["input_ids"][None]
    with torch.no_grad():
        logits = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=expected["pixel_values"],
            image_grid_thw=expected["image_grid_thw"],
            mm_token_type_ids=(ids == model.config.image_token_id).int(),
        ).logits[0]
    return type(model).__name__, (logits - expected["logits"]).abs().max().item()


def main():
    saved = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target" / "saved-models"
    golden = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "tests" / "golden"
    folders = sorted(folder for folder in saved.iterdir() if (folder / "config.json").exists())
    if not folders:
        sys.exit(f"{saved}: no checkpoint")
    for folder in folders:
        name, worst = difference(folder, golden / folder.name)
        print(f"{folder.name}: {name}, largest difference of a logit {worst:.2e}")
        if worst > 1e-4:
            sys.exit("the logits differ")


if __name__ == "__main__":
    main()
