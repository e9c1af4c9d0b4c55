"""Training cases of an mlp that together cover the tasks over vectors, the optimizers, the
schedulers, and parameter groups. update_cases.cc has the same in C++."""
import torch
import torch.nn.functional as F
from torch.nn import init
from torch.optim import lr_scheduler

from case import CLASS_WEIGHTS, STEPS, Case, constant, halved, initialized, warm_up_then
from models import Lion, Mlp, MuonAndAdamW


def vectors():
    return [{"input": torch.randn(6, 10), "target": torch.randn(6, 2)} for _ in range(2)]


def labeled_vectors():
    return [{"input": torch.randn(6, 10), "label": torch.randint(4, (6,))} for _ in range(2)]


def marked_vectors():
    return [{"input": torch.randn(6, 10), "target": torch.randint(2, (6, 3)).float()} for _ in range(2)]


def binary_vectors():
    return [{"input": torch.randn(6, 10), "label": torch.randint(2, (6,))} for _ in range(2)]


def binary_loss(model, batch):
    logits = model(batch["input"])
    weight = torch.tensor(3.0)
    return logits, F.binary_cross_entropy_with_logits(logits.squeeze(1), batch["label"].float(), pos_weight=weight)


def binary_mlp():
    rules = {"0.weight": lambda p: init.normal_(p, std=0.1), "bias": lambda p: init.constant_(p, 0.1)}
    return initialized(Mlp(10, [16, 8], 1), rules)


def regression_loss(model, batch):
    output = model(batch["input"])
    return output, F.mse_loss(output, batch["target"])


def smoothed_loss(model, batch):
    """Label smoothing applies only in training."""
    logits = model(batch["input"])
    return logits, F.cross_entropy(logits, batch["label"], label_smoothing=0.1 if model.training else 0.0)


def weighted_loss(model, batch):
    """Label smoothing applies only in training."""
    logits = model(batch["input"])
    weights = torch.tensor(CLASS_WEIGHTS)
    return logits, F.cross_entropy(logits, batch["label"], weights, label_smoothing=0.1 if model.training else 0.0)


def multilabel_loss(model, batch):
    logits = model(batch["input"])
    return logits, F.binary_cross_entropy_with_logits(logits, batch["target"])


def weighted_multilabel_loss(model, batch):
    logits = model(batch["input"])
    weights = torch.tensor([3.0, 1.0, 0.5])
    return logits, F.binary_cross_entropy_with_logits(logits, batch["target"], pos_weight=weights)


def grouped_adamw(parameters):
    """Biases without weight decay, the first layer with 0.1 times the rate and another decay."""
    parameters = list(parameters)  # weight and bias of three layers
    groups = [
        {"params": [parameters[2], parameters[4]]},
        {"params": parameters[1::2], "weight_decay": 0.0},
        {"params": [parameters[0]], "lr": 2e-3 * 0.1, "weight_decay": 0.3},
    ]
    return torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1, fused=True)


def muon(parameters):
    """Muon for two of the three matrices, the first at half the rate. AdamW for the last matrix
    and, without weight decay, for the biases."""
    parameters = list(parameters)  # weight and bias of three layers
    of_muon = [{"params": [parameters[2]]}, {"params": [parameters[0]], "lr": 4e-3 * 0.5}]
    of_adamw = [{"params": [parameters[4]]}, {"params": parameters[1::2], "weight_decay": 0.0}]
    return MuonAndAdamW(
        torch.optim.Muon(of_muon, lr=4e-3, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(of_adamw, lr=4e-3, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1, fused=True),
    )


CASES = [
    Case(
        name="mlp_sgd_momentum_linear",
        model=lambda: Mlp(10, [16, 8], 2),
        batches=vectors,
        loss=regression_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01, fused=True),
        schedule=lambda o: warm_up_then(o, 2, lr_scheduler.LinearLR(o, 1.0, 0.1, total_iters=STEPS - 2)),
        clip_norm=0.0,
    ),
    Case(
        name="mlp_adamw_groups",
        model=lambda: Mlp(10, [16, 8], 2),
        batches=vectors,
        loss=regression_loss,
        optimizer=grouped_adamw,
        schedule=halved,
        clip_norm=0.5,
    ),
    Case(
        name="mlp_rmsprop_multilabel",
        model=lambda: Mlp(10, [16, 8], 3),
        batches=marked_vectors,
        loss=multilabel_loss,
        optimizer=lambda p: torch.optim.RMSprop(p, lr=0.003, alpha=0.9, eps=1e-6, momentum=0.8, weight_decay=0.01),
        schedule=halved,
        clip_norm=1.0,
    ),
    Case(
        name="mlp_rmsprop_plain",
        model=lambda: Mlp(10, [16, 8], 2),
        batches=vectors,
        loss=regression_loss,
        optimizer=lambda p: torch.optim.RMSprop(p, lr=0.003, alpha=0.99, eps=1e-6),
        schedule=constant,
        clip_norm=0.0,
    ),
    Case(
        name="mlp_adagrad_smoothed",
        model=lambda: Mlp(10, [16, 8], 4),
        batches=labeled_vectors,
        loss=smoothed_loss,
        optimizer=lambda p: torch.optim.Adagrad(p, lr=0.02, eps=1e-6, weight_decay=0.01),
        schedule=constant,
        clip_norm=0.0,
    ),
    Case(
        name="mlp_sgd_weighted",
        model=lambda: Mlp(10, [16, 8], 4),
        batches=labeled_vectors,
        loss=weighted_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
        schedule=constant,
        clip_norm=0.0,
    ),
    Case(
        name="mlp_sgd_weighted_multilabel",
        model=lambda: Mlp(10, [16, 8], 3),
        batches=marked_vectors,
        loss=weighted_multilabel_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
        schedule=constant,
        clip_norm=0.0,
    ),
    Case(
        name="mlp_adam_binary",
        model=binary_mlp,
        batches=binary_vectors,
        loss=binary_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=1e-2, betas=(0.9, 0.999), eps=1e-6, fused=True),
        schedule=constant,
        clip_norm=0.0,
        num_stored=48,
    ),
    Case(
        name="mlp_muon_groups",
        steps=5,  # Muon computes in bf16, whose roundings are decisions, too
        model=lambda: Mlp(10, [16, 8], 2),
        batches=vectors,
        loss=regression_loss,
        optimizer=muon,
        schedule=halved,
        clip_norm=0.5,
    ),
    Case(
        name="mlp_lion_linear",
        model=lambda: Mlp(10, [16, 8], 2),
        batches=vectors,
        loss=regression_loss,
        optimizer=lambda p: Lion(p, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1),
        schedule=lambda o: warm_up_then(o, 2, lr_scheduler.LinearLR(o, 1.0, 0.1, total_iters=STEPS - 2)),
        clip_norm=1.0,
    ),
]
