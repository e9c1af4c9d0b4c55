"""Reference trainer: trains what a resolved configuration of stoker describes, with PyTorch, torchvision and scikit-learn.

Written from the manual alone (docs, config/stoker.yaml); it shares no code with stoker. Everything is computed with PyTorch's
operators in their plainest form: a step sums the losses of its micro-batches, divides by their count, clips, and calls
torch.optim. compare.py compares the results with those of stokerd and stoker-eval.

Covered:
  datasets     csv, jsonl, numpy, idx, cifar10, image_folder, text, tokens; sequences with padding, buckets and packing; split,
               skip_samples, max_samples, repeat; concat and mixture
  models       mlp, sequential, lenet5, resnet8 to 56, vit, gpt, gpt2, llama, lstm_lm, bert, blstm; freeze, unfreeze_at_step, lora
  tasks        all but captioning and custom; class_weights, label_smoothing, pos_weight, zero_infinity, -100
  training     all optimizers, param_groups, layer_decay, schedulers, warmup, accumulation, both kinds of clipping, EMA, bf16,
               ranks, synchronous parameter servers, asynchronous ones with one worker or max_staleness 0, resume with changed settings
               and from earlier checkpoints, steps without a label or with a nonfinite loss
  evaluation   metrics, confusion matrix, best checkpoint, early stopping

Not covered: dropout, augmentation, mixup and cutmix (their random numbers are stoker's own), initial weights (read from the
checkpoint of step 0; tests/parity compares them), formats tfrecord and webdataset, image_list, synthetic, streams, refresh,
tokenizers and conversations, sample weights; models captioner, plugin, exported, inception_v3, vgg, alexnet
and the resnets of ImageNet; precision fp16, GPUs, several asynchronous workers, rollback, resizing of images, sample errors, generated
text, live settings. The order of samples is read from `stokerctl show-batch`.
"""
import copy
import csv
import fnmatch
import functools
import json
import math
import pathlib
import struct
import unittest.mock

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import _muon

IGNORED = -100
LARGER_IS_BETTER = {"accuracy", "macro_precision", "macro_recall", "macro_f1", "micro_f1", "precision", "recall", "f1", "auroc",
                    "exact_match", "r2", "mean_average_precision", "mean_iou"}


def is_better_larger(metric):
    return metric in LARGER_IS_BETTER or (metric.startswith("top") and metric.endswith("_accuracy"))


# ---- Datasets -----------------------------------------------------------------------------------------------------------------


class Dataset:
    """samples: dicts of input, tokens, label, target, labels, length, position_ids (numpy arrays or integers)."""

    def __init__(self, samples, num_classes=None, names=None, bytes_as_tokens=False):
        self.samples = samples
        self.num_classes = num_classes
        self.names = names
        self.bytes_as_tokens = bytes_as_tokens


def read_datasets(config):
    """The datasets of the configuration by name; classes are those of data.train."""
    datasets = {}
    data = config["data"]
    order = sorted(data, key=lambda name: (name != "train", name))
    if "format" not in data["train"]:
        components = list(data["train"].get("concat") or data["train"]["mixture"])
        order = components + [name for name in order if name not in components]
    names = None
    for name in order:
        if "format" in data[name]:
            datasets[name] = read_dataset(data[name], config, names)
        else:
            parts = [datasets[part] for part in (data[name].get("concat") or data[name]["mixture"])]
            joined = Dataset([sample for part in parts for sample in part.samples], bytes_as_tokens=parts[0].bytes_as_tokens)
            joined.num_classes = max((part.num_classes for part in parts if part.num_classes), default=None)
            joined.names = parts[0].names
            datasets[name] = joined
        if name == "train":
            names = datasets["train"].names
    return datasets


def read_dataset(spec, config, names):
    reader = {"csv": read_csv, "jsonl": read_jsonl, "numpy": read_numpy, "idx": read_idx, "cifar10": read_cifar10,
              "image_folder": read_image_folder, "text": read_text, "tokens": read_tokens}[spec["format"]]
    dataset = reader(spec, config, names)
    if spec["format"] not in ("text", "tokens", "image_folder"):
        dataset.samples = split(dataset.samples, spec)
    # split, skip_samples and max_samples of packed sequences count documents.
    if (spec.get("sequence") or {}).get("packing"):
        dataset.samples = pack(dataset.samples, spec["sequence"]["max_length"])
    else:
        dataset.samples = limit(dataset.samples, spec)
    return dataset


def split(items, spec):
    first, last = spec.get("split") or [0, 1]
    return items[math.floor(len(items) * first):math.floor(len(items) * last)]


def limit(samples, spec):
    samples = samples[spec.get("skip_samples") or 0:]
    return samples[:spec["max_samples"]] if spec.get("max_samples") else samples


def files_of(path, glob, suffix=""):
    path = pathlib.Path(path)
    if path.is_file():
        return [path]
    return sorted((file for file in path.glob(glob) if file.is_file() and file.name.endswith(suffix)), key=lambda file: str(file).encode())


def as_list(value):
    return [] if value is None else value if isinstance(value, list) else [value]


def class_indices(labels, names, num_classes):
    """Integers from 0 are indices; otherwise the classes are the names in byte order."""
    texts = [str(label) for label in labels]
    if names is None and all(text.isdigit() for text in texts):
        indices = [int(text) for text in texts]
        return indices, num_classes or max(indices) + 1, None
    names = names or sorted(set(texts), key=str.encode)
    return [names.index(text) for text in texts], num_classes or len(names), names


def read_csv(spec, config, names):
    rows, header = [], spec.get("column_names")
    for file in files_of(spec["path"], spec.get("glob", "**/*")):
        with open(file, newline="", encoding="utf-8-sig") as stream:
            lines = [line for line in csv.reader(stream, delimiter=spec.get("delimiter", ",")) if line]
        if spec.get("column_names") is None:
            header, lines = lines[0], lines[1:]
        rows += [dict(zip(header, line)) for line in lines]
    fields = spec.get("fields") or {}
    targets = as_list(fields.get("target"))
    others = set(targets) | set(as_list(fields.get("label")))
    inputs = as_list(fields.get("input")) or [name for name in header if name not in others]
    used = inputs + targets + as_list(fields.get("label"))
    rows = [row for row in rows if all(row[name] != "" for name in used)]  # on_missing_field: drop
    shape = spec.get("input_shape") or [len(inputs)]
    samples = [{"input": np.array([float(row[name]) for name in inputs], np.float32).reshape(shape)} for row in rows]
    num_classes = None
    if targets:
        for sample, row in zip(samples, rows):
            sample["target"] = np.array([float(row[name]) for name in targets], np.float32)
    else:
        labels, num_classes, names = class_indices([row[fields["label"]] for row in rows], names, spec.get("num_classes"))
        for sample, label in zip(samples, labels):
            sample["label"] = label
    return Dataset(samples, num_classes, names)


def lookup(record, key):
    for part in key.split("."):
        record = record[part]
    return record


def flat(value):
    if isinstance(value, list):
        return [number for item in value for number in flat(item)]
    return [float(value)]


def read_jsonl(spec, config, names):
    records = []
    for file in files_of(spec["path"], spec.get("glob", "**/*")):
        with open(file, encoding="utf-8") as stream:
            records += [json.loads(line) for line in stream if line.strip()]
    fields = spec["fields"]
    sequence = spec.get("sequence") or {}
    max_length = sequence.get("max_length")
    samples = []
    bytes_as_tokens = bool(fields.get("text"))
    has_label = any(fields.get(role) for role in ("label", "labels", "target"))
    if bytes_as_tokens and not max_length:
        stream = b"".join(lookup(record, fields["text"]).encode() + b"\0" for record in records)
        return blocks_of(np.frombuffer(stream, np.uint8).astype(np.int64), spec, config, True)
    for record in records:
        sample, steps = {}, None
        if fields.get("input"):
            if max_length:
                shape = spec.get("input_shape") or [1]
                steps = np.array(flat(lookup(record, as_list(fields["input"])[0])), np.float32).reshape([-1] + shape)
            else:
                keys = as_list(fields["input"])
                values = [number for key in keys for number in flat(lookup(record, key))]
                sample["input"] = np.array(values, np.float32).reshape(spec.get("input_shape") or [len(keys)])
        elif fields.get("text"):
            text = lookup(record, fields["text"]).encode() + (b"" if has_label else b"\0")
            steps = np.frombuffer(text, np.uint8).astype(np.int64)
        else:
            steps = np.array(lookup(record, fields["input_ids"]), np.int64)
        if fields.get("target"):
            sample["target"] = np.array([n for key in as_list(fields["target"]) for n in flat(lookup(record, key))], np.float32)
        if fields.get("label"):
            sample["label"] = lookup(record, fields["label"])
        labels = np.array(lookup(record, fields["labels"]), np.int64) if fields.get("labels") else None
        if max_length:
            most_labels = sequence.get("max_label_length")
            if len(steps) > max_length or (most_labels and len(labels) > most_labels):
                if sequence.get("on_overflow") == "drop":
                    continue
            steps = steps[:max_length]
            sample["length"] = len(steps)
            sample["input" if fields.get("input") else "tokens"] = padded(steps, max_length, 0)
            if labels is not None:
                sample["labels"] = padded(labels[:most_labels or max_length], most_labels or max_length, IGNORED)
        samples.append(sample)
    num_classes = None
    if fields.get("label"):
        labels, num_classes, names = class_indices([sample["label"] for sample in samples], names, spec.get("num_classes"))
        for sample, label in zip(samples, labels):
            sample["label"] = label
    if fields.get("labels"):
        num_classes = spec.get("num_classes") or int(max(sample["labels"].max() for sample in samples)) + 1
    return Dataset(samples, num_classes, names, bytes_as_tokens)


