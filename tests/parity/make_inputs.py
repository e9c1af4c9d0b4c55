#!/usr/bin/env python3
"""Writes golden/inputs/inputs.safetensors for parity_inputs_test.cc: make_inputs.py [FOLDER].

Generated with torchvision's transforms (v2.Normalize, v2.MixUp, v2.CutMix) and with the cross
entropy of the mixed labels. The mixing ratio and the center of the box are stored, because stoker
samples them differently.
"""
import pathlib
import sys

import torch
import torch.nn.functional as F
import torchvision
from safetensors.torch import save_file
from torchvision.transforms import v2

CLASSES = 5
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CUTS = [(0.3, 4, 2), (0.75, 0, 9), (0.999, 3, 3), (0.0, 5, 5)]  # ratio, row, column of the center


def cutmix_of(share, row, column):
    """A CutMix with these random values; its own code computes the box from them."""
    cutmix = v2.CutMix(num_classes=CLASSES)
    cutmix._dist = type("Given", (), {"sample": staticmethod(lambda _: torch.tensor([share], dtype=torch.float64))})
    drawn = iter([column, row])  # in this order
    real = torch.randint
    torch.randint = lambda *args, **kwargs: torch.tensor([next(drawn)])
    try:
        return cutmix, cutmix.make_params([torch.zeros(4, 3, 8, 10)])
    finally:
        torch.randint = real


def apply(transform, params, images, labels):
    params = {"labels": labels, "batch_size": len(labels), **params}
    return transform.transform(images, params), transform.transform(labels, params)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "golden" / "inputs")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(11)
    torch.set_num_threads(1)
    images = torch.randint(256, (4, 3, 8, 10), dtype=torch.uint8)
    labels = torch.tensor([3, 0, 4, 1])
    logits = torch.randn(4, CLASSES)
    normal = v2.Normalize(MEAN, STD)(v2.ToDtype(torch.float32, scale=True)(images))
    tensors = {"images": images, "labels": labels, "logits": logits, "normal": normal}
    tensors["by_halves"] = v2.Normalize([0.5] * 3, [0.5] * 3)(v2.ToDtype(torch.float32, scale=True)(images))
    share = 0.3
    tensors["mixup"], shares = apply(v2.MixUp(num_classes=CLASSES), {"lam": share}, normal, labels)
    tensors["mixup_labels"] = shares
    tensors["mixup_share"] = torch.tensor([share], dtype=torch.float64)
    tensors["mixup_loss"] = F.cross_entropy(logits, shares)
    for number, (share, row, column) in enumerate(CUTS):
        cutmix, params = cutmix_of(share, row, column)
        name = f"cutmix{number}"
        tensors[name], tensors[name + "_labels"] = apply(cutmix, params, normal, labels)
        left, top, right, bottom = params["box"]
        tensors[name + "_given"] = torch.tensor([share, row, column], dtype=torch.float64)
        tensors[name + "_box"] = torch.tensor([top, left, bottom, right])
        tensors[name + "_share"] = torch.tensor([params["lam_adjusted"]], dtype=torch.float64)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "inputs.safetensors",
        {"torch": torch.__version__, "torchvision": torchvision.__version__},
    )


if __name__ == "__main__":
    main()
