#!/usr/bin/env python3
"""check_images.py FOLDER: loads what parity_image_test exported for the cases of make_images.py with transformers,
timm and torchvision: no missing or unexpected names, the same logits, and the images prepared as by torchvision."""
import json
import sys
from functools import partial
from pathlib import Path

import timm
import torch
import torchvision
from check_huggingface import load_complete
from safetensors.torch import load_file
from torch import nn
from torchvision.transforms.v2 import functional
from transformers import AutoImageProcessor, AutoModelForImageClassification
from transformers.utils import logging

TOLERANCE = 1e-5  # relative to the largest logit


def load_transformers(folder):
    return load_complete(AutoModelForImageClassification, folder)


def load_timm(folder):
    model = timm.create_model(f"local-dir:{folder}", pretrained=True)
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    return model


def load_torchvision(case, tensors):
    """The exported tensors have torchvision's names."""
    name, num_classes = case.name, len(tensors.get("fc.bias", tensors.get("heads.head.bias")))
    if name.startswith("resnet"):
        model = getattr(torchvision.models, name.split("_")[0])(num_classes=num_classes)
    elif name.startswith("inception"):
        model = torchvision.models.inception_v3(num_classes=num_classes, transform_input=False, init_weights=False)
    else:
        width, channels, patch, _ = tensors["conv_proj.weight"].shape
        if channels != 3:  # torchvision's are for RGB
            return None
        config = case / "exported" / "transformers" / "config.json"
        settings = json.loads(config.read_text())
        model = torchvision.models.VisionTransformer(
            image_size=settings["image_size"],
            patch_size=patch,
            num_layers=settings["num_hidden_layers"],
            num_heads=settings["num_attention_heads"],
            hidden_dim=width,
            mlp_dim=settings["intermediate_size"],
            num_classes=num_classes,
            norm_layer=partial(nn.LayerNorm, eps=settings["layer_norm_eps"]),
        )
    model.load_state_dict(tensors, strict=True)
    return model


def tensors_of(case):
    """With torchvision's names, which are timm's except for vit."""
    path = case / "exported" / "model.safetensors"
    return load_file(path if path.exists() else case / "exported" / "timm" / "model.safetensors")


def check_preparation(folder, channels, side):
    """As facts_of() of parity_image_test.cc; the images are not square."""
    shape = (channels, 2 * (side + 4), 2 * (side + 6))
    image = torch.randint(256, shape, dtype=torch.uint8)
    if channels == 3:
        prepared = functional.center_crop(functional.resize(image, [side + 4], antialias=True), [side, side])
    else:
        prepared = functional.resize(image, [side, side], antialias=True)
    processor = AutoImageProcessor.from_pretrained(folder)
    actual = processor(functional.to_pil_image(image), return_tensors="pt")["pixel_values"][0]
    difference = (actual - (prepared.float() / 255 - 0.5) / 0.25).abs().max().item()
    assert difference <= TOLERANCE, f"{folder}: images differ by {difference:.1e}"


def error_of(model, expected):
    with torch.no_grad():
        outputs = model.eval()(expected["images0"])
    logits = outputs if isinstance(outputs, torch.Tensor) else getattr(outputs, "logits", outputs[0])
    return ((logits - expected["logits"]).abs().max() / expected["logits"].abs().max()).item()


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    cases = sorted(path.parent for path in Path(sys.argv[1]).glob("*/exported"))
    assert cases, f"{sys.argv[1]}: nothing was exported"
    errors = {"transformers": [], "timm": [], "torchvision": []}
    for case in cases:
        expected = load_file(case / "expected.safetensors")
        models = {
            "transformers": partial(load_transformers, case / "exported" / "transformers"),
            "timm": partial(load_timm, case / "exported" / "timm"),
            "torchvision": lambda: load_torchvision(case, tensors_of(case)),
        }
        for library, load in models.items():
            if library != "torchvision" and not (case / "exported" / library).exists():
                continue
            model = load()
            if model is None:
                continue
            errors[library].append(error_of(model, expected))
            if library == "transformers":
                check_preparation(case / "exported" / library, *expected["images0"].shape[1:3])
            assert errors[library][-1] <= TOLERANCE, f"{case.name} in {library}: logits differ by {errors[library][-1]:.1e}"
    for library, found in errors.items():
        print(f"{library}: {len(found)} exported models loaded; largest difference of logits {max(found):.1e}")


if __name__ == "__main__":
    main()
