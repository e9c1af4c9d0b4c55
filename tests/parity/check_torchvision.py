#!/usr/bin/env python3
"""check_torchvision.py GOLDEN PARITY_EXPORT: compares stoker's models with torchvision's, so that
published weights can be loaded.

PARITY_EXPORT --names prints for each model a line "model NAME" and its tensors as "name [shape]",
built with torchvision's settings. Names and shapes must match torchvision's state_dict. Initial
weights must match the golden file byte for byte if erfinv_ is rounded correctly (see case.py),
otherwise up to the last bits.
"""
import pathlib
import subprocess
import sys

import torch
import torchvision
from safetensors.torch import load_file

from case import SEED, round_erfinv_correctly
from make_golden import digest

# Settings that differ from torchvision's in the golden file.
SAME_INITIAL_WEIGHTS = {
    "resnet18": {"num_classes": 10},
    "resnet101": {"num_classes": 5},
    "resnet152": {"num_classes": 5},
    "alexnet": {"num_classes": 10},
    "vgg11": {"num_classes": 10},
    "vit_b_32": {"num_classes": 5, "image_size": 64},
    "inception_v3": {"num_classes": 5},
}
# erfinv_ of float32 is off by at most one unit in the last place, 2^-23; the multiplication rounds
# once more.
LAST_BITS = 2.5e-7
differences = []


def read_names(program):
    models = {}
    for line in subprocess.check_output([program, "--names"], text=True).splitlines():
        if line.startswith("model "):
            tensors = models.setdefault(line.removeprefix("model "), [])
        else:
            tensors.append(line)
    return models


def make(model, **settings):
    if model == "inception_v3":
        settings["init_weights"] = True  # the default, but leaving it out causes a warning
    return getattr(torchvision.models, model)(**settings)


def check_names(model, tensors):
    with torch.device("meta"):
        peer = make(model)
    expected = {f"{name} {list(tensor.shape)}" for name, tensor in peer.state_dict().items()}
    for name in sorted(expected ^ set(tensors))[:3]:
        side = "torchvision" if name in expected else "stoker"
        differences.append(f"{model}: only {side} has {name}")
    documented = torchvision.models.get_model_weights(model).DEFAULT.meta["num_params"]
    count = sum(parameter.numel() for parameter in peer.parameters())
    if count != documented:
        differences.append(f"{model}: {count} parameters, documented are {documented}")


def make_seeded(model):
    torch.manual_seed(SEED)
    return make(model, **SAME_INITIAL_WEIGHTS[model])


def check_initial_weights(golden):
    assert torch.Tensor.erfinv_.__name__ == "erfinv_", "it is replaced already"
    unrounded = {model: make_seeded(model) for model in ("vit_b_32", "inception_v3")}
    round_erfinv_correctly()
    for model in SAME_INITIAL_WEIGHTS:
        rounded = make_seeded(model)
        if not torch.equal(digest(rounded), golden[model]):
            differences.append(f"{model}: other initial weights than torchvision's")
        if model in unrounded:
            for (name, ours), theirs in zip(rounded.named_parameters(), unrounded[model].parameters()):
                if not torch.allclose(theirs, ours, rtol=LAST_BITS, atol=0):
                    differences.append(f"{model}: {name} differs from torchvision's by more than the last bits")


def main():
    golden, models = load_file(pathlib.Path(sys.argv[1]) / "initial_weights.safetensors"), read_names(sys.argv[2])
    for model, tensors in models.items():
        check_names(model, tensors)
    check_initial_weights(golden)
    for line in differences[:20]:
        print(line)
    print(
        f"{len(models)} models by name and {len(SAME_INITIAL_WEIGHTS)} by initial weights against torchvision "
        f"{torchvision.__version__}: {len(differences)} differences"
    )
    return 1 if differences or not models else 0


if __name__ == "__main__":
    sys.exit(main())