def padded(values, length, value):
    result = np.full((length,) + values.shape[1:], value, values.dtype)
    result[:len(values)] = values
    return result


def pack(documents, max_length):
    """Best-fit decreasing: from the longest document to the shortest, each to the sample with the least space that it fits into.

    Of equal lengths the earlier document is first, of samples with equal space that which has this space for the shortest time;
    samples, and the documents in each, are in the order of the data."""
    documents = [document["tokens"][:document["length"]] for document in documents if document["length"] >= 2]
    bins = []
    for i in sorted(range(len(documents)), key=lambda i: (-len(documents[i]), i)):
        room = [(max_length - sum(len(documents[j]) for j in content), -number) for number, content in enumerate(bins)]
        fitting = [entry for entry in room if entry[0] >= len(documents[i])]
        bins.append((bins.pop(-min(fitting)[1]) if fitting else []) + [i])  # the last one has changed last
    samples = []
    for content in sorted(sorted(content) for content in bins):
        positions = np.concatenate([np.arange(len(documents[i])) for i in content])
        tokens = np.concatenate([documents[i] for i in content])
        samples.append({"tokens": padded(tokens, max_length, 0), "position_ids": padded(positions, max_length, 0)})
    return samples


def read_array(path):
    path = pathlib.Path(path)
    if path.is_dir():
        return np.concatenate([np.load(file) for file in sorted(path.glob("**/*.npy"), key=lambda file: str(file).encode())])
    return np.load(path)


def read_numpy(spec, config, names):
    fields = spec.get("fields") or {}
    archive = np.load(spec["path"]) if str(spec["path"]).endswith(".npz") else None
    target, labels, lengths = fields.get("target"), None, None
    if archive is not None:
        rows = archive[as_list(fields.get("input"))[0] if fields.get("input") else
                       next(name for name in ("x", "images", "input", "data", "arr_0") if name in archive)]
        role = as_list(target)[0] if target else fields.get("label") or fields.get("labels") or next(
            name for name in ("y", "labels", "label", "target", "targets", "arr_1") if name in archive)
        labels = archive[role]
        lengths = archive[fields["length"]] if fields.get("length") else None
    else:
        rows, labels = read_array(spec["path"]), read_array(spec["labels_path"])
        lengths = read_array(spec["lengths_path"]) if spec.get("lengths_path") else None
    max_length = (spec.get("sequence") or {}).get("max_length")
    if rows.dtype == np.uint8 and rows.ndim == 3 and not max_length:
        rows = rows[:, None]
    elif rows.dtype == np.uint8 and rows.ndim == 4 and not max_length:
        if rows.shape[-1] in (1, 3) and rows.shape[1] not in (1, 3):
            rows = rows.transpose(0, 3, 1, 2)
    else:
        rows = rows.astype(np.float32)
    if max_length and rows.ndim == 2:
        rows = rows[:, :, None]
    samples = [{"input": row} for row in rows]
    for i, sample in enumerate(samples):
        if max_length:
            sample["length"] = int(lengths[i]) if lengths is not None else max_length
            sample["input"] = padded(sample["input"][:sample["length"]], max_length, 0)
    flat_labels = labels.reshape(len(labels), -1)
    is_integer = np.issubdtype(labels.dtype, np.integer)
    num_classes = None
    if target or not is_integer or (flat_labels.shape[1] > 1 and not max_length):
        for sample, value in zip(samples, flat_labels.astype(np.float32)):
            sample["target"] = value
    elif flat_labels.shape[1] == 1:
        num_classes = spec.get("num_classes") or int(flat_labels.max()) + 1
        for sample, value in zip(samples, flat_labels[:, 0]):
            sample["label"] = int(value)
    else:
        for sample, value in zip(samples, flat_labels.astype(np.int64)):
            if flat_labels.shape[1] == max_length:
                value = padded(value[:sample["length"]], max_length, IGNORED)
            sample["labels"] = value
        num_classes = spec.get("num_classes") or int(max(sample["labels"].max() for sample in samples)) + 1
    return Dataset(samples, num_classes)


def read_idx(spec, config, names):
    images, labels = (pathlib.Path(spec[key]).read_bytes() for key in ("path", "labels_path"))
    _, count, height, width = struct.unpack(">IIII", images[:16])
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(count, 1, height, width)
    labels = np.frombuffer(labels, np.uint8, offset=8)
    return Dataset([{"input": image, "label": int(label)} for image, label in zip(pixels, labels)], int(labels.max()) + 1)


def read_cifar10(spec, config, names):
    content = b"".join(file.read_bytes() for file in files_of(spec["path"], "data_batch_*.bin"))
    rows = np.frombuffer(content, np.uint8).reshape(-1, 3073)
    return Dataset([{"input": row[1:].reshape(3, 32, 32), "label": int(row[0])} for row in rows], 10)


def read_image_folder(spec, config, names):
    from PIL import Image

    root = pathlib.Path(spec["path"])
    classes = sorted((folder.name for folder in root.iterdir() if folder.is_dir()), key=str.encode)
    names = names or classes
    samples = []
    for name in classes:
        files = sorted((file for file in (root / name).glob("**/*") if file.is_file()), key=lambda file: str(file).encode())
        for file in split(files, spec):
            image = np.array(Image.open(file).convert("RGB" if spec.get("image_mode", "rgb") == "rgb" else "L"))
            image = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
            samples.append({"input": image, "label": names.index(name)})
    return Dataset(samples, len(names), names)


def read_text(spec, config, names):
    content = b"".join(file.read_bytes() for file in files_of(spec["path"], spec.get("glob", "**/*")))
    return blocks_of(np.frombuffer(content, np.uint8).astype(np.int64), spec, config, True)


def read_tokens(spec, config, names):
    kind = "<u2" if spec.get("dtype", "uint16") == "uint16" else "<u4"
    content = b"".join(file.read_bytes() for file in files_of(spec["path"], "**/*", ".bin"))
    return blocks_of(np.frombuffer(content, kind).astype(np.int64), spec, config, False)


def blocks_of(stream, spec, config, bytes_as_tokens):
    """Sample i is the block_size + 1 tokens from i * block_size; `split` is by token."""
    if spec["format"] in ("text", "tokens"):
        stream = split(stream, spec)
    size = (spec.get("sequence") or {}).get("block_size") or config["model"].get("context_length") or 128
    count = max(0, (len(stream) - 1) // size)
    return Dataset([{"tokens": stream[i * size:i * size + size + 1]} for i in range(count)], None, None, bytes_as_tokens)


def normalization(spec, train_spec):
    for dataset in (spec, train_spec):
        for transform in dataset.get("transforms") or []:
            if isinstance(transform, dict) and "normalize" in transform:
                return transform["normalize"]
    return {"mean": 0.0, "std": 1.0}


def to_batch(samples, normalize, dtype, padded_to=None):
    """The tensors of a batch, images normalized."""
    batch = {}
    for key in samples[0]:
        values = np.stack([np.asarray(sample[key]) for sample in samples])
        tensor = torch.from_numpy(values)
        if key == "input" and tensor.dtype == torch.uint8:
            mean, std = (torch.tensor(as_list(normalize[name]), dtype=dtype).reshape(-1, 1, 1) for name in ("mean", "std"))
            tensor = (tensor.to(dtype) / 255 - mean) / std
        elif tensor.is_floating_point():
            tensor = tensor.to(dtype)
        batch[key] = tensor
    if padded_to:
        for key in ("input", "tokens", "labels"):
            if key in batch and (key != "labels" or batch[key].shape[1] == len(samples[0].get("tokens", samples[0].get("input")))):
                batch[key] = batch[key][:, :padded_to]
    return batch


# ---- Models -------------------------------------------------------------------------------------------------------------------


class Lstm(nn.LSTM):
    """nn.LSTM in fp32, also below autocast, as the manual says; padding has no effect on states and is 0 in the output."""

    def run(self, x, lengths=None):
        with torch.autocast("cpu", enabled=False):
            x = x.to(self.weight_ih_l0.dtype)
            if lengths is None:
                return super().forward(x)
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
            output, state = super().forward(packed)
            output, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])
            return output, state

    def forward(self, x):
        return self.run(x)[0]


def hidden_positions(tokens_shape, lengths):
    return torch.arange(tokens_shape[1])[None, :] < lengths[:, None]


class Mlp(nn.Sequential):
    def __init__(self, model, inputs, outputs):
        sizes = [inputs] + list(model["hidden_sizes"]) + [outputs]
        layers = []
        for before, after in zip(sizes[:-2], sizes[1:-1]):
            layers += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-2], sizes[-1]))

    def forward(self, batch):
        return super().forward(batch["input"].flatten(1))


class Residual(nn.Module):
    def __init__(self, body, shortcut):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


