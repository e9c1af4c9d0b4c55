"""Case: a model and its training settings, and helpers shared by all kinds of cases."""
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
import torch.nn.functional as F
from torch.optim import lr_scheduler

STEPS = 10
SEED = 7
CLASS_WEIGHTS = (0.5, 2.0, 1.0, 0.25)


@dataclass
class Case:
    name: str
    model: callable
    batches: callable  # -> two batches, each a dict of tensors as the dataset stores them
    loss: callable
    optimizer: callable  # parameters -> optimizer
    schedule: callable  # optimizer -> scheduler
    clip_norm: float
    num_stored: int = 256  # stored elements per tensor in the golden file
    steps: int = STEPS
    data_seed: int = SEED + 1  # of the batches; see reference.py


def round_erfinv_correctly():
    """Makes trunc_normal_ identical on every machine.

    erfinv_ of float32 uses MKL, whose last bit depends on the processor and the number of threads.
    Computed in double precision and rounded it does not. stoker does the same.
    """
    torch.Tensor.erfinv_ = lambda self: self.copy_(self.double().erfinv())


def initialized(model, rules):
    """model.init: applies the first rule whose pattern matches a parameter's name or its last part."""
    for name, parameter in model.named_parameters():
        for pattern, init in rules.items():
            if fnmatchcase(name, pattern) or fnmatchcase(name.split(".")[-1], pattern):
                init(parameter)
                break
    return model


def warm_up_then(optimizer, warmup, after):
    rising = lr_scheduler.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    return lr_scheduler.SequentialLR(optimizer, [rising, after], milestones=[warmup])


def constant(optimizer):
    return lr_scheduler.ConstantLR(optimizer, factor=1.0)


def halved(optimizer):
    return lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)


def normalize_image(u8):
    return (u8.to(torch.get_default_dtype()) / 255 - 0.5) / 0.5


def make_image_batches(samples, shape, classes):
    def make():
        return [
            {
                "input": torch.randint(256, (samples, *shape), dtype=torch.uint8),
                "label": torch.randint(classes, (samples,)),
            }
            for _ in range(2)
        ]

    return make


def tokens():
    return [{"tokens": torch.randint(64, (3, 9), dtype=torch.uint8)} for _ in range(2)]


def classification_loss(model, batch):
    logits = model(normalize_image(batch["input"]))
    return logits, F.cross_entropy(logits, batch["label"])


def language_model_loss(model, batch):
    tokens = batch["tokens"].long()
    logits = model(tokens[:, :-1])
    return logits, F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
