#!/usr/bin/env python3
"""check_exported_images.py BIN FOLDER: trains small image models with the programs in BIN for a few steps, exports them with
stokerctl, and loads the result with transformers, timm and torchvision: no missing or unexpected names, and with the images
prepared as the exported settings say, the same logits in all of them and the loss that stoker-eval computes."""
import sys
from functools import partial
from pathlib import Path

import timm
import torch
import torch.nn.functional as F
import torchvision
from check_images import load_timm, load_transformers
from PIL import Image
from programs import Programs
from torchvision.transforms.v2 import functional
from transformers import AutoImageProcessor
from transformers.utils import logging

TOLERANCE = 1e-5  # relative to the largest logit, and to the loss
CLASSES, PER_CLASS = ("blue", "green", "red"), 4
MEAN, STD = [0.5, 0.4, 0.3], [0.25, 0.2, 0.3]
SIDES = {"resnet18": 64, "vit": 32, "inception_v3": 75}
SETTINGS = {
    "resnet18": "",
    "vit": ", patch_size: 8, num_layers: 2, num_heads: 2, hidden_dim: 16, mlp_dim: 24",
    "inception_v3": ", aux_logits: false",
}
TORCHVISION = {
    "resnet18": torchvision.models.resnet18,
    "vit": partial(torchvision.models.VisionTransformer, 32, 8, 2, 2, 16, 24),
    "inception_v3": partial(torchvision.models.inception_v3, aux_logits=False, transform_input=False, init_weights=False),
}


def draw_images(folder, side):
    """Noise, of each class with more of its color."""
    generator = torch.Generator().manual_seed(side)
    for part in ("train", "val"):
        for i, name in enumerate(CLASSES):
            (folder / part / name).mkdir(parents=True)
            for number in range(PER_CLASS):
                image = torch.randint(200, (3, side, side), dtype=torch.uint8, generator=generator)
                image[2 - i] += 55
                functional.to_pil_image(image).save(folder / part / name / f"{number}.png")


def config_of(programs, name):
    side, images = SIDES[name], programs.folder / f"images{SIDES[name]}"
    draw_images(images, side)
    data = "".join(
        f"  {part}: {{format: image_folder, path: {images}/{part}, transforms: [resize: {{size: [{side}, {side}]}},"
        f" normalize: {{mean: {MEAN}, std: {STD}}}]}}\n" for part in ("train", "val"))
    path = programs.folder / f"{name}.yaml"
    path.write_text(
        f"data:\n{data}model: {{name: {name}{SETTINGS[name]}}}\ntask: {{name: classification}}\n"
        "optimizer: {name: sgd, lr: 0.01}\n"
        "train: {max_steps: 3, micro_batch_size: 6, device: cpu, num_threads: 1}\n")
    return path, images / "val"


def with_transformers(programs, name):
    folder = programs.export(name, "--format", "huggingface")
    processor = AutoImageProcessor.from_pretrained(folder)
    return load_transformers(folder), lambda image: processor(image, return_tensors="pt")["pixel_values"][0]


def with_timm(programs, name):
    model = load_timm(programs.export(name, "--format", "timm"))
    return model, timm.data.create_transform(**timm.data.resolve_model_data_config(model))


def with_torchvision(programs, name):
    model = TORCHVISION[name](num_classes=len(CLASSES))
    model.load_state_dict(torch.load(programs.export(name, "--format", "torch")), strict=True)
    return model, lambda image: functional.normalize(functional.pil_to_tensor(image) / 255, MEAN, STD)


def check(programs, name):
    config, images = config_of(programs, name)
    programs.train(config, name)
    loss = list(programs.evaluate(name).values())[-1]["loss"]
    files = sorted(images.glob("*/*.png"))
    labels = torch.tensor([CLASSES.index(path.parent.name) for path in files])
    libraries = {"transformers": with_transformers, "timm": with_timm, "torchvision": with_torchvision}
    if name == "inception_v3":
        del libraries["transformers"]  # which does not have it
    logits = {}
    for library, load in libraries.items():
        model, prepare = load(programs, name)
        with torch.no_grad():
            outputs = model.eval()(torch.stack([prepare(Image.open(path)) for path in files]))
        logits[library] = getattr(outputs, "logits", outputs)
        theirs = F.cross_entropy(logits[library], labels).item()
        assert abs(theirs - loss) <= TOLERANCE * loss, f"{name} in {library}: loss {theirs}, of stoker-eval {loss}"
        error = ((logits[library] - logits[next(iter(logits))]).abs().max() / logits[library].abs().max()).item()
        assert error <= TOLERANCE, f"{name} in {library}: logits differ by {error:.1e}"
    print(f"{name}: exported for {', '.join(libraries)}; the loss of stoker-eval, {loss:.6f}")


def main():
    folder = Path(sys.argv[2])
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder.mkdir(parents=True)
    programs = Programs(folder, Path(sys.argv[1]))
    for name in SIDES:
        check(programs, name)


if __name__ == "__main__":
    main()