def layers_of(specs, x, outputs):
    """nn.Sequential of model.layers; x is an example, of which the shapes follow."""
    layers = []
    for spec in specs:
        name, args = (spec, {}) if isinstance(spec, str) else next(iter(spec.items()))
        args = args or {}
        if name == "residual":
            layer = Residual(layers_of(args["body"], x, outputs), layers_of(args.get("shortcut") or [], x, outputs))
        elif name == "conv2d":
            layer = nn.Conv2d(x.shape[1], args["out_channels"], args["kernel_size"], args.get("stride", 1), args.get("padding", 0),
                              groups=args.get("groups", 1), bias=args.get("bias", True))
        elif name == "linear":
            layer = nn.Linear(x.shape[-1], args.get("out_features") or outputs, bias=args.get("bias", True))
        elif name == "embedding":
            layer = nn.Embedding(args["num_embeddings"], args["embedding_dim"])
        elif name == "lstm":
            layer = Lstm(x.shape[-1], args["hidden_size"], batch_first=True)
        elif name == "batch_norm":
            layer = (nn.BatchNorm2d if x.ndim == 4 else nn.BatchNorm1d)(x.shape[1])
        elif name == "layer_norm":
            layer = nn.LayerNorm(x.shape[-1])
        elif name in ("max_pool2d", "avg_pool2d"):
            kind = nn.MaxPool2d if name == "max_pool2d" else nn.AvgPool2d
            layer = kind(args["kernel_size"], args.get("stride") or args["kernel_size"], args.get("padding", 0))
        elif name == "adaptive_avg_pool2d":
            layer = nn.AdaptiveAvgPool2d(args.get("output_size", 1))
        else:
            layer = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "flatten": nn.Flatten,
                     "dropout": nn.Identity}[name]()
        with torch.no_grad():
            x = layer.eval()(x)
        layers.append(layer.train())
    return nn.Sequential(*layers)


class SequentialModel(nn.Sequential):
    def __init__(self, model, example, outputs):
        key = "tokens" if "tokens" in example else "input"
        super().__init__(*layers_of(model["layers"], example[key].float() if key == "input" else example[key], outputs))
        self.key = key

    def forward(self, batch):
        return super().forward(batch[self.key])


class LeNet5(nn.Module):
    def __init__(self, channels, height, width, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2), 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, outputs)

    def forward(self, batch):
        x = F.max_pool2d(F.relu(self.conv1(batch["input"])), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class CifarResNet(nn.Module):
    def __init__(self, depth, channels, outputs):
        from torchvision.models.resnet import BasicBlock

        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        width = 16
        for stage, planes in enumerate((16, 32, 64), 1):
            blocks = []
            for i in range((depth - 2) // 6):
                stride = 2 if stage > 1 and i == 0 else 1
                shortcut = None
                if stride != 1 or width != planes:
                    shortcut = nn.Sequential(nn.Conv2d(width, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))
                blocks.append(BasicBlock(width, planes, stride, shortcut))
                width = planes
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, outputs)

    def forward(self, batch):
        x = F.relu(self.bn1(self.conv1(batch["input"])))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


def vit(model, channels, size, outputs):
    from torchvision.models.vision_transformer import VisionTransformer

    class Vit(VisionTransformer):
        def forward(self, batch):
            return super().forward(batch["input"])

    patch, width = model["patch_size"], model["hidden_dim"]
    result = Vit(size, patch, model["num_layers"], model["num_heads"], width, model.get("mlp_dim") or 4 * width, num_classes=outputs,
                 norm_layer=functools.partial(nn.LayerNorm, eps=model["layer_norm_eps"]))
    result.conv_proj = nn.Conv2d(channels, width, patch, patch)
    return result


class RmsNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype if x.dtype == torch.float64 else torch.float32
        wide = x.to(dtype)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


def causal_mask(batch):
    """[batch, 1, T, T]: what each token sees; with packing the tokens before it in its document."""
    tokens = batch["tokens"]
    steps = tokens.shape[1]
    mask = torch.ones(steps, steps, dtype=torch.bool).tril()[None]
    if "position_ids" in batch:
        documents = (batch["position_ids"] == 0).cumsum(1)
        mask = mask & (documents[:, :, None] == documents[:, None, :])
    return mask[:, None]


def attention(q, k, v, mask):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, -1).to(v.dtype) @ v


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


class GptBlock(nn.Module):
    def __init__(self, width, inner, count, eps, gelu):
        super().__init__()
        self.count, self.gelu = count, gelu
        self.ln1, self.ln2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x, mask):
        q, k, v = (heads(part, self.count) for part in self.qkv(self.ln1(x)).chunk(3, -1))
        x = x + self.proj(attention(q, k, v, mask).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate=self.gelu))


class Gpt(nn.Module):
    def __init__(self, model, vocabulary):
        super().__init__()
        width = model["embed_dim"]
        is_gpt2 = model["name"] == "gpt2"
        eps = model["layer_norm_eps"] if is_gpt2 else 1e-5
        inner = (model.get("mlp_dim") if is_gpt2 else None) or 4 * width
        self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(model["context_length"], width)
        self.blocks = nn.ModuleList(GptBlock(width, inner, model["num_heads"], eps, "tanh" if is_gpt2 else "none")
                                    for _ in range(model["num_layers"]))
        self.ln = nn.LayerNorm(width, eps)
        if not (is_gpt2 and model["tie_weights"]):
            self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, batch):
        tokens = batch["tokens"]
        positions = batch["position_ids"] if "position_ids" in batch else torch.arange(tokens.shape[1])
        x, mask = self.tok(tokens) + self.pos(positions), causal_mask(batch)
        for block in self.blocks:
            x = block(x, mask)
        return F.linear(self.ln(x), self.head.weight if hasattr(self, "head") else self.tok.weight)


class LlamaBlock(nn.Module):
    def __init__(self, model, size, inner):
        super().__init__()
        width, count, groups = model["embed_dim"], model["num_heads"], model.get("num_key_value_heads") or model["num_heads"]
        self.count, self.groups = count, groups
        norm = functools.partial(RmsNorm, eps=model["rms_norm_eps"])
        self.ln1, self.ln2 = norm(width), norm(width)
        self.q = nn.Linear(width, count * size, bias=model["qkv_bias"])
        self.k, self.v = (nn.Linear(width, groups * size, bias=model["qkv_bias"]) for _ in range(2))
        if model["qk_norm"]:
            self.q_norm, self.k_norm = norm(size), norm(size)
        self.proj = nn.Linear(count * size, width, bias=model["proj_bias"])
        self.gate, self.up = (nn.Linear(width, inner, bias=model["mlp_bias"]) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=model["mlp_bias"])

    def forward(self, x, mask, rotate):
        y = self.ln1(x)
        q, k, v = heads(self.q(y), self.count), heads(self.k(y), self.groups), heads(self.v(y), self.groups)
        if hasattr(self, "q_norm"):
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q), rotate(k)
        k, v = (part.repeat_interleave(self.count // self.groups, 1) for part in (k, v))
        x = x + self.proj(attention(q, k, v, mask).transpose(1, 2).flatten(2))
        y = self.ln2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, model, vocabulary):
        super().__init__()
        width = model["embed_dim"]
        self.model, self.size = model, model.get("head_dim") or width // model["num_heads"]
        inner = model.get("mlp_dim") or -(-8 * width // 3 // 256) * 256
        self.tok = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(model, self.size, inner) for _ in range(model["num_layers"]))
        self.ln = RmsNorm(width, model["rms_norm_eps"])
        if not model["tie_weights"]:
            self.head = nn.Linear(width, vocabulary, bias=False)

    def frequencies(self):
        frequencies = 1 / self.model["rope_theta"] ** (torch.arange(0, self.size, 2, dtype=torch.float64) / self.size)
        scaling = self.model.get("rope_scaling")
        if scaling and scaling["rope_type"] == "linear":
            return frequencies / scaling["factor"]
        if scaling:  # Llama 3.1: transformers' _compute_llama3_parameters
            low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
            periods = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
            smooth = ((periods - low) / (high - low)).clamp(0, 1)
            return (1 - smooth) * frequencies / factor + smooth * frequencies
        return frequencies

    def forward(self, batch):
        tokens = batch["tokens"]
        positions = batch["position_ids"] if "position_ids" in batch else torch.arange(tokens.shape[1])[None]
        angles = positions[:, None, :, None] * self.frequencies()
        cos, sin = (torch.cat([part, part], -1).to(self.tok.weight.dtype) for part in (angles.cos(), angles.sin()))

        def rotate(x):
            first, second = x.chunk(2, -1)
            return (x * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)

        x, mask = self.tok(tokens), causal_mask(batch)
        for block in self.blocks:
            x = block(x, mask, rotate)
        return F.linear(self.ln(x), self.head.weight if hasattr(self, "head") else self.tok.weight)


class LstmLm(nn.Module):
    def __init__(self, model, vocabulary):
        super().__init__()
        width = model["hidden_size"]
        self.tok = nn.Embedding(vocabulary, width)
        self.lstm = Lstm(width, width, model["num_layers"], batch_first=True)
        if not model["tie_weights"]:
            self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, batch):
        return F.linear(self.lstm(self.tok(batch["tokens"])), self.head.weight if hasattr(self, "head") else self.tok.weight)


