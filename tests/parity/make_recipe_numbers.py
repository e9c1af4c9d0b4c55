#!/usr/bin/env python3
"""Prints the numbers that tests of schedules, averages, losses, metrics and optimizers have recorded from other libraries, by test:
make_recipe_numbers.py [TEST…].

Needs PyTorch and the library of the test: timm, scikit-learn, torchmetrics 1.9, seqeval 1.2.2 or schedulefree 1.4.1.
"""
import sys

import torch


def shown(values, digits=9):
    return [float(f"{float(value):.{digits}g}") for value in values]


# ---- train.ema_*


class Weights(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def set_step(self, step):
        with torch.no_grad():
            self.weight.copy_(torch.tensor([1, -2, 0.5]) + step * torch.tensor([0.5, 0.25, -1]))


def print_ema():
    from timm.utils.model_ema import ModelEmaV3

    print("EmaTest")
    model = Weights()
    model.set_step(0)
    power = ModelEmaV3(model, decay=0.7, use_warmup=True)
    print("  decays of timm", shown(power.get_decay(step) for step in (1, 2, 3, 5, 6, 7, 100)))
    for step in range(1, 9):
        model.set_step(step)
        power.update(model, step=step)
    print("  average of timm", shown(power.module.weight.tolist()))
    # TensorFlow: shadow_variable -= (1 - decay) * (shadow_variable - variable), decay = min(decay, (1 + num_updates) / (10 + num_updates))
    model.set_step(0)
    shadow = model.weight.detach().double()
    for step in range(2, 9, 2):
        model.set_step(step)
        shadow -= (1 - min(0.4, (1 + step) / (10 + step))) * (shadow - model.weight.detach())
    print("  average of TensorFlow every second step", shown(shadow))


TESTS = {"ema": print_ema}


def main():
    for name in sys.argv[1:] or TESTS:
        TESTS[name]()


if __name__ == "__main__":
    sys.exit(main())
