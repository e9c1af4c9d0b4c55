"""Random valid combinations of settings with tiny data, for compare.py.

make_case(seed, folder) writes the data files of the case into the folder and returns its stages: starts of stokerd, each with a
configuration, flags and a number of ranks. The same seed gives the same case. Paths are relative to the folder.
"""
import copy
import itertools
import json
import pathlib
import random
import struct
import zlib

import numpy as np

WORDS = ["ant", "bee", "Cat", "dog", "elk", "fox", "gnu", "Hen"]


class Case:
    def __init__(self, seed, folder, families=None):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.folder = pathlib.Path(folder)
        self.has_batch_norm = False
        self.sections = {"run": {"seed": self.random.randint(0, 1 << 40)}}
        kinds = dict(FAMILIES)
        self.family = self.choose([name for name in (families or kinds) for _ in range(1 if families else kinds[name][1])])
        kinds[self.family][0](self)

    def choose(self, values):
        return self.random.choice(list(values))

    def chance(self, probability):
        return self.random.random() < probability

    def between(self, low, high):
        return self.random.randint(low, high)

    def uniform(self, low, high):
        """With few digits, so that a configuration can be read."""
        return float(f"{self.random.uniform(low, high):.3g}")

    def log_uniform(self, low, high):
        return float(f"{low * (high / low) ** self.random.random():.3g}")

    def vectors(self, count, size):
        return np.round(self.numbers.normal(size=(count, size)), 3).astype(np.float64)

    def labels(self, count, classes):
        """Every class occurs, the first ones first."""
        return [i if i < classes else int(self.numbers.integers(classes)) for i in range(count)]


# ---- Families: data, model and task -------------------------------------------------------------------------------------------


def vector_task(case):
    """Task over vectors, number of classes (or None), number of targets."""
    task = case.choose(["classification", "classification", "binary_classification", "regression", "multilabel_classification"])
    if task == "classification":
        return task, case.between(2, 7), 0
    if task == "binary_classification":
        return task, 2, 0
    return task, None, case.between(1, 4)


def task_section(case, task, classes, targets, count_labels=True):
    section = {"name": task}
    if task in ("classification", "sequence_labeling", "binary_classification", "multilabel_classification") and case.chance(0.25):
        section.update(loss="focal", gamma=case.choose([0.5, 1, 2]))
        if task.startswith(("binary", "multilabel")) and case.chance(0.5):
            section["alpha"] = 0.25
    elif task == "multilabel_classification" and case.chance(0.25):
        return {**section, "loss": "dice", "smooth": case.choose([1e-5, 1])}
    if task == "regression":
        section.update(case.choose([{}, {"loss": "l1"}, {"loss": "huber", "delta": 0.3}, {"loss": "smooth_l1", "beta": 0.4},
                                    {"loss": "quantile", "quantile": 0.8}]))
        if getattr(case, "has_distributions", False):
            section = {"name": task, "loss": "kl_div"}
    if task in ("classification", "sequence_labeling"):
        if "loss" not in section and case.chance(0.35):
            section["label_smoothing"] = case.uniform(0.01, 0.5)
        if case.chance(0.4):
            section["class_weights"] = [case.choose([0, case.uniform(0.2, 4), case.uniform(0.2, 4)]) if not case.has_batch_norm
                                        else case.uniform(0.2, 4) for _ in range(classes)]
            if not any(section["class_weights"]):
                section["class_weights"][0] = 1.5
            if task == "classification" and case.chance(0.3) and count_labels:
                section["class_weights"] = "balanced"
    if task == "binary_classification" and case.chance(0.5):
        section["pos_weight"] = case.uniform(0.2, 5)
    if task == "multilabel_classification" and case.chance(0.5):
        section["pos_weight"] = [case.uniform(0.2, 5) for _ in range(targets)]
    return section


def language_task(case):
    return {"name": "language_modeling", **({"label_smoothing": 0.1} if case.chance(0.2) else {})}


def target_values(case, task, count, targets):
    if task == "multilabel_classification":
        return case.numbers.integers(0, 2, size=(count, targets)).astype(float)
    if not hasattr(case, "has_distributions"):
        case.has_distributions = task == "regression" and targets > 1 and case.chance(0.2)
    if case.has_distributions:
        return np.round(case.numbers.dirichlet(np.ones(targets), size=count), 3)
    return case.vectors(count, targets)


def dense_layers(case):
    layers = []
    for _ in range(case.between(0, 2)):
        layers.append({"linear": {"out_features": case.between(2, 8), "bias": case.chance(0.8)}})
        if case.chance(0.4):
            norm = case.choose(["batch_norm", "layer_norm"])
            case.has_batch_norm = case.has_batch_norm or norm == "batch_norm"
            layers.append(norm)
        layers.append(case.choose(["relu", "gelu", "tanh", "sigmoid"]))
        if case.chance(0.25):
            width = case.between(2, 6)
            layers.append({"residual": {"body": [{"linear": {"out_features": width}}, "tanh"],
                                        "shortcut": [{"linear": {"out_features": width, "bias": False}}]}})
    return layers + ["linear"]


def vector_model(case):
    if case.chance(0.5):
        return {"name": "mlp", "hidden_sizes": [case.between(2, 9) for _ in range(case.between(0, 2))]}
    return {"name": "sequential", "layers": dense_layers(case)}