class BertBlock(nn.Module):
    def __init__(self, width, inner, count, eps):
        super().__init__()
        self.count = count
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.ln1, self.ln2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x, mask):
        q, k, v = (heads(part(x), self.count) for part in (self.q, self.k, self.v))
        x = self.ln1(x + self.proj(attention(q, k, v, mask).transpose(1, 2).flatten(2)))
        return self.ln2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, model, outputs):
        super().__init__()
        width, eps = model["embed_dim"], model["layer_norm_eps"]
        self.pooling, self.separator, self.types = model["pooling"], model.get("sep_token"), model["num_token_types"]
        self.tok, self.pos = nn.Embedding(model["vocab_size"], width), nn.Embedding(model["context_length"], width)
        self.type, self.embed_ln = nn.Embedding(self.types, width), nn.LayerNorm(width, eps)
        inner = model.get("mlp_dim") or 4 * width
        self.blocks = nn.ModuleList(BertBlock(width, inner, model["num_heads"], eps) for _ in range(model["num_layers"]))
        if self.pooling == "pooler":
            self.pooler = nn.Linear(width, width)
        self.fc = nn.Linear(width, outputs)

    def forward(self, batch):
        tokens, lengths = batch["tokens"], batch["length"]
        types = torch.zeros_like(tokens)
        if self.separator is not None:
            is_separator = (tokens == self.separator).long()
            types = (is_separator.cumsum(1) - is_separator).clamp(max=self.types - 1)
        x = self.embed_ln(self.tok(tokens) + self._modules["type"](types) + self.pos(torch.arange(tokens.shape[1])))
        valid = hidden_positions(tokens.shape, lengths)
        for block in self.blocks:
            x = block(x, valid[:, None, None, :])
        if self.pooling == "pooler":
            x = torch.tanh(self.pooler(x[:, 0]))
        elif self.pooling == "mean":
            x = (x * valid[:, :, None]).sum(1) / lengths[:, None]
        return self.fc(x)


class Blstm(nn.Module):
    def __init__(self, model, features, outputs):
        super().__init__()
        width = model["hidden_size"]
        self.pooling = model["pooling"]
        if features is None:
            features = model.get("embedding_dim") or width
            self.tok = nn.Embedding(model["vocab_size"], features)
        self.lstm = Lstm(features, width, model["num_layers"], batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * width, outputs)

    def forward(self, batch):
        x = self.tok(batch["tokens"]) if hasattr(self, "tok") else batch["input"].flatten(2)
        lengths = batch["length"] if "length" in batch else torch.full((len(x),), x.shape[1])
        output, (state, _) = self.lstm.run(x, lengths)
        if self.pooling == "last":
            output = torch.cat([state[-2], state[-1]], -1)
        elif self.pooling == "mean":
            output = output.sum(1) / lengths[:, None]
        return self.fc(output)


class LoraLinear(nn.Linear):
    """W x + lora_alpha / r * B A x."""

    @classmethod
    def wrap(cls, linear, lora):
        result = cls(linear.in_features, linear.out_features, bias=linear.bias is not None)
        result.lora_A = nn.Linear(linear.in_features, lora["r"], bias=False)
        result.lora_B = nn.Linear(lora["r"], linear.out_features, bias=False)
        result.scale = lora["lora_alpha"] / lora["r"]
        return result

    def forward(self, x):
        return super().forward(x) + self.scale * self.lora_B(self.lora_A(x))


HUGGING_FACE_NAMES = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "proj", "gate_proj": "gate", "up_proj": "up", "down_proj": "down",
                      "c_attn": "qkv", "query": "q", "key": "k", "value": "v"}


def add_lora(model, lora, name):
    outputs = {"mlp": None, "vit": "heads.head", "bert": "fc"}.get(name, "head")
    linears = [module for module, part in model.named_modules() if isinstance(part, nn.Linear)]
    if name == "mlp":
        outputs = linears[-1]
    targets = lora.get("target_modules") or {"gpt": ["qkv"], "gpt2": ["qkv"]}.get(name, ["q", "v"])
    if targets in ("all-linear", ["all-linear"]):
        chosen = [module for module in linears if module != outputs]
    else:
        targets = [HUGGING_FACE_NAMES.get(target, target) for target in as_list(targets)]
        chosen = [module for module in linears if any(module == target or module.endswith("." + target) for target in targets)]
    for module in chosen:
        parent, _, last = module.rpartition(".")
        setattr(model.get_submodule(parent), last, LoraLinear.wrap(model.get_submodule(module), lora))
    for parameter_name, parameter in model.named_parameters():
        parameter.requires_grad_(is_adapter(parameter_name, lora))


def is_adapter(name, lora):
    module = name.rpartition(".")[0]
    return ".lora_" in name or any(module == saved or module.endswith("." + saved) for saved in lora.get("modules_to_save") or [])


def create_model(config, datasets):
    model, task, train = config["model"], config["task"]["name"], datasets["train"]
    sample = train.samples[0]
    name = model["name"]
    outputs = model.get("num_classes")
    if outputs is None:
        outputs = 1 if task == "binary_classification" else train.num_classes if train.num_classes else len(sample.get("target", [0]))
    vocabulary = model.get("vocab_size") or (256 if train.bytes_as_tokens else None)
    if name == "mlp":
        result = Mlp(model, int(np.prod(sample["input"].shape)), outputs)
    elif name == "sequential":
        example = to_batch([sample, sample], {"mean": 0.0, "std": 1.0}, torch.float32)
        result = SequentialModel(model, example, outputs)
    elif name == "lenet5":
        result = LeNet5(*sample["input"].shape, outputs)
    elif name.startswith("resnet"):
        result = CifarResNet(int(name[6:]), sample["input"].shape[0], outputs)
    elif name == "vit":
        result = vit(model, sample["input"].shape[0], sample["input"].shape[-1], outputs)
    elif name in ("gpt", "gpt2"):
        result = Gpt(model, vocabulary)
    elif name == "llama":
        result = Llama(model, vocabulary)
    elif name == "lstm_lm":
        result = LstmLm(model, vocabulary)
    elif name == "bert":
        result = Bert(model, outputs)
    elif name == "blstm":
        result = Blstm(model, int(np.prod(sample["input"].shape[1:])) if "input" in sample else None, outputs)
    else:
        raise ValueError(f"no model {name}")
    if model.get("lora"):
        add_lora(result, model["lora"], name)
    return result


# ---- Tasks --------------------------------------------------------------------------------------------------------------------


def sample_uses(config, datasets):
    """How often each sample of data.train is used: in an epoch, or relative to all draws of a mixture."""
    spec = config["data"]["train"]
    if "mixture" in spec:
        parts = [(len(datasets[name].samples), share / len(datasets[name].samples)) for name, share in spec["mixture"].items()]
    else:
        parts = [(len(datasets[name].samples), config["data"][name].get("repeat") or 1) for name in spec.get("concat") or ["train"]]
    return np.concatenate([np.full(size, float(uses)) for size, uses in parts])


