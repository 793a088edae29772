"""Makes tests/golden/qwen3_vl_tied from qwen3_vl_tiny: the same weights and conversation, but the output head is the input
embedding, and what transformers computes then. Needs torch and transformers 5.

    python3 tests/peers/tied_golden.py tests/golden/qwen3_vl_tiny tests/golden/qwen3_vl_tied
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3VLForConditionalGeneration

MADE_HERE = ("config.json", "model.safetensors", "expected.safetensors", "expected_gradients.safetensors", "generate.json")
source, target = map(Path, sys.argv[1:3])
target.mkdir(exist_ok=True)
for file in source.iterdir():
    if file.name not in MADE_HERE:
        shutil.copy(file, target / file.name)
config = json.loads((source / "config.json").read_text())
config["tie_word_embeddings"] = True
(target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
weights = load_file(source / "model.safetensors")
weights.pop("lm_head.weight")
save_file(weights, target / "model.safetensors", {"format": "pt"})

model = Qwen3VLForConditionalGeneration.from_pretrained(target, dtype=torch.float32, attn_implementation="eager").eval()
assert model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr(), "not tied"
old = load_file(source / "expected.safetensors")
image = config["image_token_id"]


def logits(ids, pixels, grids):
    ids = torch.tensor([ids])
    kinds = (ids == image).long()
    mask = torch.ones_like(ids)
    return model(
        input_ids=ids, attention_mask=mask, mm_token_type_ids=kinds, pixel_values=pixels, image_grid_thw=grids
    ).logits[0]


# hidden states as the decoder's layers get them, DeepStack added; tying does not change them
hidden = []
language = model.model.language_model
hooks = [
    layer.register_forward_pre_hook(lambda _, args, kwargs: hidden.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True)
    for layer in language.layers
]
hooks.append(language.norm.register_forward_hook(lambda _, args, output: hidden.append(output)))
tokens = old["input_ids"].tolist()
found = logits(tokens, old["pixel_values"], old["image_grid_thw"].long())
for hook in hooks:
    hook.remove()
for number, state in enumerate(hidden):
    assert (state[0] - old[f"hidden_{number}"]).abs().max() < 1e-4, f"hidden state {number}"
logp = found[:-1].log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
mask = old["action_mask"][1:].float()
loss = -(logp * old["token_weight"] * mask).sum() / mask.sum()
loss.backward()
expected = dict(old) | {"logits": found, "token_logp": logp, "loss": loss[None]}
save_file({name: value.detach().contiguous() for name, value in expected.items()}, target / "expected.safetensors")
gradients = {name: parameter.grad.contiguous() for name, parameter in model.named_parameters()}
save_file(gradients, target / "expected_gradients.safetensors")

# a greedy continuation of the prompt, which shows the first images
generate = json.loads((source / "generate.json").read_text())
tokens, greedy = list(generate["prompt_ids"]), []
features = tokens.count(image)
grids, left = [], features
for grid in old["image_grid_thw"].tolist():
    if left > 0:
        grids.append(grid)
        left -= grid[1] * grid[2] // 4
with torch.no_grad():
    for _ in generate["greedy_ids"]:
        last = logits(tokens, old["pixel_values"][: 4 * features], torch.tensor(grids))[-1]
        greedy.append(last.argmax().item())
        tokens.append(greedy[-1])
(target / "generate.json").write_text(json.dumps(generate | {"greedy_ids": greedy}) + "\n")
