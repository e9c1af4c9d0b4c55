#!/usr/bin/env python3
"""Writes the folders of parity_huggingface_test.cc: make_huggingface.py FOLDER [COUNT [SEED]].

Each subfolder has a small model with a random configuration and random weights as transformers saves
it, and expected.safetensors: two batches, one of them with padded and packed rows; the logits and the gradient of every
parameter with each of them; and the losses and weights of ten steps of AdamW, with both in turn. COUNT (50) configurations
per model_type, in single and in double precision. The golden folders are those of COUNT 0: one or two per model_type, in
single precision.
"""
import random
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm
from transformers.utils import logging

STEPS = 10
IGNORED = -100
MAX_LENGTH = 19
# A large eps: the gradients of the keys' biases are almost 0, and AdamW divides rounding by rounding.
LR, BETAS, EPS, WEIGHT_DECAY = 1e-3, (0.9, 0.95), 1e-3, 0.1


def normalize(self, x):
    """transformers normalizes in single precision also if the model is in double."""
    if x.dtype == torch.float64:
        return F.rms_norm(x, self.weight.shape, self.weight, self.variance_epsilon)
    return type(self).original_forward(self, x)


for norm in (LlamaRMSNorm, MistralRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm):
    norm.original_forward, norm.forward = norm.forward, normalize


def rope_parameters(rng):
    theta = rng.choice([10000.0, 500000.0, 1000000.0])
    kind = rng.choice(["default", "default", "linear", "llama3"])
    parameters = {"rope_type": kind, "rope_theta": theta}
    if kind != "default":
        parameters["factor"] = rng.choice([2.0, 4.0, 8.0])
    if kind == "llama3":
        original = rng.choice([8, 64, 512])
        parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original}
    return parameters


def gpt2(rng):
    heads = rng.randint(1, 4)
    return GPT2Config(
        n_layer=rng.randint(1, 3),
        n_head=heads,
        n_embd=heads * rng.randint(4, 9),
        n_inner=rng.choice([None, rng.randint(3, 40)]),
        n_positions=rng.randint(20, 32),
        vocab_size=rng.randint(11, 67),
        layer_norm_epsilon=rng.choice([1e-5, 1e-6, 1e-3]),
        tie_word_embeddings=rng.random() < 0.7,
        activation_function=rng.choice(["gelu_new", "gelu_pytorch_tanh"]),
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        initializer_range=0.1,
        bos_token_id=0,
        eos_token_id=0,
    )