def vectors(case):
    """csv, jsonl and numpy with vectors."""
    task, classes, targets = vector_task(case)
    features = case.between(1, 6)
    kind = case.choose(["csv", "csv", "jsonl", "numpy"])
    model = vector_model(case)
    uses_names = classes is not None and kind != "numpy" and case.chance(0.4)
    data = {}
    least = max(8, classes or 0)
    parts = case.random.sample(["one", "two", "a"], case.between(2, 3)) if case.chance(0.2) else ["train"]
    for name in parts + ["val"]:
        count = case.between(max(4, classes or 0), 30) if name == "val" else case.between(least, 40 // len(parts) + least)
        inputs = case.vectors(count, features)
        labels = case.labels(count, classes) if classes else None
        values = target_values(case, task, count, targets) if targets else None
        data[name] = {"csv": write_csv, "jsonl": write_jsonl_vectors, "numpy": write_numpy_vectors}[kind](
            case, name, inputs, labels, values, uses_names)
    if len(parts) > 1:
        shares = case.choose([[1, 1, 2], [0.7, 0.3, 1], [3, 1, 1]])
        data["train"] = {"concat": parts} if case.chance(0.5) else {"mixture": dict(zip(parts, shares))}
    case.sections.update(data=data, model=model, task=task_section(case, task, classes, targets))
    if len(parts) > 1:
        return
    # Parts of the data: the labels of the rest need not have all classes.
    if case.chance(0.3) and (targets or uses_names) and not classes:
        spec = data["train"]
        spec["split"] = case.choose([[0.0, 0.8], [0.25, 1.0], [0.1, 0.9]])
        if case.chance(0.5):
            spec["skip_samples"] = case.between(0, 2)
    if case.chance(0.15) and not classes:
        data["train"]["max_samples"] = case.between(5, 30)


def write_csv(case, name, inputs, labels, values, uses_names):
    columns = [f"x{i}" for i in range(inputs.shape[1])]
    rows = [[repr(float(x)) for x in row] for row in inputs]
    spec = {"format": "csv", "path": f"{name}.csv"}
    if labels is not None:
        columns.append("class")
        rows = [row + [WORDS[label] if uses_names else str(label)] for row, label in zip(rows, labels)]
        spec["fields"] = {"label": "class"}
    else:
        names = [f"y{i}" for i in range(values.shape[1])]
        columns += names
        rows = [row + [repr(float(y)) for y in value] for row, value in zip(rows, values)]
        spec["fields"] = {"target": names}
    delimiter = spec["delimiter"] = case.choose([",", ";", "\t"])
    lines = [delimiter.join(row) for row in [columns] + rows]
    case.has_header = getattr(case, "has_header", case.chance(0.8))
    if not case.has_header:
        lines, spec["column_names"] = lines[1:], columns
    if case.chance(0.3):
        spec["fields"]["input"] = [f"x{i}" for i in range(inputs.shape[1])]
    (case.folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return spec


def write_jsonl_vectors(case, name, inputs, labels, values, uses_names):
    lines = []
    for i, row in enumerate(inputs):
        record = {"meta": {"x": [float(x) for x in row]}}
        if labels is not None:
            record["y"] = WORDS[labels[i]] if uses_names else labels[i]
        else:
            record["y"] = [float(y) for y in values[i]]
        lines.append(json.dumps(record))
    (case.folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    spec = {"format": "jsonl", "path": f"{name}.jsonl", "input_shape": [inputs.shape[1]],
            "fields": {"input": "meta.x", "label" if labels is not None else "target": "y"}}
    if labels is None:
        spec["num_targets"] = values.shape[1]
    return spec


def write_numpy_vectors(case, name, inputs, labels, values, uses_names):
    if not hasattr(case, "array_type"):
        case.array_type = case.choose([np.float32, np.float64, np.float16])
        case.label_type = case.choose([np.int64, np.int32, np.uint8])
        case.is_archive = case.chance(0.4)
    inputs = inputs.astype(case.array_type)
    if name != "val" and case.chance(0.15):
        row = case.between(0, len(inputs) - 1)
        if labels is None and not np.isin(values, (0, 1)).all():
            values = np.array(values, np.float64)
            values[row, 0] = 3e38  # finite, but not its squared error
            case.has_overflow = True
    labels = np.array(labels, case.label_type) if labels is not None else values.astype(np.float32)
    if case.is_archive:
        (np.savez_compressed if case.chance(0.3) else np.savez)(case.folder / f"{name}.npz", a=inputs, b=labels)
        is_label = labels.dtype != np.float32
        return {"format": "numpy", "path": f"{name}.npz", "fields": {"input": "a", "label" if is_label else "target": "b"}}
    np.save(case.folder / f"{name}_x.npy", inputs)
    np.save(case.folder / f"{name}_y.npy", labels)
    return {"format": "numpy", "path": f"{name}_x.npy", "labels_path": f"{name}_y.npy"}


def png(pixels):
    """A PNG file of uint8 [height, width, 3]."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))


def image_layers(case):
    layers = [{"conv2d": {"out_channels": case.between(2, 4), "kernel_size": 3, "padding": 1, "stride": case.choose([1, 2]),
                          "bias": case.chance(0.7)}}]
    if case.chance(0.5):
        case.has_batch_norm = True
        layers.append("batch_norm")
    layers.append(case.choose(["relu", "gelu", "tanh"]))
    if case.chance(0.3):
        channels = case.between(2, 4)
        layers.append({"residual": {
            "body": [{"conv2d": {"out_channels": channels, "kernel_size": 3, "padding": 1}}, "relu",
                     {"conv2d": {"out_channels": channels, "kernel_size": 1}}],
            "shortcut": [{"conv2d": {"out_channels": channels, "kernel_size": 1, "bias": False}}]}})
    layers.append(case.choose([{"max_pool2d": {"kernel_size": 2}}, {"avg_pool2d": {"kernel_size": 2}}, "adaptive_avg_pool2d",
                               {"adaptive_avg_pool2d": {"output_size": 2}}]))
    return layers + ["flatten", "linear"]


def images(case):
    """numpy, idx, image_folder and cifar10 with uint8 images."""
    kind = case.choose(["numpy", "numpy", "idx", "image_folder", "cifar10"])
    channels = 1 if kind == "idx" else 3 if kind != "numpy" else case.choose([1, 3])
    size = 32 if kind == "cifar10" else case.choose([8, 9, 12, 14])
    task = "classification" if kind != "numpy" else case.choose(["classification", "classification", "binary_classification", "regression"])
    classes = {"classification": case.between(2, 6), "binary_classification": 2, "regression": None}[task]
    data = {}
    normalize = None
    if case.chance(0.6):
        count = case.choose([1, channels])
        normalize = {"normalize": {"mean": [case.uniform(0.3, 0.6) for _ in range(count)], "std": [case.uniform(0.2, 0.5) for _ in range(count)]}}
    for name, count in (("train", case.between(8, 20)), ("val", case.between(6, 16))):
        pixels = case.numbers.integers(0, 256, size=(count, size, size, channels), dtype=np.uint8)
        labels = case.labels(count, classes) if classes else None
        if kind == "image_folder":
            for i, (image, label) in enumerate(zip(pixels, labels)):
                folder = case.folder / name / f"c{label}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{i:03}.png").write_bytes(png(image))
            spec = {"format": "image_folder", "path": name, "transforms": [{"resize": {"size": [size, size]}}]}
        elif kind == "idx":
            (case.folder / f"{name}.images").write_bytes(struct.pack(">IIII", 2051, count, size, size) + pixels.tobytes())
            (case.folder / f"{name}.labels").write_bytes(struct.pack(">II", 2049, count) + bytes(labels))
            spec = {"format": "idx", "path": f"{name}.images", "labels_path": f"{name}.labels", "transforms": []}
        elif kind == "cifar10":
            content = b"".join(bytes([label]) + image.transpose(2, 0, 1).tobytes() for image, label in zip(pixels, labels))
            (case.folder / f"{name}.bin").write_bytes(content)
            spec = {"format": "cifar10", "path": f"{name}.bin", "transforms": []}
            classes = 10
        else:
            if name == "train":
                case.channels_first = case.chance(0.5)
            array = pixels.transpose(0, 3, 1, 2) if case.channels_first else pixels
            np.save(case.folder / f"{name}_x.npy", np.ascontiguousarray(array))
            values = np.array(labels, np.int64) if classes else case.vectors(count, 2).astype(np.float32)
            np.save(case.folder / f"{name}_y.npy", values)
            spec = {"format": "numpy", "path": f"{name}_x.npy", "labels_path": f"{name}_y.npy", "transforms": []}
        if normalize and (name == "train" or case.chance(0.5)):
            spec["transforms"].append(normalize)
        data[name] = spec
    models = ["mlp", "sequential", "sequential", "resnet8"] + (["lenet5"] if size >= 12 else []) + (["vit"] if size % 4 == 0 else [])
    model = case.choose(models)
    case.has_batch_norm = model == "resnet8"
    section = {"name": model}
    if model == "mlp":
        section["hidden_sizes"] = [case.between(2, 6)]
    elif model == "sequential":
        section["layers"] = image_layers(case)
    elif model == "vit":
        section.update(patch_size=size // 2, num_layers=case.between(1, 2), num_heads=2, hidden_dim=case.choose([4, 8]), mlp_dim=8)
    case.sections.update(data=data, model=section, task=task_section(case, task, classes, 2))


def language_model(case, vocabulary, block, packing=False):
    names = ["gpt", "gpt2", "llama"] + ([] if packing else ["lstm_lm", "sequential"])
    name = case.choose(names)
    width = case.choose([4, 8])
    model = {"name": name}
    if name in ("gpt", "gpt2", "llama"):
        model.update(num_layers=case.between(1, 2), num_heads=2, embed_dim=width, context_length=block + case.choose([0, 0, 3]),
                     vocab_size=vocabulary)
        if case.chance(0.2):
            model["activation_checkpointing"] = True
    if name == "gpt2":
        model.update(dropout=0, mlp_dim=case.choose([None, 6]), tie_weights=case.chance(0.5), layer_norm_eps=case.choose([1e-5, 1e-3]))
    if name == "llama":
        model.update(num_key_value_heads=case.choose([None, 1, 2]), head_dim=case.choose([None, 4, 6]) if width == 8 else 4,
                     mlp_dim=case.choose([6, 9]), tie_weights=case.chance(0.3), rope_theta=case.choose([10000, 500]),
                     qkv_bias=case.chance(0.3), proj_bias=case.chance(0.3), mlp_bias=case.chance(0.3), qk_norm=case.chance(0.3))
        if case.chance(0.3):
            model["rope_scaling"] = case.choose([{"rope_type": "linear", "factor": 2},
                                                 {"rope_type": "llama3", "factor": 4, "original_max_position_embeddings": 16}])
    if name == "lstm_lm":
        model.update(num_layers=case.between(1, 2), hidden_size=width, context_length=block, vocab_size=vocabulary,
                     tie_weights=case.chance(0.4))
    if name == "sequential":
        layers = [{"embedding": {"num_embeddings": vocabulary, "embedding_dim": width}}]
        if case.chance(0.6):
            layers.append({"lstm": {"hidden_size": case.between(3, 6)}})
        if case.chance(0.4):
            layers.append("layer_norm")
        layers += ["tanh", {"linear": {"out_features": vocabulary}}]
        model.update(layers=layers, num_classes=vocabulary)
    return model


def token_blocks(case):
    """text and tokens, cut into blocks."""
    kind = case.choose(["text", "tokens", "tokens"])
    block = case.between(3, 8)
    vocabulary = 256 if kind == "text" else case.between(8, 24)
    model = language_model(case, vocabulary, block)
    data = {}
    for name, count in (("train", case.between(8, 24) * block + case.between(1, block)), ("val", case.between(3, 12) * block + 2)):
        if kind == "text":
            text = "".join(case.choose("abcdef \n") for _ in range(count))
            (case.folder / f"{name}.txt").write_text(text)
            spec = {"format": "text", "path": f"{name}.txt"}
        else:
            if name == "train":
                case.token_type = case.choose(["uint16", "uint32"])
            tokens = case.numbers.integers(0, vocabulary, size=count).astype(case.token_type)
            (case.folder / f"{name}.bin").write_bytes(tokens.tobytes())
            spec = {"format": "tokens", "path": f"{name}.bin", "dtype": case.token_type}
        spec["sequence"] = {"block_size": block}
        data[name] = spec
    if case.chance(0.25):
        data["train"]["split"] = case.choose([[0.0, 0.75], [0.25, 1.0]])
    case.sections.update(data=data, model=model, task=language_task(case))


def token_sequences(case):
    """jsonl with texts or token ids: padding, packing, labels of which many are ignored."""
    longest = case.between(5, 10)
    packing = case.chance(0.35)
    kind = case.choose(["text", "input_ids"] if packing else ["text", "input_ids", "labels"])
    vocabulary = 256 if kind == "text" else case.between(8, 24)
    data = {}
    overflow = case.choose(["error", "truncate", "drop"])
    most = longest - (1 if kind == "text" else 0) if overflow == "error" else longest + 3
    for name, count in (("train", case.between(10, 30)), ("val", case.between(5, 15))):
        lines = []
        for i in range(count):
            length = case.between(1 if not packing else 2, most) if i else min(3, longest - 1)
            if kind == "text":
                lines.append({"t": "".join(case.choose("abcdef ") for _ in range(length))})
            else:
                record = {"ids": [int(token) for token in case.numbers.integers(0, vocabulary, size=length)]}
                if kind == "labels":
                    learned = case.random.random() * 0.7
                    record["tags"] = [token if case.chance(learned) else -100 for token in record["ids"]]
                    if i == 0:
                        record["tags"] = list(record["ids"])
                lines.append(record)
        (case.folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        fields = {"text": "t"} if kind == "text" else {"input_ids": "ids"}
        if kind == "labels":
            fields["labels"] = "tags"
        data[name] = {"format": "jsonl", "path": f"{name}.jsonl", "fields": fields,
                      "sequence": {"max_length": longest, "on_overflow": overflow}}
        if packing and name == "train" or packing and case.chance(0.5):
            data[name]["sequence"]["packing"] = True
    case.has_lengths = not packing
    case.longest = longest
    model = language_model(case, vocabulary, longest, packing)
    case.sections.update(data=data, model=model, task=language_task(case))


def labeled_sequences(case):
    """Sequences of tokens or vectors with a label, labels per step, or labels for CTC: bert and blstm."""
    is_tokens = case.chance(0.6)
    task = case.choose(["classification", "binary_classification", "regression", "multilabel_classification", "sequence_labeling",
                        "sequence_labeling", "ctc"])
    uses_numpy = not is_tokens and case.chance(0.4) and task != "multilabel_classification"
    longest = case.between(5, 9)
    vocabulary, features = case.between(6, 20), case.between(1, 3)
    classes = {"binary_classification": 2, "regression": None, "multilabel_classification": None}.get(task, case.between(3, 5))
    targets = 0 if classes else case.between(1, 3)
    data = {}
    for name, count in (("train", case.between(10, 24)), ("val", case.between(6, 14))):
        lengths = [case.between(2, longest) for _ in range(count)]
        if task == "ctc":
            lengths = [case.between(4, longest) if longest > 4 else longest for _ in range(count)]
        records = []
        singles = case.labels(count, classes) if classes else None
        for i, length in enumerate(lengths):
            record = {}
            if is_tokens:
                record["x"] = [int(token) for token in case.numbers.integers(0, vocabulary, size=length)]
            else:
                record["x"] = case.vectors(length, features).tolist()
            if task == "sequence_labeling":
                ignored = case.random.random() * 0.8
                record["y"] = [-100 if case.chance(ignored) else int(case.numbers.integers(classes)) for _ in range(length)]
                if i == 0:
                    record["y"][0] = classes - 1
            elif task == "ctc":
                record["y"] = [int(case.numbers.integers(1, classes)) for _ in range(case.between(1, 2))]
                if i == 0:
                    record["y"][0] = classes - 1
            elif classes:
                record["y"] = singles[i]
            else:
                record["y"] = target_values(case, task, 1, targets)[0].tolist()
            records.append(record)
        role = {"sequence_labeling": "labels", "ctc": "labels"}.get(task, "label" if classes else "target")
        sequence = {"max_length": longest}
        if uses_numpy:
            data[name] = write_numpy_sequences(case, name, records, lengths, longest, task, role)
            data[name]["sequence"] = sequence
            continue
        if task == "ctc":
            sequence["max_label_length"] = 3
        (case.folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        spec = {"format": "jsonl", "path": f"{name}.jsonl", "fields": {"input_ids" if is_tokens else "input": "x", role: "y"},
                "sequence": sequence}
        if not is_tokens:
            spec["input_shape"] = [features]
        if role == "target":
            spec["num_targets"] = targets
        data[name] = spec
    if is_tokens and case.chance(0.6):
        model = {"name": "bert", "num_layers": case.between(1, 2), "num_heads": 2, "embed_dim": case.choose([4, 8]), "dropout": 0,
                 "attention_dropout": 0, "mlp_dim": case.choose([None, 6]), "context_length": longest + case.choose([0, 2]),
                 "vocab_size": vocabulary, "num_token_types": case.between(2, 3), "sep_token": case.choose([None, 1]),
                 "layer_norm_eps": case.choose([1e-12, 1e-5])}
        model["pooling"] = "none" if task in ("sequence_labeling", "ctc") else case.choose(["pooler", "mean"])
    else:
        model = {"name": "blstm", "num_layers": case.between(1, 2), "hidden_size": case.between(2, 5)}
        if is_tokens:
            model.update(vocab_size=vocabulary, embedding_dim=case.choose([None, 3]))
        if task not in ("sequence_labeling", "ctc"):
            model["pooling"] = case.choose(["last", "mean"])
        if case.chance(0.3):
            model["forget_bias"] = 1
    case.has_lengths = True
    case.longest = longest
    section = task_section(case, task, classes, targets, count_labels=False) if task != "ctc" else {"name": "ctc", "zero_infinity": case.chance(0.5)}
    case.sections.update(data=data, model=model, task=section)


def write_numpy_sequences(case, name, records, lengths, longest, task, role):
    features = len(records[0]["x"][0])
    steps = np.zeros((len(records), longest, features), np.float32)
    labels = []
    width = {"sequence_labeling": longest, "ctc": 3}.get(task)
    for i, record in enumerate(records):
        steps[i] = 7  # behind the end of a sequence, where values are not used
        steps[i, :lengths[i]] = record["x"]
        labels.append(record["y"] + [-100] * (width - len(record["y"])) if width else record["y"])
    labels = np.array(labels, np.float32 if role == "target" else np.int64)
    np.save(case.folder / f"{name}_x.npy", steps)
    np.save(case.folder / f"{name}_y.npy", labels)
    np.save(case.folder / f"{name}_n.npy", np.array(lengths, np.int64))
    return {"format": "numpy", "path": f"{name}_x.npy", "labels_path": f"{name}_y.npy", "lengths_path": f"{name}_n.npy"}


FAMILIES = {"vectors": (vectors, 5), "images": (images, 3), "token_blocks": (token_blocks, 3), "token_sequences": (token_sequences, 3),
            "labeled_sequences": (labeled_sequences, 4)}


# ---- Training settings ----------------------------------------------------------------------------------------------------------


def optimizer_section(case, names):
    name = case.choose(["sgd", "sgd", "adam", "adamw", "adamw", "rmsprop", "adagrad", "lion", "muon", "nadam", "radam", "adamax", "adadelta",
                        "adafactor", "lamb", "lars", "schedule_free_adamw"])
    spec = {"name": name}
    rates = {"sgd": (0.01, 0.3), "adam": (1e-3, 0.03), "adamw": (1e-3, 0.03), "rmsprop": (1e-3, 0.02), "adagrad": (0.01, 0.1),
             "lion": (1e-4, 3e-3), "muon": (1e-3, 0.03), "nadam": (1e-3, 0.02), "radam": (1e-3, 0.02), "adamax": (1e-3, 0.02),
             "adadelta": (0.1, 1), "adafactor": (1e-3, 0.03), "lamb": (1e-3, 0.02), "lars": (0.01, 0.3),
             "schedule_free_adamw": (1e-3, 0.03)}
    spec["lr"] = case.log_uniform(*rates[name])
    if name in ("adam", "adamw", "lion", "muon", "nadam", "radam", "adamax", "lamb", "schedule_free_adamw") and case.chance(0.5):
        spec["betas"] = [case.uniform(0.5, 0.95), case.uniform(0.8, 0.999)]
    if name in ("adam", "adamw", "rmsprop", "adagrad", "muon", "nadam", "radam", "adamax", "lamb") and case.chance(0.5):
        spec["eps"] = case.choose([1e-8, 1e-6, 1e-3])
    if name in ("nadam", "radam"):
        spec["decoupled_weight_decay"] = case.chance(0.3)
    if name in ("lamb", "lars"):
        spec.update(trust_clip=case.chance(0.3), always_adapt=case.chance(0.3))
    if name in ("sgd", "rmsprop", "lars") and case.chance(0.6):
        spec["momentum"] = case.uniform(0.3, 0.95)
        if name in ("sgd", "lars"):
            spec["nesterov"] = case.chance(0.4)
    if name == "muon":
        spec.update(momentum=case.uniform(0.5, 0.95), nesterov=case.chance(0.6))
        if case.chance(0.3):
            spec["adamw_params"] = ["head.*"]
    if name == "rmsprop":
        spec["alpha"] = case.uniform(0.8, 0.99)
    if case.chance(0.6):
        spec["weight_decay"] = case.choose([0, case.log_uniform(1e-3, 0.3)])
    if names and case.chance(0.4):
        groups = []
        for pattern in [case.choose(names)] + (["*"] if case.chance(0.4) else []):
            group = {"params": pattern}
            if pattern in KINDS:
                group = {"kind": pattern}
            if case.chance(0.7):
                group["lr_scale"] = case.choose([0.1, 0.5, 2, 10])
            if case.chance(0.5):
                group["weight_decay"] = case.choose([0, case.uniform(0.01, 0.5)])
            groups.append(group)
        spec["param_groups"] = groups
    return spec


def scheduler_section(case, steps, rate):
    name = case.choose(["constant", "cosine", "linear", "step", "multi_step", "exponential", "polynomial", "one_cycle", "cosine_warm_restarts",
                        "reduce_on_plateau"])
    spec = {"name": name}
    if name != "one_cycle":
        spec["warmup_steps"] = min(steps - 1, case.choose([0, 0, 1, 2, 4]))
        if case.chance(0.3):
            spec["warmup_start_factor"] = case.choose([0.01, 0.5, 1])
    if name in ("step", "exponential"):
        spec.update(step_size=case.between(1, 4), gamma=case.choose([0.5, 0.1, 0.9]))
    elif name == "multi_step":
        spec.update(milestones=sorted(case.random.sample(range(1, 9), case.between(1, 3))), gamma=case.choose([0.5, 0.1]))
    elif name == "one_cycle":
        spec.update(pct_start=case.choose([0.3, 0.45]), anneal_strategy=case.choose(["cos", "linear"]), div_factor=case.choose([1, 25]),
                    final_div_factor=case.choose([1, 1e4]), three_phase=case.chance(0.3))
        return spec
    if name == "polynomial":
        spec["power"] = case.choose([0.5, 1, 2])
    elif name == "cosine_warm_restarts":
        spec.update(t_0=case.between(1, 4), t_mult=case.choose([1, 2]))
    elif name == "reduce_on_plateau":
        spec.update(every_steps=case.between(1, 3), factor=case.choose([0.5, 0.1]), patience=case.between(0, 2), cooldown=case.between(0, 1),
                    threshold=case.choose([1e-4, 0.1]), threshold_mode=case.choose(["rel", "abs"]))
    if name in ("constant", "step", "exponential", "multi_step"):
        return spec
    if name != "constant" and case.chance(0.5):
        spec["min_lr"] = case.choose([0, float(f"{rate / 3:.3g}")])
    return spec


KINDS = ["norm", "bias", "vector", "embedding"]  # of optimizer.param_groups


def kinds_of(model):
    """Those of which the model has parameters, but not only."""
    name = model["name"]
    if name in ("gpt2", "bert", "vit"):
        return KINDS
    if name in ("mlp", "lenet5"):
        return ["bias", "vector"]
    return {"gpt": ["norm", "vector", "embedding"], "llama": ["norm", "vector", "embedding"], "resnet8": ["norm", "bias"],
            "lstm_lm": ["bias", "embedding"]}.get(name, [])


def parameter_patterns(model, task):
    """Patterns of which each matches a parameter, but not all."""
    name = model["name"]
    if name == "mlp":
        return ["0.weight", "0.bias"] + (["0.*", "*.bias"] if model["hidden_sizes"] else [])
    if name == "lenet5":
        return ["conv1.*", "fc*.bias", "fc3.*", "conv2.weight"]
    if name == "resnet8":
        return ["conv1.*", "*bn*.bias", "layer1.*", "fc.*", "layer[23].*"]
    if name == "vit":
        return ["class_token", "encoder.ln.*", "*.mlp.*", "heads.*"]
    if name in ("gpt", "gpt2"):
        return ["tok.*", "pos.weight", "blocks.0.*", "*ln*", "*.bias"]
    if name == "llama":
        return ["tok.*", "blocks.0.*", "*ln*", "*.q.weight"]
    if name == "lstm_lm":
        return ["tok.*", "lstm.weight_ih_l0", "lstm.bias*"]
    if name == "bert":
        return ["tok.*", "embed_ln.*", "blocks.0.*", "fc.*", "*.bias", "*.k.*"]
    if name == "blstm":
        return ["lstm.weight_ih_l0", "fc.*", "lstm.bias_hh*", "lstm.*_reverse"]
    kinds = [next(iter(layer)) if isinstance(layer, dict) else layer for layer in model["layers"]]
    owners = [i for i, kind in enumerate(kinds) if kind in ("linear", "conv2d", "embedding")]
    return [f"{owners[0]}.weight"] + ([f"{owners[0]}.*", f"{owners[-1]}.*"] if len(owners) > 1 else [])


METRICS = {"classification": ["loss", "accuracy", "macro_f1", "macro_recall"], "binary_classification": ["loss", "accuracy", "f1", "auroc", "average_precision", "recall"],
           "regression": ["loss", "rmse", "mae", "r2"], "multilabel_classification": ["loss", "exact_match", "micro_f1"],
           "sequence_labeling": ["loss", "accuracy", "macro_f1"], "ctc": ["loss", "label_error_rate"],
           "language_modeling": ["loss", "perplexity", "accuracy"]}


def training_sections(case, ranks):
    sections = case.sections
    model, task = sections["model"], sections["task"]["name"]
    patterns = parameter_patterns(model, task)
    steps = case.between(2, 10)
    micro = case.between(2, 6) if case.has_batch_norm else case.between(1, 6)
    accumulation = case.choose([1, 1, 2, 3, 4]) if ranks == 1 else ranks * case.choose([1, 2])
    optimizer = optimizer_section(case, patterns + kinds_of(model))
    if model["name"] == "resnet8":  # batch norm of few samples: otherwise rounding decides after some steps
        optimizer["lr"] = float(f"{optimizer['lr'] / 10:.3g}")
    if model["name"] in ("gpt", "gpt2", "llama", "bert", "vit") and case.chance(0.25):
        optimizer["layer_decay"] = case.choose([0.5, 0.75, 0.9])
    train = {"max_steps": steps, "micro_batch_size": micro, "gradient_accumulation_steps": accumulation, "device": "cpu", "num_threads": 1,
             "max_grad_norm": case.choose([None, 1, 0.1, 0.01, case.log_uniform(0.05, 2)]),
             "max_grad_value": case.choose([None, None, case.log_uniform(0.005, 0.5)]),
             "ema_decay": case.choose([None, None, case.choose([0.5, 0.9, 0.99, 0])])}
    if train["ema_decay"] is not None and case.chance(0.5):
        train.update(ema_every_steps=case.choose([1, 2, 3]), ema_warmup=case.choose([None, "num_updates", "power"]))
    if case.chance(0.1):
        train["precision"] = "bf16"
    if getattr(case, "has_overflow", False):
        train.update(on_nonfinite="skip_step", max_nonfinite=1000)
    if case.chance(0.1):
        train["channels_last"] = True
    save = case.between(1, 4)
    feed = {"num_workers": case.choose([1, 2]), "num_processes": case.choose([0, 0, 0, 1]), "prefetch_batches": case.between(2, 6)}
    feed["shuffle"] = case.choose(["full", "full", "none", "block", "shards"])
    if feed["shuffle"] == "block":
        feed["shuffle_block_size"] = case.between(2, 9)
    feed["last_batch"] = case.choose(["carry_over", "carry_over", "drop", "pad"])
    if "mixture" in sections["data"]["train"]:
        feed["last_batch"] = "carry_over"
    if getattr(case, "has_lengths", False) and case.chance(0.3) and "packing" not in sections["data"]["train"]["sequence"]:
        feed["bucket_boundaries"] = sorted({case.longest // 2, case.longest - 1} - {0, 1})
        feed.update(shuffle=case.choose(["full", "none"]), last_batch="carry_over")
        feed.pop("shuffle_block_size", None)
    elif case.chance(0.15) and "format" in sections["data"]["train"]:
        sections["data"]["train"]["repeat"] = case.between(2, 3)
    evaluation = {"datasets": ["val"], "checkpoints": "all", "batch_size": case.choose([1, 3, 64]), "priority": "normal", "generate": None,
                  "monitor": case.choose(METRICS[task]), "num_misclassified": 0}
    if case.chance(0.5):
        evaluation["top_k"] = case.choose([2, 3, None])
    if train["ema_decay"] is not None and case.chance(0.5):
        evaluation["use_ema"] = True
    if case.chance(0.25):
        evaluation["max_samples"] = case.between(3, 10)
        evaluation["subset"] = case.choose(["first", "evenly_spaced"])
    if case.chance(0.6):
        stop = {"patience": case.choose([None, 1, 2]), "patience_steps": case.choose([None, None, case.between(1, 4)]),
                "min_delta": case.choose([0, 0, 0.01])}
        if case.chance(0.3):
            stop["stopping_threshold"] = case.choose([0.5, 0.9, 1.5])
        evaluation["early_stopping"] = stop
    sections.update(
        optimizer=optimizer, scheduler=scheduler_section(case, steps, optimizer["lr"]), train=train, feed=feed, eval=evaluation,
        checkpoint={"save_at_start": True, "save_every_steps": save, "save_every_seconds": None, "keep_last": 1000},
        metrics={"log_every_steps": case.choose([1, 1, 1, 2, 3]), "tensorboard": False, "num_logged_samples": 0})
    if ranks > 1 or case.chance(0.15):
        sections["distributed"] = {"reduction": case.choose(["ordered", "allreduce"]) if ranks > 1 else "ordered"}
        if ranks > 1 and case.chance(0.3):
            sections["distributed"]["shard"] = "optimizer"
    if case.chance(0.2):
        model["freeze"] = [case.choose(patterns)]
        if case.chance(0.5):
            model["unfreeze_at_step"] = case.between(1, steps)
        optimizer.pop("param_groups", None)  # a group without a trained parameter is an error
    if case.chance(0.15):
        model["init"] = {"bias": case.choose(["zeros", {"constant": 0.125}])} if model["name"] not in ("llama", "lstm_lm", "blstm", "resnet8") else {}
    if case.chance(0.25) and model["name"] in ("mlp", "gpt", "gpt2", "llama", "bert") and not model.get("freeze"):
        add_adapter(case, model)


def add_adapter(case, model):
    targets = {"mlp": ["0"], "gpt": None, "gpt2": ["c_attn", "c_proj"], "llama": ["q_proj", "v_proj", "down_proj"], "bert": ["query", "dense"]}
    if model["name"] == "mlp" and not model["hidden_sizes"]:
        return
    lora = {"r": case.between(1, 3), "lora_alpha": case.choose([1, 4, 8])}
    chosen = case.choose(["all-linear", targets[model["name"]]])
    if model["name"] in ("gpt2", "bert"):
        chosen = case.choose(["all-linear", [targets[model["name"]][0]], None])
    if chosen:
        lora["target_modules"] = chosen
    if model["name"] == "bert" and case.chance(0.5):
        lora["modules_to_save"] = ["fc"]
    model["lora"] = lora
    model["pretrained"] = {"path": "pretrained.safetensors"}
    model.pop("init", None)
    optimizer = case.sections["optimizer"]
    optimizer.pop("param_groups", None)
    optimizer.pop("layer_decay", None)
    if optimizer["name"] == "muon":
        optimizer.pop("adamw_params", None)


# ---- Stages ---------------------------------------------------------------------------------------------------------------------


def changed(case, config):
    """The configuration of a resumed run, and the flags it needs."""
    config = copy.deepcopy(config)
    flags = []
    train, optimizer = config["train"], config["optimizer"]
    train["max_steps"] += case.between(1, 5)
    for change in case.random.sample(["lr", "clip", "ema", "scheduler", "decay", "optimizer", "freeze", "warmup", "none", "batch"],
                                     case.between(1, 3)):
        if change == "lr":
            optimizer["lr"] = float(f"{optimizer['lr'] * case.choose([0.3, 2]):.3g}")
        elif change == "clip":
            train["max_grad_norm"] = case.choose([None, 0.05, 1])
        elif change == "ema":
            train["ema_decay"] = case.choose([None, 0.5, 0.9])
            if train["ema_decay"] is None:
                config["eval"].pop("use_ema", None)
                for key in ("ema_every_steps", "ema_warmup"):
                    train.pop(key, None)
        elif change == "scheduler":
            config["scheduler"] = scheduler_section(case, train["max_steps"], optimizer["lr"])
        elif change == "warmup" and config["scheduler"]["name"] != "one_cycle":
            config["scheduler"]["warmup_steps"] = case.between(0, 3)
        elif change == "decay":
            optimizer["weight_decay"] = case.choose([0, 0.1])
        elif change == "batch" and not config["feed"].get("bucket_boundaries") and config["feed"].get("last_batch") == "carry_over":
            train["micro_batch_size"] = case.between(2 if case.has_batch_norm else 1, 5)
            flags.append("--allow-batch-change")
        elif change == "optimizer" and optimizer["name"] in ("adam", "adamw", "sgd"):
            name = {"adam": "adamw", "adamw": "adam", "sgd": "adam"}[optimizer["name"]]
            rate = optimizer["lr"] if name != "adam" or optimizer["name"] != "sgd" else 0.003
            config["optimizer"] = {"name": name, "lr": rate}
            flags.append("--allow-model-change")
        elif change == "freeze" and not config["model"].get("lora"):
            patterns = parameter_patterns(config["model"], config["task"]["name"])
            if config["model"].get("freeze"):
                config["model"].pop("freeze")
                config["model"].pop("unfreeze_at_step", None)
            else:
                config["model"]["freeze"] = [case.choose(patterns)]
                config["optimizer"].pop("param_groups", None)
            flags.append("--allow-model-change")
    return config, sorted(set(flags))


# What parameter servers do not support.
UNSUPPORTED = {"train": ["ema_decay", "ema_every_steps", "ema_warmup", "channels_last", "on_nonfinite", "max_nonfinite"], "model": ["unfreeze_at_step"],
               "eval": ["use_ema"]}


def add_clusters(case, stages, choose, replicas):
    """Starts with parameter servers whose result does not depend on time: asynchronous ones with one worker, or synchronous ones."""
    if getattr(case, "has_overflow", False):
        return
    # Running statistics are those of the micro-batches that the chief happens to get.
    workers = 1 if replicas == "async" or case.has_batch_norm else 2
    accumulation = 1 if replicas == "async" else choose.choice([2, 3, 4])
    micro_batch = stages[0]["config"]["train"]["micro_batch_size"]
    for number, stage in enumerate(stages):
        config = stage["config"]
        for section, keys in UNSUPPORTED.items():
            for key in keys:
                config[section].pop(key, None)
        if config["optimizer"]["name"] == "schedule_free_adamw":
            config["optimizer"] = {"name": "adamw", "lr": config["optimizer"]["lr"]}
        if config["scheduler"]["name"] == "reduce_on_plateau":
            config["scheduler"] = {"name": "constant", "warmup_steps": config["scheduler"]["warmup_steps"]}
        config["distributed"] = {"reduction": "ordered"}
        config["train"].update(gradient_accumulation_steps=accumulation, micro_batch_size=micro_batch)
        config["checkpoint"]["save_at_start"] = False
        config["feed"]["on_sample_error"] = "fail"
        stage["ranks"] = 1
        stage["flags"] = [flag for flag in stage["flags"] if flag != "--allow-batch-change"]
        if number > 0 and choose.random() < 0.25:
            continue  # one process continues it
        servers = choose.choice([1, 1, 2])
        # Of a single layer freeze can leave one variable, and a server without one is an error.
        if config["model"].get("freeze") and config["model"]["name"] in ("mlp", "sequential"):
            servers = 1
        stage["cluster"] = {"servers": servers, "workers": workers, "replicas": replicas,
                            "max_staleness": choose.choice([None, 0, 3]) if replicas == "async" else None,
                            "placement": choose.choice(["round_robin", "bytes"])}


def resume_earlier(case, stages, stage):
    """From one of the checkpoints that there are: a save is skipped while the one before is being written."""
    stage["resume"] = case.random.random()
    stage["flags"] = sorted(set(stage["flags"] + [flag for earlier in stages for flag in earlier["flags"]]))


def fit_min_lr(config):
    """min_lr must not be above lr."""
    scheduler = config["scheduler"]
    if scheduler.get("min_lr", 0) > config["optimizer"]["lr"]:
        scheduler.pop("min_lr")


def make_case(seed, folder, families=None, topology=None):
    """topology: None for a random one; ranks (two), or replicas of parameter servers: sync or async."""
    case = Case(seed, folder, families)
    ranks = case.choose([1] * 9 + [2, 2, 4])
    if topology is not None:
        ranks = 2 if topology == "ranks" else 1
    training_sections(case, ranks)
    config = copy.deepcopy(case.sections)
    fit_min_lr(config)
    stages = [{"config": config, "flags": [], "ranks": ranks}]
    while case.chance(0.35) and len(stages) < 4:
        config, flags = changed(case, stages[-1]["config"])
        fit_min_lr(config)
        if "distributed" in config:
            steps = config["train"]["gradient_accumulation_steps"]
            ranks = case.choose([count for count in (1, 2, 4) if steps % count == 0])
        stage = {"config": config, "flags": flags, "ranks": ranks}
        if case.chance(0.3):
            resume_earlier(case, stages, stage)
        stages.append(stage)
    for stage in stages:
        if stage["config"]["optimizer"]["name"] == "schedule_free_adamw":  # which has an average
            stage["config"]["train"]["ema_decay"] = None
            for key in ("ema_every_steps", "ema_warmup"):
                stage["config"]["train"].pop(key, None)
            stage["config"].get("distributed", {}).pop("shard", None)
    if any(stage["config"]["train"]["ema_decay"] is None for stage in stages):
        for stage in stages:  # checkpoints without an average cannot be evaluated by it
            stage["config"]["eval"].pop("use_ema", None)
    # Numbers of their own, so that the other cases of a seed stay the same.
    choose = random.Random(f"cluster {seed}")
    if topology in ("sync", "async"):
        add_clusters(case, stages, choose, topology)
    elif topology is None and choose.random() < 0.06:
        add_clusters(case, stages, choose, choose.choice(["sync", "async"]))
    return {"seed": seed, "family": case.family, "stages": stages}


# ---- Cases whose micro-batches have unequal counts --------------------------------------------------------------------------------


def has_class_weights(config):
    return isinstance(config["task"].get("class_weights"), list) and len(set(config["task"]["class_weights"])) > 1


def is_packed(config):
    return bool(config["data"]["train"]["sequence"].get("packing"))


# Kind: family, and which of its configurations. Values of the loss of a sample: its class weight, tokens without padding, tokens
# that do not start a document, and labels other than -100.
UNEQUAL_COUNTS = {
    "class weights": ("vectors", has_class_weights),
    "padding": ("token_sequences", lambda config: not is_packed(config)),
    "packing": ("token_sequences", is_packed),
    "ignored labels": ("labeled_sequences", lambda config: config["task"]["name"] == "sequence_labeling"),
}
UNEQUAL_CASES = [(kind, topology) for topology in ("ranks", "sync") for kind in UNEQUAL_COUNTS]


def make_unequal_case(number, folder):
    """Case `number` of UNEQUAL_CASES: the first seed with such a configuration, of one start."""
    kind, topology = UNEQUAL_CASES[number]
    family, is_wanted = UNEQUAL_COUNTS[kind]
    for seed in itertools.count(1000 * number):
        for path in pathlib.Path(folder).iterdir():
            path.unlink()  # of the seed before
        case = make_case(seed, folder, [family], topology)
        config = case["stages"][0]["config"]
        if is_wanted(config) and config["train"].get("precision") != "bf16":
            # Steps that show the size of a gradient, and of which a second worker gets some.
            config["optimizer"] = {"name": "sgd", "lr": 0.1}
            config["scheduler"] = {"name": "constant", "warmup_steps": 0}
            config["train"].update(max_steps=12, max_grad_norm=None, max_grad_value=None)
            return {**case, "stages": case["stages"][:1], "kind": f"{kind}, {topology}"}
