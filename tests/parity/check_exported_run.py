#!/usr/bin/env python3
"""check_exported_run.py BIN FOLDER: trains gpt2 and llama on text with a tokenizer for a few steps,
exports them with stokerctl, and compares what transformers makes of the folder with stoker: all
weights are there and no others, the ids of the tokenizer, the loss on other text that stoker-eval
computes, and the text that the model generates greedily. An adapter that is then trained, and
exported, has the same loss in PEFT."""
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from check_huggingface import load_complete
from peft import PeftModel
from programs import Programs
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

TEXT = "".join(f"The {number} small birds sat on the roof, and {number} more came.\n" for number in range(400))
OTHER_TEXT = "".join(f"The {number} large birds came on the roof, and {number} more sat.\n" for number in range(0, 400, 7))
BLOCK = 32
TOLERANCE = 1e-5  # relative to the loss
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


def config_of(programs, name, model, steps):
    folder, path = programs.folder, programs.folder / f"{name}.yaml"
    data = f"format: text, tokenizer: {{path: {folder}/tokenizer.json}}, sequence: {{block_size: {BLOCK}}}"
    path.write_text(
        f"data: {{train: {{{data}, path: {folder}/text.txt}}, val: {{{data}, path: {folder}/other.txt}}}}\n"
        f"model: {model}\noptimizer: {{name: adamw, lr: 0.01}}\n"
        f"train: {{max_steps: {steps}, micro_batch_size: 4, device: cpu, num_threads: 1}}\n"
    )
    return path


def check_loss(programs, name, model, tokenizer):
    """That of stoker-eval: of each token of the other text, given those before it in its block."""
    ids = torch.tensor([*tokenizer(OTHER_TEXT, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id])
    blocks = ids.unfold(0, BLOCK + 1, BLOCK)
    with torch.no_grad():
        loss = F.cross_entropy(model(blocks[:, :-1]).logits.flatten(0, 1), blocks[:, 1:].flatten()).item()
    ours = list(programs.evaluate(name).values())[-1]["loss"]
    assert abs(loss - ours) <= TOLERANCE * loss, f"{name}: loss {loss}, of stoker-eval {ours}"
    return loss


def check(programs, name, tokenizer):
    programs.train(config_of(programs, name, MODELS[name], 60), name)
    exported = programs.export(name, "--format", "huggingface")
    loaded = AutoTokenizer.from_pretrained(exported)
    assert loaded.eos_token == "<|endoftext|>", loaded.eos_token
    for text in (TEXT, "naïve 東京 \U0001f99c  \t\n", "a<|endoftext|>b"):
        ids = loaded(text, add_special_tokens=False)["input_ids"]
        assert ids == tokenizer.encode(text, add_special_tokens=False).ids, text
    model = load_complete(AutoModelForCausalLM, exported)
    assert model.config.eos_token_id == loaded.eos_token_id
    loss = check_loss(programs, name, model, loaded)
    prompt = torch.tensor([loaded(PROMPT, add_special_tokens=False)["input_ids"]])
    ids = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NUM_TOKENS, do_sample=False, pad_token_id=0
    )
    text = loaded.decode(ids[0], skip_special_tokens=True)
    generated = programs.run(
        *(programs.bin / "stoker-eval", "--run-dir", programs.folder / name, "--generate", NUM_TOKENS, "--prompt", PROMPT),
        *("--temperature", 0),
    )
    assert generated == text + "\n", json.dumps([generated, text])
    adapted = check_adapter(programs, name, exported, loaded)
    assert abs(adapted - loss) > 100 * TOLERANCE * loss, f"{name}: the adapter changes nothing"
    return f"loss {loss:.6f}, with an adapter in PEFT {adapted:.6f}, generated {json.dumps(generated)}"


def check_adapter(programs, name, base, tokenizer):
    adapter = f"{name}_adapter"
    model = (
        f"{{name: {name}, pretrained: {{path: {base}}},"
        " lora: {r: 4, lora_alpha: 16, target_modules: all-linear}}"
    )
    programs.train(config_of(programs, adapter, model, 20), adapter)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), programs.export(adapter))
    return check_loss(programs, adapter, model.eval(), tokenizer)


def main():
    bin_folder, folder = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder.mkdir(parents=True)
    (folder / "text.txt").write_text(TEXT)
    (folder / "other.txt").write_text(OTHER_TEXT)
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    programs = Programs(folder, bin_folder)
    for name in MODELS:
        print(f"{name}: the same as in transformers: {check(programs, name, tokenizer)}")


if __name__ == "__main__":
    main()
