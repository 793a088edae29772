#!/usr/bin/env python3
"""Shows that transformers loads what we saved and gives the same logits. Run by hand, not by `./x test`:

    pip install torch==2.11.0 transformers==5.22.2 safetensors pillow
    python3 tests/transformers_loads_ours.py FOLDER [GOLDEN]

FOLDER is a checkpoint that this program saved from the golden model; GOLDEN is that model's folder
(default: tests/golden/qwen2_5_vl_tiny), whose `expected.safetensors` has the inputs and the logits of the original.
`cargo test --release -p arpo-model -- --ignored leave_a_saved_model` leaves such a FOLDER in target/saved-model.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import Qwen2_5_VLForConditionalGeneration


def main():
    folder = Path(sys.argv[1])
    golden = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "golden" / "qwen2_5_vl_tiny"
    expected = load_file(golden / "expected.safetensors")
    model, report = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[kind]:
            sys.exit(f"{folder}: {kind}: {report[kind]}")
    image = model.config.image_token_id
    ids = expected["input_ids"][None]
    with torch.no_grad():
        logits = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=expected["pixel_values"],
            image_grid_thw=expected["image_grid_thw"],
            mm_token_type_ids=(ids == image).int(),
        ).logits[0]
    worst = (logits - expected["logits"]).abs().max().item()
    print(f"largest difference of a logit: {worst:.2e}")
    if worst > 1e-4:
        sys.exit("the logits differ")


if __name__ == "__main__":
    main()
