#!/usr/bin/env python3
"""Writes the golden files of parity_evaluation_test.cc: make_evaluation.py [FOLDER].

For a language model, a classifier and a binary classifier: weights as safetensors, the evaluation data, the stoker
configuration, and the metrics that PyTorch computes, in double precision from the model's float32
outputs.
"""
import json
import pathlib
import sys

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from case import SEED, language_model_loss, normalize_image
from models import Gpt, Lenet, Mlp

CONTEXT = 8
CLASSES = 7
TOP = 3
POS_WEIGHT = 2

GPT_CONFIG = f"""data:
  train: {{format: text, path: corpus.txt}}
  val: {{format: text, path: corpus.txt}}
model: {{name: gpt, num_layers: 2, embed_dim: 16, num_heads: 2, context_length: {CONTEXT}}}
task: {{name: language_modeling}}
"""
LENET_CONFIG = f"""data:
  train:
    format: numpy
    path: images.npy
    labels_path: labels.npy
    transforms: [{{normalize: {{mean: [0.5], std: [0.5]}}}}]
  val: {{format: numpy, path: images.npy, labels_path: labels.npy}}
model: {{name: lenet5, num_classes: {CLASSES}}}
task: {{name: classification}}
eval: {{top_k: {TOP}}}
"""
BINARY_CONFIG = f"""data:
  train: {{format: numpy, path: vectors.npy, labels_path: binary_labels.npy}}
  val: {{format: numpy, path: vectors.npy, labels_path: binary_labels.npy}}
model: {{name: mlp, hidden_sizes: [8]}}
task: {{name: binary_classification, pos_weight: {POS_WEIGHT}}}
"""


