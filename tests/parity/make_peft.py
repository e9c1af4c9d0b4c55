#!/usr/bin/env python3
"""Writes the folders of parity_peft_test.cc: make_peft.py FOLDER [COUNT [SEED]].

Each subfolder has a small model as transformers saves it, or the weights of a VisionTransformer of torchvision; an
adapter/ as PEFT saves it; and expected.safetensors: inputs, the logits and the gradient of every trained parameter in
the first step, and the losses and trained parameters of four steps of AdamW. COUNT (50) random configurations per
model_type. The golden folders are those of COUNT 0, with ten steps.
"""
import random
import sys
from functools import partial
from pathlib import Path

import make_bert
import torch
import torch.nn.functional as F
from make_huggingface import MAKERS, STEPS, move_vectors, plain_batch, record_steps, record_training
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from peft.tuners.lora.layer import MultiheadAttention
from safetensors.torch import save_model
from torchvision.models import VisionTransformer
from transformers import AutoModelForCausalLM
from transformers.utils import logging

TARGETS = {
    "gpt2": ["all-linear", ["c_attn"], ["c_attn", "mlp.c_proj"], r"transformer\.h\.0\..*(c_fc|c_proj)"],
    "llama": ["all-linear", ["q_proj", "v_proj"], ["gate_proj", "o_proj"], r"model\.layers\.\d+\.mlp\.(up|down)_proj"],
    # "output.dense" is also the end of "attention.output.dense".
    "bert": [["query", "value"], ["attention.output.dense", "key"], ["output.dense"], r"bert\.encoder\.layer\.0\..*dense"],
    "vit": [["self_attention"], ["mlp.0", "mlp.3"], ["self_attention", "mlp.3"], r"encoder\.layers\.encoder_layer_0\.mlp\.[03]"],
}


def adapt_once(original):
    """PEFT 0.21 adds the adapter of out_proj twice: here, and in the layer (its pull request 3774)."""
    def call(self, *args, **kwargs):
        layer = self.get_base_layer().out_proj
        layer.merge = layer.unmerge = lambda *args, **kwargs: None
        try:
            return original(self, *args, **kwargs)
        finally:
            del layer.merge, layer.unmerge

    return call


MultiheadAttention.merge = adapt_once(MultiheadAttention.merge)
MultiheadAttention.unmerge = adapt_once(MultiheadAttention.unmerge)


def adapter_config(rng, targets, saved, **more):
    return LoraConfig(
        r=rng.randint(1, 5),
        lora_alpha=rng.choice([1, 4, 16]),
        target_modules=rng.choice(targets),
        modules_to_save=rng.choice(saved),
        **more,
    )


def trained(model):
    """By the names of a saved adapter."""
    return {name.replace(".default", "").replace(".modules_to_save", ""): p for name, p in model.named_parameters()
            if p.requires_grad}


def write_adapter(folder, base, config):
    """Adds an adapter to the model and saves it. Returns both, and the trained parameters by name."""
    model = get_peft_model(base, config).train()
    parameters = trained(model)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    assert set(parameters) == set(get_peft_model_state_dict(model)), "names"
    model.peft_config["default"].base_model_name_or_path = "base"
    model.save_pretrained(folder / "adapter", save_embedding_layers=False)
    (folder / "adapter" / "README.md").unlink()
    return model, parameters


def write_language_model(model_type, folder, rng, seed, steps):
    config = MAKERS[model_type](rng)
    torch.manual_seed(seed)
    base = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    base.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    saved = [None, None, ["ln_f"] if model_type == "gpt2" else ["model.norm"]]
    if not config.tie_word_embeddings:
        saved.append(["lm_head"])
    targets = TARGETS["gpt2" if model_type == "gpt2" else "llama"]
    config = adapter_config(rng, targets, saved, fan_in_fan_out=model_type == "gpt2", task_type="CAUSAL_LM")
    model, parameters = write_adapter(folder, base, config)
    record_training(folder, model, parameters, [plain_batch(model.config, seed) for _ in range(2)], steps=steps)


def write_bert(folder, rng, seed, steps):
    base = make_bert.make_model(rng, seed, torch.float32)
    base.save_pretrained(folder)
    is_per_token, targets = seed % 2 == 0, TARGETS["bert"]
    # With a task, PEFT trains the output layer, too.
    task = rng.choice([None, "TOKEN_CLS" if is_per_token else "SEQ_CLS"])
    if task == "SEQ_CLS":
        targets = [*targets, "all-linear"]
    config = adapter_config(rng, targets, [None] if task else [None, ["classifier"]], task_type=task)
    model, parameters = write_adapter(folder, base, config)
    make_bert.record_training(folder, model, parameters, rng, is_per_token, is_padded=seed % 3 != 0, steps=steps)


VIT_SIZES = ("image_size", "patch_size", "num_layers", "num_heads", "hidden_dim", "mlp_dim", "num_classes")


def load_vit(sizes):
    return VisionTransformer(**dict(zip(VIT_SIZES, sizes.tolist())))


def write_vit(folder, rng, seed, steps):
    heads, patch = rng.randint(1, 3), rng.randint(2, 4)
    sizes = torch.tensor([patch * rng.randint(1, 3), patch, rng.randint(1, 3), heads, heads * rng.randint(3, 6),
                          rng.randint(3, 20), rng.randint(2, 5)])
    torch.manual_seed(seed)
    base = load_vit(sizes)
    move_vectors(base)
    with torch.no_grad():
        for zero in (base.heads.head.weight, base.class_token):
            zero.add_(torch.randn_like(zero) * 0.1)
    folder.mkdir(parents=True)
    save_model(base, folder / "model.safetensors")
    saved = [None, ["heads.head"], ["encoder.ln", "heads.head"]]
    model, parameters = write_adapter(folder, base, adapter_config(rng, TARGETS["vit"], saved))
    side, classes = sizes[0].item(), sizes[-1].item()
    expected = {"vit_sizes": sizes}
    for i in range(2):
        expected |= {f"images{i}": torch.randn(3, 3, side, side), f"labels{i}": torch.randint(classes, (3,))}

    def step(i):
        logits = model(expected[f"images{i % 2}"])
        return logits, F.cross_entropy(logits, expected[f"labels{i % 2}"])

    record_steps(folder, parameters, step, expected, steps)


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    golden = {"gpt2": (3,), "llama": (27,), "qwen3": (38,), "bert": (2, 3), "vit": (12,)}
    writers = {name: partial(write_language_model, name) for name in MAKERS} | {"bert": write_bert, "vit": write_vit}
    for name, write in writers.items():
        for seed in range(first, first + count) if count > 0 else golden.get(name, ()):
            write(folder / f"{name}_{seed}", random.Random(f"{name} {seed}"), seed, 4 if count > 0 else STEPS)


if __name__ == "__main__":
    main()
