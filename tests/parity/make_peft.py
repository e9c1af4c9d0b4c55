#!/usr/bin/env python3
"""Writes the folders of parity_peft_test.cc: make_peft.py FOLDER [COUNT [SEED]].

Each subfolder has a small model as transformers saves it, an adapter/ as PEFT saves it, and
expected.safetensors: tokens, the logits and the gradient of every trained parameter in the first step,
and the losses and trained parameters of ten steps of AdamW. COUNT (50) random configurations per
model_type. The golden folders are those of COUNT 0.
"""
import random
import sys
from pathlib import Path

import torch
from make_huggingface import MAKERS, record_training
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import AutoModelForCausalLM
from transformers.utils import logging

TARGETS = {
    "gpt2": ["all-linear", ["c_attn"], ["c_attn", "mlp.c_proj"], r"transformer\.h\.0\..*(c_fc|c_proj)"],
    "llama": ["all-linear", ["q_proj", "v_proj"], ["gate_proj", "o_proj"], r"model\.layers\.\d+\.mlp\.(up|down)_proj"],
}


def adapter_config(rng, model_type, is_tied):
    saved = [None, None, ["ln_f"] if model_type == "gpt2" else ["model.norm"]]
    if not is_tied:
        saved.append(["lm_head"])
    return LoraConfig(
        r=rng.randint(1, 5),
        lora_alpha=rng.choice([1, 4, 16]),
        target_modules=rng.choice(TARGETS["gpt2" if model_type == "gpt2" else "llama"]),
        modules_to_save=rng.choice(saved),
        fan_in_fan_out=model_type == "gpt2",
        task_type="CAUSAL_LM",
    )


def trained(model):
    """By the names of a saved adapter."""
    return {name.replace(".default", "").replace(".modules_to_save", ""): p for name, p in model.named_parameters()
            if p.requires_grad}


def write_case(folder, rng, make, model_type, seed):
    config = make(rng)
    torch.manual_seed(seed)
    base = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    base.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = get_peft_model(base, adapter_config(rng, model_type, config.tie_word_embeddings)).train()
    parameters = trained(model)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    assert {name for name in parameters} == set(get_peft_model_state_dict(model)), "names"
    model.peft_config["default"].base_model_name_or_path = "base"
    model.save_pretrained(folder / "adapter", save_embedding_layers=False)
    (folder / "adapter" / "README.md").unlink()
    record_training(folder, model, parameters, seed)


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    golden = {"gpt2": (3,), "llama": (27,), "qwen3": (40,)}
    for name, make in MAKERS.items():
        for seed in range(first, first + count) if count > 0 else golden.get(name, ()):
            write_case(folder / f"{name}_{seed}", random.Random(f"{name} {seed}"), make, name, seed)


if __name__ == "__main__":
    main()
