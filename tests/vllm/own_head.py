"""Copies a checkpoint with tied embeddings to one whose output head is a tensor of its own: own_head.py FROM TO."""

import json
import pathlib
import shutil
import sys

from safetensors.torch import load_file, save_file

source, target = map(pathlib.Path, sys.argv[1:3])
shutil.copytree(source, target)
config = json.loads((source / "config.json").read_text())
for part in (config, config["text_config"]):
    part["tie_word_embeddings"] = False
(target / "config.json").write_text(json.dumps(config, indent=2))
tensors = load_file(source / "model.safetensors")
tensors["lm_head.weight"] = next(value for name, value in tensors.items() if "embed_tokens" in name).clone()
save_file(tensors, target / "model.safetensors", {"format": "pt"})