class Task:
    """Loss as (sum, count), and predictions."""

    def __init__(self, config, datasets):
        self.spec = config["task"]
        self.name = self.spec["name"]
        self.train = datasets["train"]
        self.weights = None
        weights = self.spec.get("class_weights")
        if weights == "balanced":
            labels = np.array([sample["label"] for sample in self.train.samples])
            counts = np.bincount(labels, sample_uses(config, datasets), minlength=self.train.num_classes)
            self.weights = [counts.sum() / ((counts > 0).sum() * count) if count else 1.0 for count in counts]
        elif weights:
            self.weights = list(weights)

    def class_weights(self, logits):
        if self.weights is None:
            return None
        padding = [1.0] * (logits.shape[-1] - len(self.weights))
        return torch.tensor(self.weights + padding, dtype=logits.dtype)

    def labels(self, batch):
        """Target classes, -100 where nothing counts; aligned with the outputs."""
        if self.name == "classification":
            return batch["label"]
        if self.name == "sequence_labeling":
            labels = batch["labels"]
            if "length" in batch:
                labels = labels.masked_fill(~hidden_positions(labels.shape, batch["length"]), IGNORED)
            return labels
        tokens = batch["tokens"]
        if "labels" in batch:
            return batch["labels"][:, 1:]
        if "position_ids" in batch:
            positions = batch["position_ids"]
            return tokens[:, 1:].masked_fill(positions[:, 1:] == 0, IGNORED)
        if "length" in batch:
            return tokens[:, 1:].masked_fill(~hidden_positions(tokens.shape, batch["length"])[:, 1:], IGNORED)
        return tokens[:, 1:]

    def inputs(self, batch):
        if self.name != "language_modeling":
            return batch
        return {key: value[:, :-1] if key in ("tokens", "position_ids") else value for key, value in batch.items()}

    def loss(self, logits, batch, training):
        """Sum over samples, labels or tokens, and what it is divided by."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.name in ("classification", "sequence_labeling", "language_modeling"):
            labels, weights = self.labels(batch).flatten(), self.class_weights(logits)
            smoothing = self.spec.get("label_smoothing", 0) if training else 0
            counted = labels[labels != IGNORED]
            if self.spec.get("loss") == "focal":
                each = F.cross_entropy(logits.flatten(0, -2)[labels != IGNORED], counted, reduction="none")
                each = each * (1 - torch.exp(-each)) ** self.spec["gamma"]
                total = (each if weights is None else each * weights[counted]).sum()
            else:
                total = F.cross_entropy(logits.flatten(0, -2), labels, weights, reduction="sum", ignore_index=IGNORED,
                                        label_smoothing=smoothing)
            return total, (weights[counted].sum().item() if weights is not None else len(counted))
        if self.name == "binary_classification":
            weight = torch.tensor(float(self.spec.get("pos_weight", 1)), dtype=logits.dtype)
            target = batch["label"].to(logits.dtype)
            return self.binary_loss(logits.flatten(), target, weight), len(target)
        if self.name == "regression":
            return self.regression_loss(logits, batch["target"]), logits.numel()
        if self.name == "multilabel_classification":
            weights = self.spec.get("pos_weight")
            weights = torch.tensor(weights, dtype=logits.dtype) if weights else None
            return self.binary_loss(logits, batch["target"], weights), logits.numel()
        if self.name == "ctc":
            lengths = (batch["labels"] != IGNORED).sum(1)
            steps = batch["length"] if "length" in batch else torch.full((len(logits),), logits.shape[1])
            losses = F.ctc_loss(F.log_softmax(logits, -1).transpose(0, 1), batch["labels"].clamp(min=0), steps, lengths, blank=0,
                                reduction="none", zero_infinity=self.spec.get("zero_infinity", False))
            return (losses / lengths.clamp(min=1)).sum(), len(logits)
        raise ValueError(f"no task {self.name}")

    def binary_loss(self, logits, target, weights):
        if self.spec.get("loss") == "dice":
            probability, smooth = torch.sigmoid(logits), self.spec["smooth"]
            each = 1 - (2 * (probability * target).sum(1) + smooth) / (probability.sum(1) + target.sum(1) + smooth)
            return each.sum() * logits.shape[1]
        each = F.binary_cross_entropy_with_logits(logits, target, pos_weight=weights, reduction="none")
        if self.spec.get("loss") == "focal":
            probability = torch.sigmoid(logits)
            each = each * (1 - probability * target - (1 - probability) * (1 - target)) ** self.spec["gamma"]
            if self.spec["alpha"] is not None:
                each = each * (self.spec["alpha"] * target + (1 - self.spec["alpha"]) * (1 - target))
        return each.sum()

    def regression_loss(self, output, target):
        kind = self.spec.get("loss", "mse")
        if kind == "quantile":
            error = target - output
            return torch.maximum(self.spec["quantile"] * error, (self.spec["quantile"] - 1) * error).sum()
        if kind == "kl_div":
            return F.kl_div(F.log_softmax(output, 1), target, reduction="sum") * output.shape[1]
        if kind == "huber":
            return F.huber_loss(output, target, reduction="sum", delta=self.spec["delta"])
        if kind == "smooth_l1":
            return F.smooth_l1_loss(output, target, reduction="sum", beta=self.spec["beta"])
        return (F.l1_loss if kind == "l1" else F.mse_loss)(output, target, reduction="sum")

    def predictions(self, outputs):
        """Of regression, in the units of the targets."""
        return torch.softmax(outputs, 1) if self.spec.get("loss") == "kl_div" else outputs

    def training_metric(self, logits, batch):
        """Name, sum and count of the metric that train.jsonl has."""
        logits = logits.double()
        if self.name in ("classification", "sequence_labeling"):
            labels = self.labels(batch)
            counted = labels != IGNORED
            return "accuracy", (logits.argmax(-1) == labels)[counted].sum().item(), counted.sum().item()
        if self.name == "binary_classification":
            return "accuracy", ((logits.flatten() > 0).long() == batch["label"]).sum().item(), len(logits)
        if self.name == "multilabel_classification":
            return "exact_match", ((logits > 0) == (batch["target"] > 0.5)).all(-1).sum().item(), len(logits)
        if self.name == "regression":
            return "mae", (self.predictions(logits) - batch["target"]).abs().sum().item(), logits.numel()
        return None, 0, 0


# ---- Optimizers and schedules ---------------------------------------------------------------------------------------------------


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al., 2023."""

    def __init__(self, groups, betas):
        super().__init__(groups, {"betas": betas})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                mean = self.state[parameter].setdefault("exp_avg", torch.zeros_like(parameter))
                update = torch.sign(first * mean + (1 - first) * parameter.grad) + group["weight_decay"] * parameter
                parameter.sub_(group["lr"] * update)
                mean.mul_(second).add_(parameter.grad, alpha=1 - second)


class Lamb(torch.optim.Optimizer):
    """You et al., 2019, as timm has it."""

    def __init__(self, groups, **options):
        super().__init__(groups, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if not self.state[parameter]:
                    self.state[parameter] = {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter),
                                             "step": torch.tensor(0.0)}
                state = self.state[parameter]
                state["step"] += 1
                step = state["step"].item()
                state["exp_avg"].mul_(first).add_(parameter.grad, alpha=1 - first)
                state["exp_avg_sq"].mul_(second).addcmul_(parameter.grad, parameter.grad, value=1 - second)
                root = (state["exp_avg_sq"] / (1 - second ** step)).sqrt()
                update = state["exp_avg"] / (1 - first ** step) / (root + group["eps"]) + group["weight_decay"] * parameter
                if group["weight_decay"] != 0 or group["always_adapt"]:
                    weight, size = parameter.norm(), update.norm()
                    ratio = weight / size if weight > 0 and size > 0 else torch.tensor(1.0)
                    update *= min(ratio, torch.tensor(1.0)) if group["trust_clip"] else ratio
                parameter.sub_(update, alpha=group["lr"])


