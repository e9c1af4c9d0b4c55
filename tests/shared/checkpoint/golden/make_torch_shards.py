#!/usr/bin/env python3
"""Writes the folder torch_shards next to this file with torch.save: make_torch_shards.py.

Names and index are those of transformers' save_pretrained(safe_serialization=False, max_shard_size=…).
Written with PyTorch 2.11.
"""
import json
import pathlib

import torch

SHARDS = [
    {"a": torch.arange(6).view(3, 2).t() / 4, "c": torch.tensor([1.5, -2], dtype=torch.bfloat16)},
    {"b": torch.arange(5, dtype=torch.float32) - 2},
]


def main():
    folder = pathlib.Path(__file__).parent / "torch_shards"
    folder.mkdir(exist_ok=True)
    weight_map = {}
    for number, tensors in enumerate(SHARDS, 1):
        name = f"pytorch_model-{number:05}-of-{len(SHARDS):05}.bin"
        torch.save(tensors, folder / name)
        weight_map.update(dict.fromkeys(tensors, name))
    index = {"metadata": {"total_size": 48}, "weight_map": weight_map}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
