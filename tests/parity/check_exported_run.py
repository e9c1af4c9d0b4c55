#!/usr/bin/env python3
"""check_exported_run.py BIN FOLDER: trains gpt2 and llama on text with a tokenizer for a few steps,
exports them with stokerctl, and compares what transformers makes of the folder with stoker: the ids
of the tokenizer, and the text that the model generates greedily."""
import json
import sys
from pathlib import Path

import torch
from programs import Programs
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

TEXT = "".join(f"The {number} small birds sat on the roof, and {number} more came.\n" for number in range(400))
PROMPT = "The 7 small birds"
NUM_TOKENS = 24
MODELS = {
    "gpt2": "{name: gpt2, num_layers: 1, num_heads: 2, embed_dim: 32, context_length: 64, vocab_size: null, dropout: 0}",
    "llama": "{name: llama, num_layers: 2, num_heads: 4, num_key_value_heads: 2, embed_dim: 32, mlp_dim: 48,"
    " context_length: 64, vocab_size: null}",
}


def write_tokenizer(path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.save(str(path))
    return tokenizer


def check(programs, name, tokenizer):
    folder = programs.folder
    config = folder / f"{name}.yaml"
    config.write_text(
        f"data: {{train: {{format: text, path: {folder}/text.txt, tokenizer: {{path: {folder}/tokenizer.json}},"
        f" sequence: {{block_size: 32}}}}}}\nmodel: {MODELS[name]}\noptimizer: {{name: adamw, lr: 0.01}}\n"
        "train: {max_steps: 60, micro_batch_size: 4, device: cpu, num_threads: 1}\neval: {datasets: [train]}\n"
    )
    programs.train(config, name)
    exported = programs.export(name, "--format", "huggingface")
    loaded = AutoTokenizer.from_pretrained(exported)
    assert loaded.eos_token == "<|endoftext|>", loaded.eos_token
    for text in (TEXT, "naïve 東京 \U0001f99c  \t\n", "a<|endoftext|>b"):
        ids = loaded(text, add_special_tokens=False)["input_ids"]
        assert ids == tokenizer.encode(text, add_special_tokens=False).ids, text
    model = AutoModelForCausalLM.from_pretrained(exported).eval()
    assert model.config.eos_token_id == loaded.eos_token_id
    prompt = torch.tensor([loaded(PROMPT, add_special_tokens=False)["input_ids"]])
    ids = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NUM_TOKENS, do_sample=False, pad_token_id=0
    )
    text = loaded.decode(ids[0], skip_special_tokens=True)
    generated = programs.run(
        *(programs.bin / "stoker-eval", "--run-dir", folder / name, "--generate", NUM_TOKENS, "--prompt", PROMPT),
        *("--temperature", 0),
    )
    assert generated == text + "\n", json.dumps([generated, text])
    return generated


def main():
    bin_folder, folder = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder.mkdir(parents=True)
    (folder / "text.txt").write_text(TEXT)
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    programs = Programs(folder, bin_folder)
    for name in MODELS:
        print(f"{name}: same ids and generated text: {json.dumps(check(programs, name, tokenizer))}")


if __name__ == "__main__":
    main()