class ScheduleFreeAdamW(torch.optim.Optimizer):
    """Defazio et al., 2024, as schedulefree has it, with z as its difference from the parameters."""

    def __init__(self, groups, **options):
        super().__init__(groups, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (first, second), rate = group["betas"], group["lr"]
            for y in group["params"]:
                if y.grad is None:
                    continue
                if not self.state[y]:
                    self.state[y] = {"z_offset": torch.zeros_like(y), "exp_avg_sq": torch.zeros_like(y), "step": torch.tensor(0.0),
                                     "weight_sum": torch.tensor(0.0, dtype=torch.float64), "lr_max": torch.tensor(0.0)}
                state = self.state[y]
                state["step"] += 1
                state["lr_max"].fill_(max(rate, state["lr_max"].item()))
                state["weight_sum"] += state["lr_max"].double() ** 2
                part = (state["lr_max"].double() ** 2 / state["weight_sum"]).item() if state["weight_sum"] > 0 else 0
                state["exp_avg_sq"].mul_(second).addcmul_(y.grad, y.grad, value=1 - second)
                root = (state["exp_avg_sq"] / (1 - second ** state["step"].item())).sqrt()
                update = y.grad / (root + group["eps"]) + group["weight_decay"] * y
                y.add_(state["z_offset"], alpha=part).add_(update, alpha=rate * (first * (1 - part) - 1))
                state["z_offset"].sub_(update, alpha=rate * first).mul_(1 - part)

    def average(self, y):
        (first, _), offset = self.param_groups[0]["betas"], self.state.get(y, {}).get("z_offset")
        return y.detach() + (0 if offset is None else (1 - 1 / first) * offset)


class Lars(torch.optim.Optimizer):
    """You et al., 2017, as timm has it."""

    def __init__(self, groups, **options):
        super().__init__(groups, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                weight, size, decay = parameter.norm(), parameter.grad.norm(), group["weight_decay"]
                update = parameter.grad + decay * parameter
                if decay != 0 or group["always_adapt"]:
                    ratio = group["trust_coeff"] * weight / (size + weight * decay + group["eps"])
                    ratio = ratio if weight > 0 and size > 0 else torch.tensor(1.0)
                    update *= (ratio / group["lr"]).clamp(max=1) if group["trust_clip"] else ratio
                if group["momentum"] > 0:
                    buffer = self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
                    buffer.mul_(group["momentum"]).add_(update)
                    update = update + group["momentum"] * buffer if group["nesterov"] else buffer
                parameter.sub_(update, alpha=group["lr"])


def matches(pattern, name):
    return fnmatch.fnmatchcase(name, pattern)


def is_of_kind(kind, name, parameters):
    layer, _, last = name.rpartition(".")
    if kind == "bias":
        return last.startswith("bias")
    if kind == "norm":
        return f"{layer}.weight" in parameters and parameters[f"{layer}.weight"].ndim <= 1
    if kind == "vector":
        return parameters[name].ndim <= 1
    return layer in ("tok", "pos", "type") or last in ("class_token", "pos_embedding")


def layer_scale(name, model, decay):
    """Factor of the learning rate by layer_decay, as timm's param_groups_layer_decay."""
    if decay is None:
        return 1.0
    layers = model["num_layers"]
    tied = model.get("tie_weights", False)
    if name.startswith(("head.", "heads.", "fc.", "pooler.")):
        return 1.0
    top = 0 if tied else 1  # exponent of the last block
    for prefix in ("blocks.", "encoder.layers.encoder_layer_"):
        if name.startswith(prefix):
            return decay ** (top + layers - 1 - int(name[len(prefix):].split(".")[0]))
    if name.startswith(("ln.", "encoder.ln.")):
        return decay ** top
    return decay ** (top + layers)


class Optimizer:
    """torch.optim's optimizers with a group for each parameter; muon uses two of them."""

    def __init__(self, config, parameters, state):
        spec = config["optimizer"]
        self.parameters = parameters
        self.scales = {}
        groups = []
        for name, parameter in parameters.items():
            group = next((g for g in spec.get("param_groups") or [] if matches(g.get("params") or "*", name) and
                          (not g.get("kind") or is_of_kind(g["kind"], name, parameters))), {})
            decay = group.get("weight_decay")
            self.scales[name] = (group.get("lr_scale") or 1.0) * layer_scale(name, config["model"], spec.get("layer_decay"))
            groups.append({"params": [parameter], "lr": 0.0, "weight_decay": spec["weight_decay"] if decay is None else decay,
                           "name": name})
        kind = spec["name"]
        plain = {"foreach": False}
        if kind == "sgd":
            self.parts = [torch.optim.SGD(groups, lr=0.0, momentum=spec["momentum"], nesterov=spec["nesterov"], **plain)]
        elif kind in ("adam", "adamw"):
            create = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
            self.parts = [create(groups, betas=tuple(spec["betas"]), eps=spec["eps"], **plain)]
        elif kind == "rmsprop":
            self.parts = [torch.optim.RMSprop(groups, alpha=spec["alpha"], eps=spec["eps"], momentum=spec["momentum"], **plain)]
        elif kind == "adagrad":
            self.parts = [torch.optim.Adagrad(groups, eps=spec["eps"], **plain)]
        elif kind == "lion":
            self.parts = [Lion(groups, tuple(spec["betas"]))]
        elif kind in ("nadam", "radam"):
            extra = {"momentum_decay": spec["momentum_decay"]} if kind == "nadam" else {}
            create = torch.optim.NAdam if kind == "nadam" else torch.optim.RAdam
            self.parts = [create(groups, betas=tuple(spec["betas"]), eps=spec["eps"],
                                 decoupled_weight_decay=spec["decoupled_weight_decay"], **extra, **plain)]
        elif kind == "adamax":
            self.parts = [torch.optim.Adamax(groups, betas=tuple(spec["betas"]), eps=spec["eps"], **plain)]
        elif kind == "adadelta":
            self.parts = [torch.optim.Adadelta(groups, rho=spec["rho"], eps=spec["eps"], **plain)]
        elif kind == "adafactor":
            self.parts = [torch.optim.Adafactor(groups, beta2_decay=spec["beta2_decay"], eps=tuple(spec["eps"]), d=spec["d"], **plain)]
        elif kind == "lamb":
            self.parts = [Lamb(groups, betas=tuple(spec["betas"]), **{key: spec[key] for key in ("eps", "trust_clip", "always_adapt")})]
        elif kind == "schedule_free_adamw":
            self.parts = [ScheduleFreeAdamW(groups, betas=tuple(spec["betas"]), eps=spec["eps"])]
        elif kind == "lars":
            self.parts = [Lars(groups, **{key: spec[key] for key in ("momentum", "nesterov", "trust_coeff", "eps", "trust_clip", "always_adapt")})]
        else:
            hidden, others = [], []
            for group in groups:
                is_hidden = group["params"][0].ndim == 2 and not any(matches(p, group["name"]) for p in spec["adamw_params"])
                (hidden if is_hidden else others).append(group)
            self.parts = []
            if hidden:
                self.parts.append(torch.optim.Muon(hidden, momentum=spec["momentum"], nesterov=spec["nesterov"],
                                                   adjust_lr_fn="match_rms_adamw"))
            if others:
                self.parts.append(torch.optim.AdamW(others, betas=tuple(spec["betas"]), eps=spec["eps"], **plain))
        adam = {"exp_avg", "exp_avg_sq", "step"}
        self.needed = {"schedule_free_adamw": {"z_offset", "exp_avg_sq", "weight_sum", "lr_max", "step"},
                       "nadam": adam | {"mu_product"}, "radam": adam, "lamb": adam, "adamax": {"exp_avg", "exp_inf", "step"},
                       "adadelta": {"square_avg", "acc_delta", "step"}, "adafactor": {"step"},
                       "lars": {"momentum_buffer"} if spec.get("momentum") else set(), "sgd": {"momentum_buffer"} if spec.get("momentum") else set(), "adam": {"exp_avg", "exp_avg_sq", "step"},
                       "adamw": {"exp_avg", "exp_avg_sq", "step"}, "adagrad": {"sum", "step"}, "lion": {"exp_avg"},
                       "rmsprop": {"square_avg", "step"} | ({"momentum_buffer"} if spec.get("momentum") else set()), "muon": set()}[kind]
        self.load(state)

    def load(self, state):
        for part in self.parts:
            for group in part.param_groups:
                saved = state.get(group["name"])
                parameter = group["params"][0]
                if saved and self.needed and self.needed <= set(saved) and (
                        "exp_avg" not in saved or saved["exp_avg"].shape == parameter.shape):
                    kept = set(saved) if isinstance(part, torch.optim.Adafactor) else self.needed
                    part.state[parameter] = {key: saved[key].clone() for key in kept}
                elif saved and not self.needed and not isinstance(part, (torch.optim.SGD, Lars)):  # muon
                    part.state[parameter] = {key: value.clone() for key, value in saved.items()}

    def state(self):
        """Name -> the state's tensors by their names in optimizer.safetensors."""
        result = {}
        for part in self.parts:
            for group in part.param_groups:
                saved = part.state.get(group["params"][0]) or {}
                result[group["name"]] = {key: value.detach().clone() for key, value in saved.items() if torch.is_tensor(value)}
        return result

    def step(self, rate, perturbation=None):
        """perturbation: muon rounds its input to bf16; a generator changes this by up to its last bit."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate * self.scales[group["name"]]
            if perturbation is None or not isinstance(part, torch.optim.Muon):
                part.step()
                continue
            orthogonalize = _muon._zeropower_via_newtonschulz

            def orthogonalize_differently(grad, *arguments):
                return orthogonalize(grad * (1 + (torch.rand(grad.shape, generator=perturbation) - 0.5) * 2.0 ** -7), *arguments)

            with unittest.mock.patch.object(_muon, "_zeropower_via_newtonschulz", orthogonalize_differently):
                part.step()


class Plateau:
    """PyTorch's ReduceLROnPlateau of the mean training loss of every_steps steps, with the state of the runs before."""

    def __init__(self):
        self.values, self.best, self.bad, self.cooldown, self.reductions = [], math.inf, 0, 0, 0

    def add(self, config, step, loss):
        spec = config["scheduler"]
        if loss is not None:
            self.values.append(loss)
        if step % spec["every_steps"]:
            return
        values, self.values = self.values, []
        if not values:
            return
        rate = learning_rate(config, 10 ** 9, self.reductions)
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
        options = {key: spec[key] for key in ("factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr")}
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        scheduler.best, scheduler.num_bad_epochs, scheduler.cooldown_counter = self.best, self.bad, self.cooldown
        scheduler.step(sum(values) / len(values))
        self.best, self.bad, self.cooldown = scheduler.best, scheduler.num_bad_epochs, scheduler.cooldown_counter
        self.reductions += optimizer.param_groups[0]["lr"] < rate


def learning_rate(config, steps_before, reductions=0):
    """Of the step after `steps_before` steps."""
    spec, rate, total = config["scheduler"], config["optimizer"]["lr"], config["train"]["max_steps"]
    if spec["name"] == "one_cycle":
        return torch_rate(lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(
            optimizer, rate, total_steps=total, pct_start=spec["pct_start"], anneal_strategy=spec["anneal_strategy"], cycle_momentum=False,
            div_factor=spec["div_factor"], final_div_factor=spec["final_div_factor"], three_phase=spec["three_phase"]),
            rate, min(steps_before, total - 1))
    warmup = spec["warmup_steps"]
    if spec["name"] == "reduce_on_plateau":
        for _ in range(reductions):
            lower = max(rate * spec["factor"], spec["min_lr"])
            rate = lower if rate - lower > 1e-8 else rate
    if steps_before < warmup:
        start = spec.get("warmup_start_factor")
        return rate * ((steps_before + 1) / warmup if start is None else start + (1 - start) * steps_before / warmup)
    progress = 1.0 if total <= warmup else min(1.0, (steps_before - warmup) / (total - warmup))
    if spec["name"] in ("constant", "reduce_on_plateau"):
        return rate
    if spec["name"] in ("cosine", "linear"):
        lowest = rate / 10 if spec["min_lr"] is None else spec["min_lr"]
        share = (1 + math.cos(math.pi * progress)) / 2 if spec["name"] == "cosine" else 1 - progress
        return lowest + (rate - lowest) * share
    after = steps_before - warmup
    if spec["name"] == "step":
        return rate * spec["gamma"] ** (after // spec["step_size"])
    if spec["name"] == "multi_step":
        return torch_rate(lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, spec["milestones"], spec["gamma"]), rate, after)
    if spec["name"] == "exponential":
        return rate * spec["gamma"] ** (after / spec["step_size"])
    lowest = rate / 10 if spec["min_lr"] is None else spec["min_lr"]
    if spec["name"] == "polynomial":
        return lowest + (rate - lowest) * (1 - progress) ** spec["power"]
    return torch_rate(lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        optimizer, spec["t_0"], spec["t_mult"], lowest), rate, after)


def ema_decay(train, step):
    """Of the update after `step`, from 1; None: the average stays."""
    if train.get("ema_decay") is None or step % train.get("ema_every_steps", 1):
        return None
    limits = {"num_updates": (1 + step) / (10 + step), "power": 1 - step ** (-2 / 3)}
    return min(train["ema_decay"], limits.get(train.get("ema_warmup"), 1))


def torch_rate(create, rate, steps):
    """That of one of PyTorch's schedulers after `steps` steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    scheduler = create(optimizer)
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
    return optimizer.param_groups[0]["lr"]


# ---- Training -----------------------------------------------------------------------------------------------------------------


class Trainer:
    """Trains stage by stage; a stage is a start of stokerd with its configuration.

    perturbation: None, or a generator that changes the last bits of the initial weights and permutes the rows of each
    micro-batch: another order of the same sums, whose differences show what rounding does to this run.
    """

    def __init__(self, config, datasets, weights, dtype, perturbation=None):
        self.dtype, self.perturbation = dtype, perturbation
        self.model = create_model(config, datasets).to(dtype)
        weights = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
        if perturbation is not None:
            for tensor in weights.values():
                if tensor.is_floating_point():
                    noise = torch.rand(tensor.shape, generator=perturbation, dtype=torch.float64) - 0.5
                    tensor.mul_((1 + noise * 2.0 ** -23).to(dtype))
        self.model.load_state_dict(weights)
        if perturbation is not None and config["train"]["precision"] == "bf16":
            for module in self.model.modules():
                if not list(module.children()) and list(module.parameters()):
                    module.register_forward_hook(self.round_differently)
        self.optimizer_state, self.ema = {}, None
        self.steps = 0
        self.plateau = Plateau()
        self.snapshots = {0: copy.deepcopy((self.weights(), {}, None, 0, self.plateau))}

    def round_differently(self, module, inputs, output):
        """Differences of up to the last bit of bf16."""
        if not torch.is_tensor(output):
            return None
        noise = torch.rand(output.shape, generator=self.perturbation) - 0.5
        return (output * (1 + noise * 2.0 ** -7)).to(output.dtype)

    def snapshot(self, optimizer):
        state = {**self.optimizer_state, **optimizer.state()}
        return copy.deepcopy((self.weights(), state, self.ema, self.steps, self.plateau))

    def restore(self, snapshot):
        weights, self.optimizer_state, self.ema, self.steps, self.plateau = copy.deepcopy(snapshot)
        self.model.load_state_dict(weights)

    def train(self, config, datasets, schedule, ranks=1, kept=()):
        """Trains the steps of `schedule`, each a list of micro-batches: lists of (sample, padded length).

        Returns a record for each step; keeps snapshots of the steps `kept`."""
        task = Task(config, datasets)
        train = config["train"]
        frozen = config["model"].get("freeze") or []
        unfreeze = config["model"].get("unfreeze_at_step")
        lora = config["model"].get("lora")
        trainable = {name for name, parameter in self.model.named_parameters() if not lora or is_adapter(name, lora)}
        optimizer, records = None, []
        previous = None
        if config["scheduler"]["name"] != "reduce_on_plateau":
            self.plateau = Plateau()
        if train.get("ema_decay") is None:
            self.ema = None
        for micro_batches in schedule:
            is_frozen = unfreeze is None or self.steps < unfreeze
            trained = {name: parameter for name, parameter in self.model.named_parameters()
                       if name in trainable and not (is_frozen and any(matches(pattern, name) for pattern in frozen))}
            if optimizer is None or set(trained) != previous:
                if optimizer is not None:
                    self.optimizer_state.update(optimizer.state())
                for name, parameter in self.model.named_parameters():
                    parameter.requires_grad_(name in trained)
                optimizer = Optimizer(config, trained, self.optimizer_state)
                previous = set(trained)
            if train.get("ema_decay") is not None:
                self.ema = self.ema or {}
                for name, parameter in trained.items():
                    self.ema.setdefault(name, parameter.detach().clone())
                self.ema = {name: value for name, value in self.ema.items() if name in trained}
            records.append(self.train_step(config, task, datasets, micro_batches, trained, optimizer, ranks))
            self.steps += 1
            if config["optimizer"]["name"] == "schedule_free_adamw":
                self.ema = {name: optimizer.parts[0].average(parameter) for name, parameter in trained.items()}
            if config["scheduler"]["name"] == "reduce_on_plateau":
                self.plateau.add(config, self.steps, records[-1]["loss"])
            if self.steps in kept:
                self.snapshots[self.steps] = self.snapshot(optimizer)
        if optimizer is not None:
            self.optimizer_state.update(optimizer.state())
            # A frozen parameter has no state: one that is trained again starts without.
            self.optimizer_state = {name: state for name, state in self.optimizer_state.items() if name in trained}
        return records

    def train_step(self, config, task, datasets, micro_batches, trained, optimizer, ranks):
        train, spec = config["train"], config["data"]["train"]
        for parameter in trained.values():
            parameter.grad = None
        total, counts = 0.0, []
        before = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        metric, metric_sum, metric_count = None, 0.0, 0
        chief = len(micro_batches) // ranks
        for number, micro_batch in enumerate(micro_batches):
            if self.perturbation is not None:
                order = torch.randperm(len(micro_batch), generator=self.perturbation).tolist()
                micro_batch = [micro_batch[i] for i in order]
            samples = [datasets["train"].samples[sample] for sample, _ in micro_batch]
            batch = to_batch(samples, normalization(spec, spec), self.dtype, micro_batch[0][1])
            buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()} if number >= chief else None
            self.model.train()
            with torch.autocast("cpu", torch.bfloat16, enabled=train["precision"] == "bf16"):
                logits = self.model(task.inputs(batch))
            loss, part = task.loss(logits, batch, training=True)
            loss.backward()  # without a label that counts it is 0, and so are its gradients, unless the input is not finite
            total += loss.item()
            counts.append(float(part))
            name, value, values = task.training_metric(logits.detach(), batch)
            metric, metric_sum, metric_count = name, metric_sum + value, metric_count + values
            if buffers is not None:  # running statistics are those of rank 0
                for name, buffer in self.model.named_buffers():
                    buffer.copy_(buffers[name])
        rate, count = learning_rate(config, self.steps, self.plateau.reductions), sum(counts)
        record = {"loss": total / count if count else None, "lr": rate, "metric": metric, "metric_sum": metric_sum,
                  "metric_count": metric_count, "grad_norm": None, "skipped": count == 0, "counts": counts}
        gradients = [parameter.grad for parameter in trained.values() if parameter.grad is not None]
        norm = math.sqrt(sum(gradient.double().pow(2).sum().item() for gradient in gradients))
        is_finite = math.isfinite(total) and math.isfinite(norm)
        if count == 0 or not is_finite:  # on_nonfinite: skip_step; such a step changes nothing
            for name, buffer in self.model.named_buffers():
                buffer.copy_(before[name])
            return {**record, "loss": None, "skipped": True, "is_nonfinite": not is_finite}
        for gradient in gradients:
            gradient.div_(count)
        record["grad_norm"] = norm / count
        if train.get("max_grad_value") is not None:
            nn.utils.clip_grad_value_(trained.values(), train["max_grad_value"])
        if train.get("max_grad_norm") is not None:
            nn.utils.clip_grad_norm_(trained.values(), train["max_grad_norm"])
        optimizer.step(rate, self.perturbation)
        decay = ema_decay(train, self.steps + 1)
        if decay is not None:
            for name, parameter in trained.items():
                self.ema[name].mul_(decay).add_(parameter.detach(), alpha=1 - decay)
        return record

    def weights(self):
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def ema_weights(self):
        return {**self.weights(), **{name: tensor.clone() for name, tensor in self.ema.items()}}


# ---- Evaluation ---------------------------------------------------------------------------------------------------------------


def evaluated_indices(count, spec):
    if spec.get("max_samples") is None or spec["max_samples"] >= count:
        return list(range(count))
    if spec.get("subset") == "first":
        return list(range(spec["max_samples"]))
    return [i * count // spec["max_samples"] for i in range(spec["max_samples"])]


@torch.no_grad()
def evaluate(config, datasets, name, weights, dtype=torch.float64):
    """Metrics of a dataset, and whether a prediction is so close to a tie that rounding decides it."""
    task = Task(config, datasets)
    model = create_model(config, datasets).to(dtype)
    model.load_state_dict({key: value.to(dtype) if value.is_floating_point() else value for key, value in weights.items()})
    model.eval()
    data = datasets[name]
    samples = [data.samples[i] for i in evaluated_indices(len(data.samples), config["eval"])]
    batch = to_batch(samples, normalization(config["data"][name], config["data"]["train"]), dtype)
    logits = model(task.inputs(batch))
    total, count = task.loss(logits, batch, training=False)
    result = {"loss": total.item() / count if count else None, "num_samples": len(samples)}
    score = {"classification": score_classes, "sequence_labeling": score_classes, "language_modeling": score_tokens,
             "binary_classification": score_binary, "regression": score_regression, "multilabel_classification": score_multilabel,
             "ctc": score_ctc}[task.name]
    is_close, extra = score(result, task, logits.double(), batch, config, data)
    return result, is_close, extra


def close_distance(logits):
    """Of two that rounding can exchange."""
    return 1e-4 * max(1e-3, np.abs(np.asarray(logits)).max())


def has_close_maximum(logits):
    if logits.shape[-1] < 2:
        return False
    top = logits.topk(2, -1).values
    return bool(((top[..., 0] - top[..., 1]) < close_distance(logits)).any())


def has_close_zero(logits):
    return bool((logits.abs() < close_distance(logits)).any())


def has_close_scores(scores):
    """Of the samples, for each target."""
    return bool((np.diff(np.sort(scores, axis=0), axis=0) < close_distance(scores)).any())


def score_classes(result, task, logits, batch, config, data):
    from sklearn import metrics

    labels = task.labels(batch).flatten()
    logits = logits.flatten(0, -2)[labels != IGNORED]
    labels = labels[labels != IGNORED]
    predicted = logits.argmax(-1)
    result["accuracy"] = metrics.accuracy_score(labels, predicted)
    k = config["eval"].get("top_k")
    is_close = has_close_maximum(logits)
    if k and logits.shape[-1] > k:
        result[f"top{k}_accuracy"] = metrics.top_k_accuracy_score(labels, logits, k=k, labels=range(logits.shape[-1]))
        ranked = logits.sort(-1, descending=True).values
        is_close = is_close or bool(((ranked[:, k - 1] - ranked[:, k]) < close_distance(logits)).any())
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(labels, predicted, average="macro", zero_division=0)
    result.update(macro_precision=precision, macro_recall=recall, macro_f1=f1)
    result["mean_iou"] = metrics.jaccard_score(labels, predicted, average="macro", zero_division=0)
    confidence = torch.softmax(logits, -1).max(-1).values.double().numpy()
    bins, hits = np.floor(confidence * 15), (predicted == labels).double().numpy()
    result["calibration_error"] = sum(abs((hits - confidence)[bins == i].sum()) for i in set(bins)) / len(labels)
    is_close = is_close or bool((abs(confidence * 15 - np.round(confidence * 15)) < 1e-3).any())
    matrix = metrics.confusion_matrix(labels, predicted, labels=range(logits.shape[-1]))
    return is_close, {"confusion_matrix": matrix.tolist()}


def score_tokens(result, task, logits, batch, config, data):
    labels = task.labels(batch)
    counted = labels != IGNORED
    if result["loss"] is None:
        return True, {}
    result["bits_per_byte" if data.bytes_as_tokens else "bits_per_token"] = result["loss"] / math.log(2)
    result["perplexity"] = math.exp(result["loss"])
    hits = logits.argmax(-1) == labels
    result["accuracy"] = hits[counted].double().mean().item()
    if "labels" in batch:
        runs, correct = 0, 0
        for hit, count in zip(hits.tolist(), counted.tolist()):
            for i in range(len(hit)):
                if count[i] and (i == 0 or not count[i - 1]):
                    end = i
                    while end < len(hit) and count[end]:
                        end += 1
                    runs, correct = runs + 1, correct + all(hit[i:end])
        result["exact_match"] = correct / runs if runs else None
    return has_close_maximum(logits[counted]), {}


def score_binary(result, task, logits, batch, config, data):
    from sklearn import metrics

    labels, scores = batch["label"].numpy(), logits.flatten().numpy()
    predicted = (scores > 0).astype(int)
    result["accuracy"] = metrics.accuracy_score(labels, predicted)
    result["precision"] = metrics.precision_score(labels, predicted, zero_division=0)
    result["recall"] = metrics.recall_score(labels, predicted, zero_division=0)
    result["f1"] = metrics.f1_score(labels, predicted, zero_division=0)
    result["auroc"] = metrics.roc_auc_score(labels, scores) if len(set(labels.tolist())) == 2 else None
    result["average_precision"] = metrics.average_precision_score(labels, scores) if labels.any() else 0.0
    return has_close_zero(logits) or has_close_scores(scores), {"confusion_matrix": metrics.confusion_matrix(labels, predicted, labels=[0, 1]).tolist()}


def score_regression(result, task, logits, batch, config, data):
    from sklearn import metrics

    target, logits = batch["target"].double().numpy(), task.predictions(logits)
    result["mse"] = metrics.mean_squared_error(target, logits.numpy())
    result["rmse"] = result["mse"] ** 0.5
    result["mae"] = metrics.mean_absolute_error(target, logits.numpy())
    result["r2"] = metrics.r2_score(target, logits.numpy()) if len(target) > 1 else None
    return False, {}


def score_multilabel(result, task, logits, batch, config, data):
    from sklearn import metrics

    target, scores = (batch["target"] > 0.5).long().numpy(), logits.numpy()
    predicted = (scores > 0).astype(int)
    result["exact_match"] = metrics.accuracy_score(target, predicted)
    result["micro_f1"] = metrics.f1_score(target.ravel(), predicted.ravel(), zero_division=0)
    occurring = [i for i in range(target.shape[1]) if target[:, i].any() or predicted[:, i].any()]
    result["macro_f1"] = float(np.mean([metrics.f1_score(target[:, i], predicted[:, i], zero_division=0) for i in occurring])) if occurring else 0.0
    positive = [i for i in range(target.shape[1]) if target[:, i].any()]
    result["mean_average_precision"] = float(np.mean([metrics.average_precision_score(target[:, i], scores[:, i]) for i in positive])) if positive else None
    return has_close_zero(logits) or has_close_scores(scores), {}


def distance(a, b):
    """Levenshtein."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


def score_ctc(result, task, logits, batch, config, data):
    steps = batch["length"] if "length" in batch else torch.full((len(logits),), logits.shape[1])
    errors, total, exact = 0, 0, 0
    for output, length, labels in zip(logits, steps.tolist(), batch["labels"].tolist()):
        best = output[:length].argmax(-1).tolist()
        decoded = [label for i, label in enumerate(best) if label != 0 and (i == 0 or best[i - 1] != label)]
        labels = [label for label in labels if label != IGNORED]
        errors, total, exact = errors + distance(decoded, labels), total + len(labels), exact + (decoded == labels)
    result["label_error_rate"] = errors / total if total else None
    result["exact_match"] = exact / len(logits)
    return has_close_maximum(logits), {}


# ---- Best checkpoint and early stopping -----------------------------------------------------------------------------------------


def is_improvement(value, best, larger, delta=0.0):
    if value is None:
        return False
    return best is None or (value > best + delta if larger else value < best - delta)


def best_of(values, metric):
    """(step, value) of the best of [(step, value)]; of equal values the earlier one."""
    best = None
    for step, value in values:
        if is_improvement(value, best and best[1], is_better_larger(metric)):
            best = (step, value)
    return best


def early_stop(values, metric, spec):
    """The last step whose evaluation ends a run, or None: a run that has ended before is evaluated to its end."""
    larger = is_better_larger(metric)
    best, best_step, waited, result = None, None, 0, None
    for step, value in values:
        if is_improvement(value, best, larger, spec.get("min_delta") or 0.0):
            best, best_step, waited = value, step, 0
        else:
            waited += 1
        threshold = spec.get("stopping_threshold")
        is_reached = threshold is not None and value is not None and (value >= threshold if larger else value <= threshold)
        is_patient = spec.get("patience") is None or waited < spec["patience"]
        is_recent = spec.get("patience_steps") is None or best_step is None or step - best_step < spec["patience_steps"]
        if is_reached or not is_patient or not is_recent:
            result = step
    return result


# ---- Order of samples -----------------------------------------------------------------------------------------------------------


def order_errors(rows, size, shuffle, last_batch, repeat=1):
    """Errors of the order: rows are (epoch, sample) from the first ticket on, of one dataset without buckets.

    Each complete epoch is a permutation, and two epochs differ if there is a shuffle."""
    errors, epochs = [], {}
    for epoch, sample in rows:
        epochs.setdefault(epoch, []).append(sample)
    numbers = sorted(epochs)
    if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
        errors.append(f"epochs {numbers} are not consecutive")
    complete = []
    for epoch in numbers[:-1]:
        samples = epochs[epoch]
        counts = np.bincount(samples, minlength=size)
        if len(counts) > size:
            errors.append(f"epoch {epoch} has a sample above {size - 1}")
        elif last_batch == "carry_over" and not (counts == repeat).all():
            errors.append(f"epoch {epoch} is no permutation: {samples}")
        elif last_batch == "drop" and (counts > repeat).any():
            errors.append(f"epoch {epoch} has a sample more than once: {samples}")
        elif last_batch == "pad" and not (counts >= repeat).all():
            errors.append(f"epoch {epoch} lacks samples: {samples}")
        complete.append(samples)
    for first, second in zip(complete, complete[1:]):
        if shuffle == "none" and last_batch == "carry_over" and first != second:
            errors.append("epochs without shuffle differ")
        if shuffle == "full" and size * repeat >= 8 and first == second:
            errors.append("two epochs have the same order")
    return errors


def mixture_errors(rows, sizes, shares):
    """Errors of the order of a mixture: rows are (dataset, epoch of the dataset, sample); sizes and shares by dataset.

    Each block has exactly the shares, and all blocks together the first samples of each dataset's epochs."""
    errors, epochs = [], {}
    total = sum(shares.values())
    length = next(n for n in range(1, 10001) if all(abs(share / total * n - round(share / total * n)) < 1e-9 for share in shares.values()))
    rows = rows[:len(rows) // length * length]
    for start in range(0, len(rows), length):
        block = [dataset for dataset, _, _ in rows[start:start + length]]
        if any(block.count(dataset) != round(share / total * length) for dataset, share in shares.items()):
            errors.append(f"positions {start} to {start + length - 1} do not have the shares: {block}")
    for dataset, epoch, sample in rows:
        epochs.setdefault(dataset, {}).setdefault(epoch, []).append(sample)
    for dataset, by_epoch in epochs.items():
        last = max(by_epoch)
        for epoch, samples in by_epoch.items():
            if len(set(samples)) != len(samples) or epoch < last and len(samples) != sizes[dataset]:
                errors.append(f"epoch {epoch} of {dataset} is no permutation: {samples}")
    return errors