def of_llama_family(config):
    def make(rng):
        groups = rng.randint(1, 8)
        heads, head_dim = groups * rng.randint(1, 8 // groups), 2 * rng.randint(1, 6)
        arguments = {
            "num_hidden_layers": rng.randint(1, 3),
            "num_attention_heads": heads,
            "num_key_value_heads": groups,
            "hidden_size": heads * head_dim,
            "intermediate_size": rng.randint(3, 40),
            "max_position_embeddings": rng.randint(20, 32),
            "vocab_size": rng.randint(11, 67),
            "rms_norm_eps": rng.choice([1e-5, 1e-6, 1e-3]),
            "tie_word_embeddings": rng.random() < 0.5,
            "rope_parameters": rope_parameters(rng),
            "initializer_range": 0.1,
            "bos_token_id": 0,
            "eos_token_id": 0,
        }
        if config is not Qwen2Config:
            arguments["head_dim"] = head_dim
            if rng.random() < 0.5:
                arguments["hidden_size"] = heads * rng.randint(2, 6)
        if config in (LlamaConfig, Qwen3Config):
            arguments["attention_bias"] = rng.random() < 0.5
        if config is LlamaConfig:
            arguments["mlp_bias"] = rng.random() < 0.5
        if config is MistralConfig:
            arguments["sliding_window"] = rng.choice([None, 32])
        return config(**arguments)

    return make


MAKERS = {
    "gpt2": gpt2,
    "llama": of_llama_family(LlamaConfig),
    "mistral": of_llama_family(MistralConfig),
    "qwen2": of_llama_family(Qwen2Config),
    "qwen3": of_llama_family(Qwen3Config),
}


def make_config(name, seed):
    """Every fifth has a token of the padding, whose embedding transformers does not train; and a window as long as the
    longest row."""
    config = MAKERS[name](random.Random(f"{name} {seed}"))
    if name != "gpt2" and seed % 5 == 0:
        config.pad_token_id = seed % config.vocab_size
        if name == "mistral":
            config.sliding_window = MAX_LENGTH
    return config


def plain_batch(config, seed):
    """Rows of one document each, of one length."""
    # At least two tokens: with one, the gradients of queries and keys are 0 except for rounding.
    samples, length = 1 + seed % 3, max(2, 1 + seed % MAX_LENGTH)
    return {"tokens": with_pad_token(config, torch.randint(config.vocab_size, (samples, length + 1)))}


def with_pad_token(config, tokens):
    if config.pad_token_id is not None:
        tokens[0, :2] = config.pad_token_id
    return tokens


def ragged_batch(config, seed):
    """A left-padded, a right-padded and a packed row of two to four documents. The labels are the next tokens of the
    same document."""
    rng = random.Random(seed)
    length = rng.randint(4, MAX_LENGTH)
    tokens = with_pad_token(config, torch.randint(config.vocab_size, (3, length)))
    padding = rng.randint(1, length - 3)  # leaves three tokens, so that the gradients are more than rounding, as above
    valid = torch.ones(3, length, dtype=torch.long)
    valid[0, :padding] = 0
    valid[1, length - padding :] = 0
    positions = (valid.cumsum(1) - 1) * valid
    for start in sorted({0, *rng.sample(range(1, length), rng.randint(1, 3))}):
        positions[2, start:] = torch.arange(length - start)
    labels = torch.full_like(tokens, IGNORED)
    labels[:, :-1] = tokens[:, 1:].masked_fill(positions[:, 1:] == 0, IGNORED)
    return {"tokens": tokens, "position_ids": positions, "valid": valid, "labels": labels}


def logits_of(model, batch):
    """Those of padding are 0."""
    if "valid" not in batch:
        return model(batch["tokens"][:, :-1], use_cache=False).logits
    tokens, positions, valid = (batch[name] for name in ("tokens", "position_ids", "valid"))
    padded = model(tokens[:2], attention_mask=valid[:2], position_ids=positions[:2], use_cache=False).logits
    packed = model(tokens[2:], position_ids=positions[2:], use_cache=False).logits
    return torch.cat([padded, packed]) * valid[:, :, None]


def logits_and_loss(model, batch):
    logits = logits_of(model, batch)
    labels = batch.get("labels", batch["tokens"][:, 1:])
    return logits, F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def record_steps(folder, parameters, step, expected, steps=STEPS):
    """Writes expected.safetensors: `expected` and what this number of steps of AdamW compute. `parameters`: those that are
    trained, by name. `step(i)`: the logits and the loss of step i."""
    optimizer = torch.optim.AdamW(parameters.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, fused=True)
    expected, losses = dict(expected), []
    for i in range(steps):
        optimizer.zero_grad()
        logits, loss = step(i)
        loss.backward()
        if i == 0:
            expected["logits"] = logits.detach().clone()
            expected |= {f"gradient/{name}": p.grad.clone() for name, p in parameters.items()}
        losses.append(loss.detach())
        optimizer.step()
    expected |= {f"final/{name}": p.detach() for name, p in parameters.items()}
    save_file(expected | {"losses": torch.stack(losses)}, folder / "expected.safetensors")


def record_training(folder, model, parameters, batches, more={}, steps=STEPS):
    """record_steps() of next-token prediction with the batches in turn, and `more`."""
    expected = {f"{name}{i}": tensor for i, batch in enumerate(batches) for name, tensor in batch.items()}
    step = lambda i: logits_and_loss(model, batches[i % len(batches)])  # noqa: E731
    record_steps(folder, parameters, step, expected | more, steps)


def move_vectors(model):
    """With biases of 0 and norms of 1, errors would not show."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)


def first_outputs(model, batch):
    """Those of the second batch with the weights that the first step finds."""
    logits, loss = logits_and_loss(model, batch)
    loss.backward()
    gradients = {f"gradient1/{name}": p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return {"logits1": logits.detach()} | gradients


def write_case(folder, config, seed, dtype):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype).train()
    move_vectors(model)
    model.save_pretrained(folder)
    batches = [plain_batch(config, seed), ragged_batch(config, seed)]
    record_training(folder, model, dict(model.named_parameters()), batches, first_outputs(model, batches[1]))
    (folder / "generation_config.json").unlink(missing_ok=True)


def check_query_groups(name, configs):
    """That the configurations have 1 to 8 groups of queries, each with its own key and value."""
    groups = {config.num_key_value_heads for config in configs}
    sizes = {config.num_attention_heads // config.num_key_value_heads for config in configs}
    print(f"{name}: {len(configs)} configurations with {sorted(groups)} groups of {sorted(sizes)} queries", flush=True)
    # Fewer configurations are not expected to have every number.
    assert len(configs) < 50 or groups == set(range(1, 9)), f"{name}: {sorted(groups)} groups of queries"


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    golden = {"gpt2": (3, 26), "llama": (27, 36, 45), "mistral": (29,), "qwen2": (10, 22), "qwen3": (38,)}
    for name in MAKERS:
        seeds = range(first, first + count) if count > 0 else golden[name]
        configs = [make_config(name, seed) for seed in seeds]
        if name != "gpt2":
            check_query_groups(name, configs)
        for seed, config in zip(seeds, configs):
            write_case(folder / f"{name}_{seed}", config, seed, torch.float32)
            if count > 0:
                write_case(folder / f"{name}_{seed}_double", config, seed, torch.float64)


if __name__ == "__main__":
    main()
