"""What `arpo bench rollout` is compared with: one agent step of transformers' Qwen2.5-VL with the 7B's shapes.

Run by hand on a machine with a GPU (transformers 5.17, torch 2.11): `python tests/peers/rollout.py`. Random weights,
15 screenshots of 1920 x 1080 in the prompt, 100 greedy tokens; `generate` reads the whole prompt, as an agent does that
keeps nothing between its steps.
"""

import json
import time

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

SCREENSHOTS, HEIGHT, WIDTH, WORDS, ANSWER = 15, 78, 138, 126, 100


def model():
    text = dict(
        hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, vocab_size=152064, max_position_embeddings=128000,
        rope_parameters={"rope_type": "default", "mrope_section": [16, 24, 24], "rope_theta": 1e6},
    )
    vision = dict(depth=32, hidden_size=1280, intermediate_size=3420, num_heads=16, out_hidden_size=3584,
                  window_size=112, fullatt_block_indexes=[7, 15, 23, 31], patch_size=14, spatial_merge_size=2)
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, image_token_id=151655,
                              video_token_id=151656, vision_start_token_id=151652, vision_end_token_id=151653)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        built = Qwen2_5_VLForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    return built.eval()


def prompt(screenshots):
    features = HEIGHT * WIDTH // 4
    tokens = []
    for turn in range(screenshots):
        tokens += [151652] + [151655] * features + [151653] + list(range(1000 + turn, 1000 + turn + WORDS))
    pixels = torch.randn(screenshots * HEIGHT * WIDTH, 3 * 2 * 14 * 14, device="cuda", dtype=torch.bfloat16)
    return dict(
        input_ids=torch.tensor([tokens], device="cuda"),
        attention_mask=torch.ones(1, len(tokens), device="cuda", dtype=torch.long),
        mm_token_type_ids=(torch.tensor([tokens], device="cuda") == 151655).int(),
        pixel_values=pixels,
        image_grid_thw=torch.tensor([[1, HEIGHT, WIDTH]] * screenshots, device="cuda"),
    )


def main():
    network = model()
    results = []
    for tokens in [1, ANSWER, 1, ANSWER]:
        inputs = prompt(SCREENSHOTS)
        torch.cuda.synchronize()
        started = time.time()
        network.generate(**inputs, do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens)
        torch.cuda.synchronize()
        results.append(time.time() - started)
    print(json.dumps({
        "tokens": inputs["input_ids"].shape[1],
        "first_token_seconds": round(results[2], 3),
        "step_seconds": round(results[3], 3),
        "decode_seconds": round((results[3] - results[2]) / (ANSWER - 1), 5),
        "memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1),
    }))


main()
