#!/usr/bin/env python3
"""Writes what parity_double_test compares stoker with: make_double.py FILE [--all].

Every model over pictures, in double precision: what it says, the gradient of each parameter, ten steps of training, and
what it says in evaluation afterwards. torchvision's own models where it can be imported, else the counterparts of them. Of a
tensor two numbers are kept (formula.py), so that the file stays small. Without --all only of the models that together
have every kind of block, with which the golden file is made.

Why double: of the millions of numbers that go into a deep network's ReLUs, some are so near 0 that float32's rounding
decides whether they pass, and norms over few values make more of it with each layer. PyTorch then differs from itself by
a percent between one thread and two. In double precision nothing is that near, and what differs is another network.
"""
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from formula import kept_of, noise, set_weights
from models import Resnet
from vision_models import Alexnet, InceptionV3, Vgg, Vit

try:
    import torchvision
except ImportError:
    torchvision = None

STEPS = 10
CLASSES = 5
WIDTH = 32  # of fully connected layers
AUX_WEIGHT = 0.4
LR, MOMENTUM, CLIP_NORM = 0.02, 0.9, 1.0


def narrowed(model, places):
    """alexnet and vgg of torchvision with smaller fully connected layers."""
    inputs = model.classifier[places[0]].in_features
    for place, outputs in zip(places, (WIDTH, WIDTH, CLASSES)):
        model.classifier[place] = torch.nn.Linear(inputs, outputs)
        inputs = outputs
    return model


def vit():
    sizes = {"image_size": 32, "patch_size": 8, "num_layers": 3, "num_heads": 4, "hidden_dim": 48, "mlp_dim": 80}
    return torchvision.models.VisionTransformer(**sizes, num_classes=CLASSES)


def inception(aux_logits):
    return torchvision.models.inception_v3(
        num_classes=CLASSES, aux_logits=aux_logits, init_weights=False, dropout=0.0
    )


def of_torchvision(name):
    models = torchvision.models
    if name == "alexnet":
        return narrowed(models.alexnet(dropout=0.0), (1, 4, 6))
    if name.startswith("vgg"):
        return narrowed(getattr(models, name)(dropout=0.0), (0, 3, 6))
    if name == "vit":
        return vit()
    if name.startswith("inception"):
        return inception(name.endswith("aux"))
    return getattr(models, name)(num_classes=CLASSES)


def of_twins(name):
    if name == "alexnet":
        return Alexnet(3, CLASSES, WIDTH, 0.0)
    if name.startswith("vgg"):
        return Vgg(int(name[3:5]), 3, CLASSES, name.endswith("bn"), WIDTH, 0.0)
    if name == "vit":
        return Vit(3, 32, 8, layers=3, heads=4, width=48, mlp_width=80, outputs=CLASSES)
    if name.startswith("inception"):
        return InceptionV3(3, CLASSES, name.endswith("aux"), 0.0)
    return Resnet(int(name[6:]), 3, CLASSES)


CIFAR = [f"resnet{depth}" for depth in (8, 14, 20, 32, 44, 56)]  # which torchvision does not have
IMAGENET = [f"resnet{depth}" for depth in (18, 34, 50, 101, 152)]
VGG = [f"vgg{depth}{norms}" for depth in (11, 13, 16, 19) for norms in ("", "_bn")]
# double_cases.cc has the same, and says why: the side of the pictures, how many.
CASES = (
    {name: (16, 2) for name in CIFAR}
    | {name: (33, 2) for name in IMAGENET}
    | {name: (32, 2 if name.endswith("bn") else 1) for name in VGG}
    | {"alexnet": (63, 2), "vit": (32, 2), "inception_v3": (107, 2), "inception_v3_aux": (299, 3)}
)
# The auxiliary head takes large pictures: fewer steps.
ALL_STEPS = dict.fromkeys(CASES, STEPS) | {"inception_v3_aux": 3}
# Those that are compared each time.
GOLDEN_STEPS = {name: STEPS for name in ("resnet20", "resnet18", "resnet50", "vgg16", "vgg13_bn", "vit", "inception_v3")}
GOLDEN_STEPS["inception_v3_aux"] = 1


def make(name):
    """Without drawing weights, which set_weights() replaces."""
    of = of_twins if torchvision is None or name in CIFAR else of_torchvision
    with torch.device("meta"):
        model = of(name)
    model = model.double().to_empty(device="cpu")
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
    set_weights(model)
    return model


def batch(number, samples, side):
    count = samples * 3 * side * side
    labels = torch.arange(samples) * 2 + number
    return noise(number * count, count).view(samples, 3, side, side), labels % CLASSES


def loss_of(outputs, labels):
    heads = outputs if isinstance(outputs, tuple) else (outputs,)
    return sum(weight * F.cross_entropy(head, labels) for weight, head in zip((1, AUX_WEIGHT), heads))


def run(name, steps):
    side, samples = CASES[name]
    model, tensors, losses, norms = make(name).train(), {}, [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    for step in range(steps):
        inputs, labels = batch(step % 2, samples, side)
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = loss_of(outputs, labels)
        loss.backward()
        if step == 0:
            tensors["logits"] = torch.cat(tuple(outputs)) if isinstance(outputs, tuple) else outputs
            tensors["gradients"] = torch.stack([kept_of(p.grad) for p in model.parameters()])
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM))
        losses.append(loss)
        optimizer.step()
    tensors |= {"losses": torch.stack(losses), "norms": torch.stack(norms)}
    tensors["final"] = torch.stack([kept_of(t) for t in [*model.parameters(), *model.buffers()]])
    with torch.no_grad():
        tensors["evaluated"] = model.eval()(batch(0, samples, side)[0])
    return {f"{name}/{what}": tensor.detach().contiguous() for what, tensor in tensors.items()}


def main():
    steps = ALL_STEPS if "--all" in sys.argv[2:] else GOLDEN_STEPS
    torch.set_num_threads(1)
    tensors = {}
    for name, count in steps.items():
        tensors |= run(name, count)
    made_by = {"torch": torch.__version__, "torchvision": torchvision.__version__ if torchvision else "none"}
    save_file(tensors, sys.argv[1], made_by)


if __name__ == "__main__":
    main()
