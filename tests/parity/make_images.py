#!/usr/bin/env python3
"""Writes the folders of parity_image_test.cc: make_images.py FOLDER [COUNT [SEED]].

Each subfolder, MODEL_LIBRARY_SEED, has an image model with random weights as transformers, timm or torchvision saves
it, and expected.safetensors: images and their logits, and for vit of transformers what ten steps of AdamW compute. COUNT
(3) configurations of vit of transformers, in single and in double precision, and of timm; ResNets and Inception v3. The
golden folders, of COUNT 0, are one small vit per library, in single precision.
"""
import random
import sys
from functools import partial
from pathlib import Path

import timm
import torch
import torch.nn.functional as F
import torchvision
from make_huggingface import record_steps
from safetensors.torch import save_file
from transformers import ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification, ViTImageProcessor
from transformers.utils import logging

NUM_IMAGES, NUM_CLASSES = 2, 5
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def randomize(model):
    """With biases of 0, norms of 1 and running statistics of their start, errors would not show."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
            elif name.endswith("num_batches_tracked"):
                tensor.fill_(7)
            elif tensor.dim() == 1:
                tensor.add_(torch.randn_like(tensor) * 0.1)
            elif tensor.dim() == 2:  # so that attention is not almost uniform
                tensor.normal_(0, 0.2)
            elif "token" in name or "pos" in name:
                tensor.normal_(0, 0.1)
    return model.eval()


def record(folder, model, images):
    with torch.no_grad():
        outputs = model(images)
    logits = outputs if isinstance(outputs, torch.Tensor) else getattr(outputs, "logits", outputs[0])
    save_file({"images0": images, "logits": logits.contiguous()}, folder / "expected.safetensors")


def saved_name(name):
    """The name that transformers saves a parameter of ViTForImageClassification under."""
    name = name.replace("vit.layers.", "vit.encoder.layer.").replace("attention.o_proj", "attention.output.dense")
    for ours, theirs in {"q": "query", "k": "key", "v": "value"}.items():
        name = name.replace(f"attention.{ours}_proj", f"attention.attention.{theirs}")
    return name.replace("mlp.fc1", "intermediate.dense").replace("mlp.fc2", "output.dense")


def record_training(folder, model, images):
    """As record(), and ten steps with these images and others in turn."""
    expected = {"images0": images, "images1": torch.randn_like(images)}
    expected |= {f"labels{i}": torch.randint(NUM_CLASSES, images.shape[:1]) for i in range(2)}

    def step(i):
        logits = model(expected[f"images{i % 2}"]).logits
        return logits, F.cross_entropy(logits, expected[f"labels{i % 2}"])

    record_steps(folder, {saved_name(name): p for name, p in model.named_parameters()}, step, expected)


def images_of(channels, size):
    return torch.randn(NUM_IMAGES, channels, size, size)


def vit_sizes(rng):
    heads, patch = rng.randint(1, 3), rng.choice([2, 3, 4])
    width = heads * rng.randint(3, 6)
    return {
        "layers": rng.randint(1, 3),
        "heads": heads,
        "width": width,
        "mlp": width * rng.choice([1, 2, 3]) + rng.randint(0, 1),
        "patch": patch,
        "size": patch * rng.randint(2, 4),
        "channels": rng.choice([1, 3]),
    }


def save_transformers(folder, model):
    randomize(model).save_pretrained(folder)
    ViTImageProcessor(image_mean=MEAN, image_std=STD).save_pretrained(folder)


def vit_transformers(folder, rng, seed, dtype=torch.float32):
    sizes = vit_sizes(rng)
    config = ViTConfig(
        hidden_size=sizes["width"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        intermediate_size=sizes["mlp"],
        image_size=sizes["size"],
        patch_size=sizes["patch"],
        num_channels=sizes["channels"],
        layer_norm_eps=(1e-12, 1e-3, 1e-6)[seed % 3],
        num_labels=NUM_CLASSES,
    )
    model, images = ViTForImageClassification(config).to(dtype), images_of(sizes["channels"], sizes["size"])
    save_transformers(folder, model)
    record_training(folder, model, images.to(dtype))


def resnet_transformers(folder, depth):
    basic = depth == 18
    config = ResNetConfig(
        depths=[2, 2, 2, 2] if basic else [3, 4, 6, 3],
        hidden_sizes=[64, 128, 256, 512] if basic else [256, 512, 1024, 2048],
        layer_type="basic" if basic else "bottleneck",
        num_labels=NUM_CLASSES,
    )
    model = ResNetForImageClassification(config)
    save_transformers(folder, model)
    record(folder, model, images_of(3, 64))


def save_timm(folder, architecture, images, **args):
    model = randomize(timm.create_model(architecture, num_classes=NUM_CLASSES, in_chans=images.shape[1], **args))
    size = list(images.shape[1:])
    model.pretrained_cfg = model.pretrained_cfg | {"input_size": size, "num_classes": NUM_CLASSES, "mean": MEAN[: size[0]], "std": STD[: size[0]]}
    timm.models.save_for_hf(model, folder, safe_serialization=True, model_args=args or None)
    record(folder, model, images)


def vit_timm(folder, rng, seed):
    sizes = vit_sizes(rng)
    save_timm(
        folder,
        "vit_base_patch16_224",
        images_of(sizes["channels"], sizes["size"]),
        img_size=sizes["size"],
        patch_size=sizes["patch"],
        embed_dim=sizes["width"],
        depth=sizes["layers"],
        num_heads=sizes["heads"],
        mlp_ratio=sizes["mlp"] / sizes["width"] + 1e-9,
    )


def save_torchvision(folder, model, images, rename=lambda name: name):
    folder.mkdir(parents=True)
    randomize(model)
    torch.save({rename(name): tensor for name, tensor in model.state_dict().items()}, folder / "model.pt")
    record(folder, model, images)


def small_vit():
    """As small_vit() of parity_image_test.cc."""
    return torchvision.models.VisionTransformer(
        image_size=12, patch_size=4, num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=12, num_classes=NUM_CLASSES
    )


def before_013(name):
    """The names of the published weights of vit."""
    return name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2.")


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    makers = {"vit_transformers": vit_transformers, "vit_timm": vit_timm}
    if count > 0:
        makers["vit_transformers_double"] = partial(vit_transformers, dtype=torch.float64)
    for seed in range(first, first + max(count, 1)):
        for name, make in makers.items():
            torch.manual_seed(seed)
            make(folder / f"{name}_{seed}", random.Random(f"{name} {seed}"), seed)
    torch.manual_seed(first)
    save_torchvision(folder / "vit_torchvision_1", small_vit(), images_of(3, 12), before_013)
    if count == 0:
        return
    # Of one library each, because they are large; each is exported for the others.
    resnet_transformers(folder / "resnet18_transformers_1", 18)
    resnet_transformers(folder / "resnet50_transformers_1", 50)
    save_timm(folder / "resnet18_timm_1", "resnet18", images_of(3, 64))
    inception = partial(torchvision.models.inception_v3, transform_input=False, init_weights=False)
    save_torchvision(folder / "inceptionv3_torchvision_1", inception(num_classes=NUM_CLASSES), images_of(3, 299))


if __name__ == "__main__":
    main()
