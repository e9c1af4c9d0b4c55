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


# ---- scheduler reduce_on_plateau


VALUES = [1, 0.9, 0.91, 0.8995, 0.95, 0.7, 0.71, 0.72, 0.705, 0.6999, 0.8, float("nan"), 0.9, 0.9, 0.9, 0.65, 0.7, 0.7, 0.7, 0.7]


def print_plateau():
    print("PlateauTest")
    for options in ({"patience": 2}, {"patience": 1, "factor": 0.5, "threshold": 0.01, "threshold_mode": "abs"},
                    {"patience": 0, "factor": 0.3, "cooldown": 2, "threshold": 0.05}, {"patience": 0, "min_lr": 0.1},
                    {"mode": "max", "patience": 1, "factor": 0.5}, {"mode": "max", "patience": 0, "cooldown": 1, "threshold_mode": "abs", "threshold": 0.1}):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        rates = []
        for value in VALUES:
            scheduler.step(value)
            rates.append(optimizer.param_groups[0]["lr"])
        print(f"  {options}\n    {shown(rates, 10)}")


# ---- Optimizers


def print_schedule_free():
    """The weights that are trained, then those that are evaluated, after 50 steps, which update_rules_test.cc repeats."""
    from schedulefree import AdamWScheduleFree

    print("UpdateRulesTest")
    for lr, warmup, options in ((0.01, 0, {"weight_decay": 0.1}), (0.02, 0, {"betas": (0.95, 0.99), "eps": 1e-6}), (0.02, 10, {})):
        weight, bias = torch.linspace(-0.5, 0.5, 12).view(3, 4), torch.linspace(0.1, 0.4, 5)
        parameters = [weight.requires_grad_(), bias.requires_grad_()]
        optimizer = AdamWScheduleFree(parameters, lr=lr, warmup_steps=warmup, foreach=False, **options)
        optimizer.train()
        for step in range(50):
            for parameter in parameters:
                wave = torch.cos(0.37 * step + torch.arange(parameter.numel(), dtype=torch.float32)).view(parameter.shape)
                parameter.grad = parameter.detach() * 0.5 + 0.2 * wave
            optimizer.step()
        print(f"  {lr} {warmup} {options}\n    {shown([x for p in parameters for x in p.detach().flatten().tolist()], 8)}")
        optimizer.eval()
        print(f"    {shown([x for p in parameters for x in p.detach().flatten().tolist()], 8)}")


# ---- Losses


OUTPUTS = [[0.5, -1.25], [2, 0], [-3, 4]]  # of losses_test.cc


def print_losses():
    """Of PyTorch, and the formula of MONAI's DiceLoss(sigmoid=True, smooth_nr=smooth, smooth_dr=smooth) for one channel."""
    import torch.nn.functional as F

    print("BinaryDiceLossTest, KlDivLossTest, LanguageModelingLossTest")
    outputs = torch.tensor(OUTPUTS)
    masks = torch.tensor([[1.0, 0], [1, 1], [0, 1]])
    probability = torch.sigmoid(outputs)
    for smooth in (1e-5, 1):
        dice = 1 - (2 * (probability * masks).sum(1) + smooth) / (probability.sum(1) + masks.sum(1) + smooth)
        print(f"  dice, smooth {smooth}", shown([dice.mean()]))
    target = torch.tensor([[0.25, 0.75], [1, 0], [0.5, 0.5]])
    print("  kl_div", shown([F.kl_div(F.log_softmax(outputs, 1), target, reduction="batchmean")]),
          "mae", shown([(torch.softmax(outputs, 1) - target).abs().mean()]),
          "mse", shown([F.mse_loss(torch.softmax(outputs, 1), target)]))
    logits = torch.tensor([[1.0, 2, -0.5], [0.3, -0.2, 0.1], [-1, 0.5, 3], [2, 1.5, 0]])
    print("  label_smoothing 0.1", shown([F.cross_entropy(logits, torch.tensor([1, 0, 0, 2]), label_smoothing=0.1)]))


# ---- Metrics


TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-LOC", "S-PER"]
TAGGED = [([0, 1, 2, 0, 3, 4], [0, 1, 2, 0, 3, 0]),
          ([2, 2, 1, 0, 6, 5, 5], [2, 2, 2, 0, 6, 4, 5]),
          ([3, 5, 4, 2, 0], [3, 5, 4, 2, 2]),
          ([4, 6, 6, 1, 4], [0, 6, 1, 1, 4]),
          ([0, 0], [0, 5])]


def print_metrics():
    from seqeval.metrics import f1_score, precision_score, recall_score
    from sklearn.metrics import average_precision_score

    print("EntityMetricsTest")
    labels, predictions = ([[TAGS[i] for i in pair[side]] for pair in TAGGED] for side in (0, 1))
    print("  precision, recall, f1", shown(score(labels, predictions) for score in (precision_score, recall_score, f1_score)))
    for label, prediction in zip(labels, predictions):
        print("   ", shown(score([label], [prediction]) for score in (precision_score, recall_score, f1_score)))
    print("BinaryClassificationMetricsTest")
    print("  average_precision", shown([average_precision_score([1, 0, 1, 1, 0, 0], [0.5, 0.5, 2, -1, -3, 0.25])]))


TESTS = {"ema": print_ema, "schedule_free": print_schedule_free, "plateau": print_plateau, "losses": print_losses, "metrics": print_metrics}


def main():
    for name in sys.argv[1:] or TESTS:
        TESTS[name]()


if __name__ == "__main__":
    sys.exit(main())
