"""The reference runs in idiomatic PyTorch: baseline.py gpt|cifar|digits DATA STEPS SEED THREADS.

Prints the validation loss and, for classification, the accuracy as JSON. Random numbers differ from those of stoker;
only the resulting metrics are compared.
"""
import json
import math
import pathlib
import struct
import sys

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "parity"))
from models import Gpt, Lenet, Resnet  # noqa: E402


def normalize(images):
    return (images.float() / 255 - 0.5) / 0.5


def random_crop_and_flip(images, pad, flip):
    """A random crop of each padded image, flipped horizontally with probability `flip`."""
    n, _, height, width = images.shape
    padded = F.pad(images, (pad, pad, pad, pad))
    tops, lefts = torch.randint(2 * pad + 1, (2, n))
    cut = torch.stack([p[:, t : t + height, l : l + width] for p, t, l in zip(padded, tops, lefts)])
    mirror = torch.rand(n) < flip
    cut[mirror] = cut[mirror].flip(3)
    return cut


def batches_of(samples, batch):
    while True:
        order = torch.randperm(samples)
        for begin in range(0, samples - batch + 1, batch):
            yield order[begin : begin + batch]


def cosine_with_warm_up(optimizer, warm_up, steps):
    def fraction(step):
        return (step + 1) / warm_up if step < warm_up else (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up))) / 2

    return torch.optim.lr_scheduler.LambdaLR(optimizer, fraction)


def train(model, optimizer, schedule, steps, batch_loss, clip=0.0):
    for _ in range(steps):
        optimizer.zero_grad()
        batch_loss().backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        schedule.step()
    model.eval()


def gpt(data, steps):
    raw = torch.frombuffer(bytearray((data / "tinyshakespeare.txt").read_bytes()), dtype=torch.uint8).long()
    cut = int(len(raw) * 0.9)
    model = Gpt(6, 192, 6, 128, 256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def loss_of(windows, reduction="mean"):
        return F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten(), reduction=reduction)

    def batch_loss():
        return loss_of(torch.stack([raw[i : i + 129] for i in torch.randint(cut - 129, (16,))]))

    train(model, optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0), steps, batch_loss, clip=1.0)
    val = raw[cut:]
    windows = val[: (len(val) - 1) // 128 * 128 + 1].unfold(0, 129, 128)
    with torch.no_grad():
        total = sum(loss_of(chunk, "sum").item() for chunk in windows.split(64))
    return {"loss": total / (len(windows) * 128)}


def classifier(model, optimizer, schedule, steps, images, labels, batch, augment, val, val_labels, clip=0.0):
    order = batches_of(len(images), batch)

    def batch_loss():
        chosen = next(order)
        return F.cross_entropy(model(normalize(augment(images[chosen]))), labels[chosen])

    train(model, optimizer, schedule, steps, batch_loss, clip)
    with torch.no_grad():
        logits = torch.cat([model(normalize(chunk)) for chunk in val.split(250)])
    return {
        "loss": F.cross_entropy(logits, val_labels).item(),
        "accuracy": logits.argmax(1).eq(val_labels).double().mean().item(),
    }


def load_image_folder(folder):
    from torchvision.io import read_file, decode_jpeg

    classes = sorted(p for p in folder.iterdir() if p.is_dir())
    files = [(path, number) for number, each in enumerate(classes) for path in sorted(each.iterdir())]
    return torch.stack([decode_jpeg(read_file(str(path))) for path, _ in files]), torch.tensor([n for _, n in files])


def cifar(data, steps):
    images, labels = load_image_folder(data / "cifar10" / "train")
    val, val_labels = load_image_folder(data / "cifar10" / "test")
    model = Resnet(8, 3, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True)
    return classifier(model, optimizer, cosine_with_warm_up(optimizer, 200, steps), steps, images, labels, 128,
                      lambda p: random_crop_and_flip(p, 4, 0.5), val, val_labels)


def idx(path):
    raw = path.read_bytes()
    shape = struct.unpack(f">{raw[3]}I", raw[4 : 4 + 4 * raw[3]])
    return torch.frombuffer(bytearray(raw[4 + 4 * raw[3] :]), dtype=torch.uint8).view(shape)


def digits(data, steps):
    files = {name: idx(data / "digits" / name) for name in ("train-images", "train-labels", "val-images", "val-labels")}
    model = Lenet(1, 28, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    return classifier(model, optimizer, cosine_with_warm_up(optimizer, 100, steps), steps, files["train-images"][:, None],
                      files["train-labels"].long(), 64, lambda p: random_crop_and_flip(p, 2, 0.0), files["val-images"][:, None],
                      files["val-labels"].long())


if __name__ == "__main__":
    kind, folder, count, seed, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(int(seed))
    print(json.dumps({"gpt": gpt, "cifar": cifar, "digits": digits}[kind](pathlib.Path(folder), int(count))))
