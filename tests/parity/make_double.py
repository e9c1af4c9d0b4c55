#!/usr/bin/env python3
"""Writes the golden file of parity_double_test.cc: make_double.py FILE [--all | --short].

For every image model, in double precision: the logits, the gradient of each parameter, ten training
steps, and the logits in evaluation afterwards. Uses torchvision's models if it can be imported,
otherwise the counterparts. Two numbers per tensor are stored (formula.py) to keep the file small.
Without --all, only the models that together have every kind of block; the golden file is generated
this way. --short: these for fewer steps, because the golden file has the others.

Why double precision: among the millions of inputs of ReLUs in a deep network, some are so close to
0 that float32 rounding decides whether they pass, and norms over few values amplify the difference
in each layer. PyTorch's results then differ by a percent between one and two threads. In double
precision no input is that close to 0, so any difference is a difference between the networks.
"""
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from formula import noise, set_weights, stored_values
from models import Resnet
from vision_models import Alexnet, InceptionV3, Vgg, Vit

try:
    import torchvision
except ImportError:
    torchvision = None

STEPS = 10
CLASSES = 5
WIDTH = 32  # of the fully connected layers
AUX_WEIGHT = 0.4
LR, MOMENTUM, CLIP_NORM = 0.02, 0.9, 1.0


def narrowed(model, indices):
    """torchvision's alexnet and vgg with smaller fully connected layers."""
    inputs = model.classifier[indices[0]].in_features
    for index, outputs in zip(indices, (WIDTH, WIDTH, CLASSES)):
        model.classifier[index] = torch.nn.Linear(inputs, outputs)
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


def from_counterparts(name):
    if name == "alexnet":
        return Alexnet(3, CLASSES, WIDTH, 0.0)
    if name.startswith("vgg"):
        return Vgg(int(name[3:5]), 3, CLASSES, name.endswith("bn"), WIDTH, 0.0)
    if name == "vit":
        return Vit(3, 32, 8, layers=3, heads=4, width=48, mlp_width=80, outputs=CLASSES)
    if name.startswith("inception"):
        return InceptionV3(3, CLASSES, name.endswith("aux"), 0.0)
    return Resnet(int(name[6:]), 3, CLASSES)


CIFAR = [f"resnet{depth}" for depth in (8, 14, 20, 32, 44, 56)]  # not in torchvision
IMAGENET = [f"resnet{depth}" for depth in (18, 34, 50, 101, 152)]
VGG = [f"vgg{depth}{norms}" for depth in (11, 13, 16, 19) for norms in ("", "_bn")]
# Image size and number of samples; the same as in double_cases.cc, which explains them.
CASES = (
    {name: (16, 2) for name in CIFAR}
    | {name: (33, 2) for name in IMAGENET}
    | {name: (32, 2 if name.endswith("bn") else 1) for name in VGG}
    | {"alexnet": (63, 2), "vit": (32, 2), "inception_v3": (107, 2), "inception_v3_aux": (299, 3)}
)
# The auxiliary head requires large images, so this case has fewer steps.
ALL_STEPS = dict.fromkeys(CASES, STEPS) | {"inception_v3_aux": 3}
# The models in the golden file.
GOLDEN_STEPS = {name: STEPS for name in ("resnet20", "resnet18", "resnet50", "vgg16", "vgg13_bn", "vit", "inception_v3")}
GOLDEN_STEPS["inception_v3_aux"] = 1
SHORT = 3


def make(name):
    """Skips weight initialization, because set_weights() overwrites all weights."""
    of = from_counterparts if torchvision is None or name in CIFAR else of_torchvision
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
            tensors["gradients"] = torch.stack([stored_values(p.grad) for p in model.parameters()])
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM))
        losses.append(loss)
        optimizer.step()
    tensors |= {"losses": torch.stack(losses), "norms": torch.stack(norms)}
    tensors["final"] = torch.stack([stored_values(t) for t in [*model.parameters(), *model.buffers()]])
    with torch.no_grad():
        tensors["evaluated"] = model.eval()(batch(0, samples, side)[0])
    return {f"{name}/{what}": tensor.detach().contiguous() for what, tensor in tensors.items()}


def main():
    steps = ALL_STEPS if "--all" in sys.argv[2:] else GOLDEN_STEPS
    most = SHORT if "--short" in sys.argv[2:] else STEPS
    torch.set_num_threads(1)
    tensors = {}
    for name, count in steps.items():
        tensors |= run(name, min(count, most))
    made_by = {"torch": torch.__version__, "torchvision": torchvision.__version__ if torchvision else "none"}
    save_file(tensors, sys.argv[1], made_by)


if __name__ == "__main__":
    main()
