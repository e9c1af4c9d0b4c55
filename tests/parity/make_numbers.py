#!/usr/bin/env python3
"""Prints the numbers that tests have recorded from other libraries, by test: make_numbers.py.

Needs PyTorch, scikit-learn and transformers (deps.sh --peers).
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight
from torch.optim import SGD, Adagrad, Adam, AdamW, Muon, RMSprop

from models import Lion

# By step; the gradient of the other parameter is None.
REACHED = ["a1 bb", "a1", "bb", "a1 bb", "a1"]


def without_gradient(make_optimizers):
    """The first and the last element of both parameters after the steps, which optimizer_test.cc repeats."""
    parameters = {"a1": torch.linspace(97, 98, 6).view(2, 3), "bb": torch.linspace(98, 99, 6)}
    for value in parameters.values():
        value.requires_grad_()
    optimizers = make_optimizers(parameters)
    for step, reached in enumerate(REACHED):
        for name, value in parameters.items():
            gradient = torch.linspace(-1, 0.1 * step + ord(name[-1]) / 100, 6).view(value.shape)
            value.grad = gradient if name in reached else None
        for optimizer in optimizers:
            optimizer.step()
    return [round(value.flatten()[i].item(), 5) for value in parameters.values() for i in (0, 5)]


def print_without_gradient():
    print("OptimizerWithoutGradientTest.LeavesParametersAsTorchOptim")
    common, adam = {"lr": 0.1, "weight_decay": 0.1}, {"betas": (0.9, 0.95)}
    for name, make in (
            ("sgd", lambda p: [SGD(p.values(), momentum=0.9, **common)]),
            ("adam", lambda p: [Adam(p.values(), **adam, **common)]),
            ("adamw", lambda p: [AdamW(p.values(), **adam, **common)]),
            ("rmsprop", lambda p: [RMSprop(p.values(), alpha=0.9, momentum=0.9, **common)]),
            ("adagrad", lambda p: [Adagrad(p.values(), **common)]),
            ("lion", lambda p: [Lion(p.values(), betas=(0.9, 0.99), **common)]),
            ("muon", lambda p: [Muon([p["a1"]], momentum=0.95, adjust_lr_fn="match_rms_adamw", **common),
                                AdamW([p["bb"]], **adam, **common)])):
        print(f"  {name} {without_gradient(make)}")


def print_variable_store():
    print("VariableStoreTest.LeavesParameterThatNoMicroBatchHasReached")
    weight, bias = torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    optimizer = AdamW([weight, bias], lr=0.1, betas=(0.9, 0.95), weight_decay=0.1)
    weight.grad = torch.tensor(2.0)
    optimizer.step()
    print(f"  weight {weight.item():.6f}, bias {bias.item():.6f}")


def print_label_loss():
    print("LabelLossTest.DividesEvaluationLossByTotalWeightOfDataset")
    logits = torch.linspace(-2, 3, 12).sin().view(4, 3)
    print(f"  {F.cross_entropy(logits, torch.tensor([0, 2, 2, 2]), torch.tensor([3, 1, 0.5])).item():.7f}")


def print_class_weights():
    """Of the samples of an epoch, or weighted by the probability that a position of the run has them."""
    print("ComputeClassWeightsTest.CountsWhatTheRunTrainsOn")
    ones, weights = [1] * 4, [1, 0, 2, 0.5]

    def mixed(first, second, shares=(3, 1)):
        return [share * weight / sum(part) for share, part in zip(shares, (first, second)) for weight in part]

    for labels, sample_weight in (("0010" * 3 + "1112", None),
                                  ("0010" + "11122222", mixed(ones, [1] * 8)),
                                  ("0010", weights),
                                  ("0010" + "11122222", mixed(weights, [1] * 8))):
        y = [int(label) for label in labels]
        print(f"  {compute_class_weight('balanced', classes=np.unique(y), y=y, sample_weight=sample_weight).tolist()}")


def print_configs():
    import transformers

    print(f"HuggingFaceConfigTest, transformers {transformers.__version__}")
    fields = ("pad_token_id", "num_key_value_heads", "sliding_window", "max_window_layers")
    for name in ("Bert", "Llama", "Mistral", "Qwen2", "Qwen3"):
        kind = getattr(transformers, name + "Config")
        sizes = {"num_attention_heads": 64, "hidden_size": 128}
        for field in fields:
            if not hasattr(kind(**sizes), field):
                continue
            try:
                of_null = getattr(kind(**sizes, **{field: None}), field)
            except Exception:  # the library of strict data classes has its own
                of_null = "an error"
            print(f"  {name} {field} {getattr(kind(**sizes), field)}, of null {of_null}")


def main():
    print_without_gradient()
    print_variable_store()
    print_label_loss()
    print_class_weights()
    print_configs()


if __name__ == "__main__":
    sys.exit(main())
