"""What `arpo bench update --model qwen3-8b` is compared with: transformers' Qwen3-VL with the 8B's shapes, at its best.

Run by hand on a machine with a GPU (transformers 5.17, torch 2.11), in the same call as our own benchmark, for only the ratio
counts: `python tests/peers/update_qwen3.py`. Random weights in bf16; variable-length flash attention in the vision tower, causal
attention by cuDNN in the language model, gradient checkpointing, logits of the trained tokens only, fused AdamW. One episode of 15
screenshots of 1920 x 1080 with 120 trained tokens a turn.
"""

import json
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

SCREENSHOTS, HEIGHT, WIDTH, RESPONSE = 15, 68, 120, 120
IMAGE, VIDEO, START, END = 151655, 151656, 151652, 151653


def attention(module, query, key, value, attention_mask=None, scaling=None, cu_seq_lens_q=None, max_length_q=None, **_):
    """The vision tower passes the images' lengths; the language model is causal."""
    if cu_seq_lens_q is not None:
        lengths, longest = cu_seq_lens_q.int(), int(max_length_q)
        parts = [tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value)]
        return varlen_attn(*parts, lengths, lengths, longest, longest).unsqueeze(0), None
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]):
        out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2), None


def model():
    text = dict(
        hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
        head_dim=128, vocab_size=151936, max_position_embeddings=262144,
        rope_parameters={"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True, "rope_theta": 5e6},
    )
    vision = dict(
        depth=27, hidden_size=1152, intermediate_size=4304, num_heads=16, out_hidden_size=4096, patch_size=16,
        spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=2304, deepstack_visual_indexes=[8, 16, 24],
    )
    config = Qwen3VLConfig(
        text_config=text, vision_config=vision, image_token_id=IMAGE, video_token_id=VIDEO,
        vision_start_token_id=START, vision_end_token_id=END, tie_word_embeddings=False,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        built = Qwen3VLForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    ALL_ATTENTION_FUNCTIONS.register("flash_both", attention)
    for part in built.modules():
        if hasattr(getattr(part, "config", None), "_attn_implementation"):
            part.config._attn_implementation_internal = "flash_both"
    built.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return built.train()


def main():
    network = model()
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-6, fused=True)
    tokens, trained = [], []
    for turn in range(SCREENSHOTS):
        tokens += [START] + [IMAGE] * (HEIGHT * WIDTH // 4) + [END] * 6
        trained += range(len(tokens), len(tokens) + RESPONSE)
        tokens += range(1000 + turn, 1000 + turn + RESPONSE)
    ids, trained = torch.tensor([tokens], device="cuda"), torch.tensor(trained, device="cuda")
    pixels = torch.randn(SCREENSHOTS * HEIGHT * WIDTH, 3 * 2 * 16 * 16, device="cuda", dtype=torch.bfloat16)
    grids = torch.tensor([[1, HEIGHT, WIDTH]] * SCREENSHOTS, device="cuda")
    seconds = []
    for _ in range(4):
        torch.cuda.synchronize()
        started = time.time()
        logits = network(
            input_ids=ids, pixel_values=pixels, image_grid_thw=grids, mm_token_type_ids=(ids == IMAGE).int(),
            logits_to_keep=trained - 1,
        ).logits[0]
        logp = torch.log_softmax(logits.float(), -1).gather(-1, ids[0, trained][:, None])
        (-logp.mean()).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(round(time.time() - started, 2))
    memory = round(torch.cuda.max_memory_allocated() / 2**30, 1)
    print(json.dumps({"tokens": len(tokens), "update_seconds": min(seconds[1:]), "all": seconds, "memory_gib": memory}))


main()
