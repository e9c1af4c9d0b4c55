#!/usr/bin/env python3
"""check_pretrained_captioner.py BIN FOLDER: trains the captioner of two phases in docs/captioning.md with the programs in BIN,
from a file of torchvision's inception_v3 with random weights, on small images and for a few steps: the encoder has the tensors of
the file, bit for bit, until it is unfrozen, and is trained afterwards. The report has every tensor that is excluded."""
import json
import re
import sys
from pathlib import Path

import torch
import torchvision
from PIL import Image
from programs import Programs
from safetensors.torch import load_file

SIDE = 75  # the smallest that inception_v3 takes
UNFROZEN, STEPS, BATCH = 2, 4, 4
LEVELS = {"dark": 40, "gray": 128, "bright": 220}
EXCLUDED = ("AuxLogits.", "fc.")
PAGE = Path(__file__).resolve().parents[2] / "docs/captioning.md"


def write_images(folder):
    """Of one level each, whose name is the caption."""
    folder.mkdir()
    for part in ("train", "val"):
        rows = []
        for i in range(2 * BATCH):
            word, level = list(LEVELS.items())[i % len(LEVELS)]
            name = f"{part}{i}.png"
            Image.new("RGB", (SIDE, SIDE), (level + i, level, level)).save(folder / name)
            rows.append({"file_name": name, "captions": [f"a {word} image", word]})
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "words.txt").write_text("".join(word + "\n" for word in ("a", *LEVELS, "image")))


@torch.no_grad()
def write_weights(path):
    """Random ones, with the statistics of random images in the batch norms."""
    torch.manual_seed(1)
    model = torchvision.models.inception_v3(init_weights=False).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1
            module.train()
    model(torch.rand(8, 3, SIDE, SIDE) * 2 - 1)
    torch.save(model.state_dict(), path)
    return model.state_dict()


def documented_config(folder, changes):
    """With a training that is short, and what is not here replaced."""
    config = next(text for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "pretrained:" in text)
    for documented, here in changes.items():
        assert documented in config, f"{PAGE} lacks {documented}"
        config = config.replace(documented, here)
    path = folder / "captioner.yaml"
    path.write_text(
        f"{config}train: {{max_steps: {STEPS}, micro_batch_size: {BATCH}, device: cpu, num_threads: 1}}\n"
        f"checkpoint: {{save_every_steps: {UNFROZEN}, keep_last: 2}}\n")
    return path


def same_tensors(weights, saved):
    return {name for name, tensor in weights.items()
            if tensor.dtype == saved[name].dtype and tensor.numpy().tobytes() == saved[name].numpy().tobytes()}


def check_report(report, weights, saved):
    lines = [line.split(None, 2) for line in report.splitlines()[1:]]
    ignored = {kind: {name for word, name, text in lines if word == kind and text.endswith(", ignored")}
               for kind in ("unexpected", "missing")}
    assert ignored["unexpected"] == {name for name in weights if name.startswith(EXCLUDED)}, ignored["unexpected"]
    assert ignored["missing"] == {name for name in saved if name.startswith("decoder.")}, ignored["missing"]
    loaded = {name for word, name, _ in lines if word == "loaded"}
    assert loaded == {name for name in saved if name.startswith("encoder.")}, loaded
    assert len(lines) == len(loaded) + len(ignored["unexpected"]) + len(ignored["missing"]), report


def check(programs):
    folder = programs.folder
    write_images(folder / "images")
    weights = write_weights(folder / "inception_v3.pt")
    assert any(name.startswith("AuxLogits.") for name in weights)
    programs.train(
        documented_config(folder, {
            "299": str(SIDE),  # before the names of folders
            "unfreeze_at_step: 100000": f"unfreeze_at_step: {UNFROZEN}",
            "coco/": f"{folder}/images/",
            "inception_v3.pt": str(folder / "inception_v3.pt"),
        }), "run")
    expected = {f"encoder.{name}": tensor for name, tensor in weights.items() if not name.startswith(EXCLUDED)}
    frozen, trained = (load_file(folder / f"run/checkpoints/step-{step:09}/model.safetensors") for step in (UNFROZEN, STEPS))
    assert expected.keys() == {name for name in frozen if name.startswith("encoder.")}
    assert same_tensors(expected, frozen) == expected.keys(), expected.keys() - same_tensors(expected, frozen)
    assert not same_tensors(expected, trained), same_tensors(expected, trained)
    check_report((folder / "run/logs/pretrained_load_report.txt").read_text(), weights, frozen)
    metrics = programs.evaluate("run")[STEPS]
    assert "cider_d" in metrics, metrics
    print(f"{len(expected)} tensors of torchvision's encoder: the same after {UNFROZEN} steps, all trained after {STEPS}")


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[2])
    folder.mkdir()
    check(Programs(folder, Path(sys.argv[1])))


if __name__ == "__main__":
    main()