def train(model, loss_of, steps):
    """Trains briefly, so that some predictions are correct and some are not."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    return model.eval()


def windows_of(corpus):
    windows = [corpus[i : i + CONTEXT + 1] for i in range(0, len(corpus) - CONTEXT, CONTEXT)]
    return torch.tensor([list(window) for window in windows], dtype=torch.uint8)


def language_model_metrics(model, tokens):
    logits, _ = language_model_loss(model, {"tokens": tokens})
    target = tokens.long()[:, 1:].flatten()
    loss = F.cross_entropy(logits.flatten(0, 1), target, reduction="none").double().mean()
    right = logits.flatten(0, 1).argmax(1).eq(target).double().mean()
    return {
        "metrics": {
            "loss": loss.item(),
            "bits_per_byte": (loss / torch.tensor(2.0).double().log()).item(),
            "perplexity": loss.exp().item(),
            "accuracy": right.item(),
        },
        "samples": len(tokens),
    }


def count_predictions(labels, said, classes):
    """Confusion matrix, number of labels, precision, recall and F1 of each class."""
    confusion = torch.zeros(classes, classes, dtype=torch.long)
    for label, prediction in zip(labels, said):
        confusion[label, prediction] += 1
    right = confusion.diag().double()
    labeled, predicted = confusion.sum(1).double(), confusion.sum(0).double()
    ratio = lambda part, total: torch.where(total > 0, part / total, torch.zeros_like(part))
    f1 = ratio(2 * right, labeled + predicted)
    return confusion, labeled, ratio(right, predicted), ratio(right, labeled), f1


def per_class(labeled, precision, recall, f1):
    return [
        {"samples": int(labeled[i]), "precision": precision[i].item(), "recall": recall[i].item(), "f1": f1[i].item()}
        for i in range(len(labeled))
    ]


def binary_loss(model, vectors, labels, reduction="mean"):
    logits = model(vectors).squeeze(1)
    weight = torch.tensor(float(POS_WEIGHT))
    return logits, F.binary_cross_entropy_with_logits(logits, labels.float(), pos_weight=weight, reduction=reduction)


def binary_metrics(model, vectors, labels):
    logits, loss = binary_loss(model, vectors, labels, "none")
    said = (logits > 0).long()
    confusion, labeled, precision, recall, f1 = count_predictions(labels, said, 2)
    # Of every positive sample with every negative one.
    apart = logits[labels == 1][:, None] - logits[labels == 0][None]
    assert apart.abs().min() > 1e-5, "rounding could change the order of two samples"
    hits = labels[logits.argsort(descending=True)].double()
    precision_at = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
    return {
        "metrics": {
            "loss": loss.double().mean().item(),
            "accuracy": said.eq(labels).double().mean().item(),
            "precision": precision[1].item(),
            "recall": recall[1].item(),
            "f1": f1[1].item(),
            "auroc": apart.gt(0).double().mean().item(),
            "average_precision": (precision_at * hits).sum().item() / hits.sum().item(),
        },
        "samples": len(labels),
        "confusion": confusion.tolist(),
        "classes": per_class(labeled, precision, recall, f1),
    }


def calibration_error(confidence, is_correct):
    """With 15 bins."""
    bins = (confidence * 15).floor().long()
    return (torch.zeros(16, dtype=torch.double).index_add(0, bins, is_correct.double() - confidence).abs().sum() / len(bins)).item()


def classifier_metrics(model, images, labels):
    logits = model(normalize_image(images))
    loss = F.cross_entropy(logits, labels, reduction="none").double().mean()
    said = logits.argmax(1)
    confusion, labeled, precision, recall, f1 = count_predictions(labels, said, CLASSES)
    occurs = confusion.sum(1) + confusion.sum(0) > 0
    return {
        "metrics": {
            "loss": loss.item(),
            "accuracy": said.eq(labels).double().mean().item(),
            f"top{TOP}_accuracy": logits.topk(TOP, 1).indices.eq(labels[:, None]).any(1).double().mean().item(),
            "macro_precision": precision[occurs].mean().item(),
            "macro_recall": recall[occurs].mean().item(),
            "macro_f1": f1[occurs].mean().item(),
            "mean_iou": (confusion.diagonal() / (confusion.sum(0) + confusion.sum(1) - confusion.diagonal())).double()[occurs].mean().item(),
            "calibration_error": calibration_error(torch.softmax(logits, 1).amax(1).double(), said.eq(labels)),
        },
        "samples": len(labels),
        "confusion": confusion.tolist(),
        "classes": per_class(labeled, precision, recall, f1),
    }


def main():
    here = pathlib.Path(__file__).parent
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else here / "golden" / "evaluation")
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    corpus = b"".join(b"line %d of a text that repeats itself\n" % i for i in range(20))
    tokens = windows_of(corpus)
    gpt = Gpt(layers=2, width=16, heads=2, context=CONTEXT, vocab=256)
    train(gpt, lambda model: language_model_loss(model, {"tokens": tokens})[1], 40)
    images = torch.randint(256, (101, 1, 12, 12), dtype=torch.uint8)
    labels = torch.randint(CLASSES - 1, (101,))  # one class never occurs as a label
    lenet = Lenet(1, 12, CLASSES)
    train(lenet, lambda model: F.cross_entropy(model(normalize_image(images[:60])), labels[:60]), 20)
    vectors = torch.randn(101, 6)
    binary_labels = (vectors.sum(1) + 2 * torch.randn(101) > 0).long()
    binary = Mlp(6, [8], 1)
    train(binary, lambda model: binary_loss(model, vectors[:60], binary_labels[:60])[1], 60)
    with torch.no_grad():
        expected = {
            "gpt": language_model_metrics(gpt, tokens),
            "lenet": classifier_metrics(lenet, images, labels),
            "binary": binary_metrics(binary, vectors, binary_labels),
        }
    (folder / "corpus.txt").write_bytes(corpus)
    numpy.save(folder / "images.npy", images.numpy())
    numpy.save(folder / "labels.npy", labels.numpy())
    numpy.save(folder / "vectors.npy", vectors.numpy())
    numpy.save(folder / "binary_labels.npy", binary_labels.numpy())
    save_file(gpt.state_dict(), folder / "gpt.safetensors", {"format": "pt"})
    save_file(lenet.state_dict(), folder / "lenet.safetensors", {"format": "pt"})
    save_file(binary.state_dict(), folder / "binary.safetensors", {"format": "pt"})
    (folder / "gpt.yaml").write_text(GPT_CONFIG)
    (folder / "lenet.yaml").write_text(LENET_CONFIG)
    (folder / "binary.yaml").write_text(BINARY_CONFIG)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
