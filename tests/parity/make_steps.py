#!/usr/bin/env python3
"""Writes the golden file of parity_steps_test.cc: make_steps.py FILE.

Applies given gradients with PyTorch. Covers the parts of a step that do not depend on a model: the
loss scale of fp16 (torch.amp.GradScaler), the moving average of the weights
(torch.optim.swa_utils.AveragedModel), and clipping by value and then by norm.
"""
import sys

import torch
from safetensors.torch import save_file
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

SEED = 11
GRADIENTS = 10
SCALED_STEPS = 2010  # more than the 2000 finite ones after which the scale grows
OVERFLOWS = {0, 3, 4, 9}
DECAY = 0.9


class Weights(torch.nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(a.clone()), torch.nn.Parameter(b.clone())


def scaled(tensors):
    model = Weights(tensors["a"], tensors["b"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    scales = []
    for step in range(SCALED_STEPS):
        a, b = tensors["gradients_a"][step % GRADIENTS].clone(), tensors["gradients_b"][step % GRADIENTS]
        if step in OVERFLOWS:
            a[0, 0] = float("inf")
        optimizer.zero_grad()
        scaler.scale((model.a * a).sum() + (model.b * b).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return {"scales": torch.tensor(scales[:12] + scales[-12:]), "scaled/a": model.a.detach(), "scaled/b": model.b.detach()}


def clipped_and_averaged(tensors):
    model = Weights(tensors["a"], tensors["b"])
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    average.update_parameters(model)  # initialized from the weights
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for a, b in zip(tensors["gradients_a"], tensors["gradients_b"]):
        model.a.grad, model.b.grad = a.clone(), b.clone()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(model)
    return {
        "clipped/a": model.a.detach(),
        "clipped/b": model.b.detach(),
        "average/a": average.module.a.detach(),
        "average/b": average.module.b.detach(),
    }


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    tensors = {
        "a": torch.randn(3, 4),
        "b": torch.randn(4),
        "gradients_a": torch.randn(GRADIENTS, 3, 4),
        "gradients_b": torch.randn(GRADIENTS, 4),
    }
    save_file(tensors | scaled(tensors) | clipped_and_averaged(tensors), sys.argv[1], {"torch": torch.__version__})


if __name__ == "__main__":
    main()
