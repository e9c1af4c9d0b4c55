"""Steps: modules that take the fields of a sample by name and return their loss, further losses, metrics and outputs. STEPS: name -> function that returns
the module, all samples {field: tensor}, and which values of its metrics are better."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

SAMPLES = 32
STEPS = {}


def step(function):
    STEPS[function.__name__] = function
    return function


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.mean, self.log_variance, self.decode = nn.Linear(12, 8), nn.Linear(8, 3), nn.Linear(8, 3), nn.Linear(3, 12)

    def forward(self, input):
        hidden = torch.tanh(self.encode(input))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        z = mean + torch.randn_like(mean) * torch.exp(log_variance / 2) if self.training else mean
        logits = self.decode(z)
        samples = input.shape[0]
        reconstruction = F.binary_cross_entropy_with_logits(logits, input, reduction="sum")
        kl = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        return {"loss": (reconstruction + kl, samples), "losses": {"reconstruction": (reconstruction, samples), "kl": (kl, samples)},
                "reconstruction": logits.sigmoid()}


@step
def vae():
    return Vae(), {"input": torch.rand(SAMPLES, 12)}, {}


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.classes, self.price = nn.Linear(6, 16), nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, input, label, price):
        hidden = F.gelu(self.trunk(input))
        logits, predicted = self.classes(hidden), self.price(hidden).squeeze(1)
        samples = input.shape[0]
        classification = F.cross_entropy(logits, label, reduction="sum")
        error = F.mse_loss(predicted, price, reduction="sum")
        return {"loss": (classification + 0.5 * error, samples),
                "losses": {"classification": classification / samples, "regression": (error, samples)},
                "metrics": {"accuracy": ((logits.argmax(1) == label).sum(), samples)}, "logits": logits, "price": predicted}


@step
def multi_task():
    x = torch.randn(SAMPLES, 6)
    return MultiTask(), {"input": x, "label": x[:, :3].argmax(1), "price": x.sum(1)}, {"accuracy": "maximize"}


class ClassWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(5, 3)
        self.register_buffer("weight", torch.tensor([0.2, 1.0, 3.0]))

    def forward(self, input, label):
        logits = self.net(input)
        return {"loss": (F.cross_entropy(logits, label, self.weight, reduction="sum"), self.weight[label].sum()),
                "metrics": {"accuracy": ((logits.argmax(1) == label).sum(), label.numel()),
                            "error_rate": ((logits.argmax(1) != label).sum(), label.numel())}, "logits": logits}


@step
def class_weights():
    x = torch.randn(SAMPLES, 5).round(decimals=3)
    return ClassWeights(), {"input": x, "label": x[:, :3].argmax(1)}, {"accuracy": "maximize", "error_rate": {"direction": "minimize", "help": "1 - accuracy"}}


class MaskedLanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.net, self.head = nn.Embedding(16, 8), nn.LSTM(8, 8, batch_first=True, bidirectional=True), nn.Linear(16, 16)

    def forward(self, input_ids, length, labels):
        hidden, _ = self.net(self.embed(input_ids))
        logits = self.head(hidden)
        is_valid = torch.arange(input_ids.shape[1]) < length[:, None]
        is_counted = (labels != -100) & is_valid
        count = is_counted.sum()
        loss = F.cross_entropy(logits.flatten(0, 1), labels.masked_fill(~is_counted, -100).flatten(), ignore_index=-100, reduction="sum")
        return {"loss": (loss, count), "metrics": {"masked_accuracy": (((logits.argmax(2) == labels) & is_counted).sum(), count)}, "logits": logits}


@step
def masked_lm():
    """With samples, and micro-batches, that have no label."""
    length = torch.randint(4, 11, (SAMPLES,))
    length[0] = 10
    is_valid = torch.arange(10) < length[:, None]
    tokens = torch.randint(1, 16, (SAMPLES, 10)).masked_fill(~is_valid, 0)
    labels = tokens.masked_fill((torch.rand(SAMPLES, 10) > 0.3) | ~is_valid, -100)
    labels[4:7] = -100
    return MaskedLanguageModel(), {"input_ids": tokens, "length": length, "labels": labels}, {"masked_accuracy": "maximize"}


class Contrastive(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(6, 4), nn.Linear(5, 4)
        self.log_scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, input, right):
        a, b = F.normalize(self.left(input), dim=1), F.normalize(self.right(right), dim=1)
        logits = a @ b.T * self.log_scale.exp()
        pairs = torch.arange(input.shape[0])
        loss = F.cross_entropy(logits, pairs, reduction="sum") + F.cross_entropy(logits.T, pairs, reduction="sum")
        return {"loss": (loss, 2 * input.shape[0]), "metrics": {"top1": ((logits.argmax(1) == pairs).sum(), input.shape[0])},
                "left": a, "right": b}


@step
def contrastive():
    return Contrastive(), {"input": torch.randn(SAMPLES, 6), "right": torch.randn(SAMPLES, 5)}, {"top1": "maximize"}


class Segmentation(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 3, 3, padding=1))

    def forward(self, input, mask):
        logits = self.net(input)
        predicted = logits.argmax(1)
        overlap = ((predicted == mask) & (mask > 0)).sum()
        return {"loss": (F.cross_entropy(logits, mask, reduction="sum"), mask.numel()),
                "metrics": {"dice": (2 * overlap, (predicted > 0).sum() + (mask > 0).sum())}, "mask": predicted}


@step
def segmentation():
    images = torch.randint(0, 256, (SAMPLES, 1, 8, 8))
    return Segmentation(), {"input": images / 255, "mask": (images[:, 0] / 86).long()}, {"dice": "maximize"}


class Quantiles(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 3)
        self.register_buffer("levels", torch.tensor([0.1, 0.5, 0.9]))

    def forward(self, input, target):
        quantiles = self.net(input)
        error = target - quantiles
        pinball = torch.maximum(self.levels * error, (self.levels - 1) * error)
        covered = (target[:, 0] >= quantiles[:, 0]) & (target[:, 0] <= quantiles[:, 2])
        return {"loss": pinball.mean(), "losses": {"median": (pinball[:, 1].sum(), target.shape[0])},
                "metrics": {"coverage": (covered.sum(), target.shape[0])}, "quantiles": quantiles}


@step
def quantile():
    x = torch.randn(SAMPLES, 4).round(decimals=3)
    return Quantiles(), {"input": x, "target": (x.sum(1, keepdim=True) + torch.randn(SAMPLES, 1)).round(decimals=3)}, {"coverage": "maximize"}


class Distillation(nn.Module):
    TEMPERATURE = 2.0

    def __init__(self):
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4)).requires_grad_(False)
        self.student = nn.Linear(6, 4)

    def forward(self, input, label):
        with torch.no_grad():
            wanted = (self.teacher(input) / self.TEMPERATURE).log_softmax(1)
        logits = self.student(input)
        samples = input.shape[0]
        distilled = F.kl_div((logits / self.TEMPERATURE).log_softmax(1), wanted, reduction="sum", log_target=True) * self.TEMPERATURE**2
        classified = F.cross_entropy(logits, label, reduction="sum")
        return {"loss": (0.7 * distilled + 0.3 * classified, samples), "losses": {"distilled": (distilled, samples), "classified": (classified, samples)},
                "logits": logits}


@step
def distillation():
    return Distillation(), {"input": torch.randn(SAMPLES, 6), "label": torch.randint(0, 4, (SAMPLES,))}, {}


class Detection(nn.Module):
    """A list of boxes and one of their classes, of different lengths."""

    def __init__(self):
        super().__init__()
        self.boxes, self.classes = nn.Linear(6, 5 * 4), nn.Linear(6, 5 * 3)

    def forward(self, input, boxes, classes, weight):
        is_object = classes != -100
        predicted, logits = self.boxes(input).view(-1, 5, 4), self.classes(input).view(-1, 5, 3)
        count = is_object.sum()
        errors = F.smooth_l1_loss(predicted, boxes, reduction="none").sum(2) * is_object * weight[:, None]
        classified = F.cross_entropy(logits.flatten(0, 1), classes.flatten(), reduction="sum")
        return {"loss": (errors.sum() + classified, count), "losses": {"boxes": (errors.sum(), count)},
                "metrics": {"accuracy": (((logits.argmax(2) == classes) & is_object).sum(), count)}, "predicted": predicted}


@step
def detection():
    is_object = torch.arange(5) < torch.randint(1, 6, (SAMPLES, 1))
    boxes = torch.randn(SAMPLES, 5, 4) * is_object[:, :, None]
    classes = torch.randint(0, 3, (SAMPLES, 5)).masked_fill(~is_object, -100)
    return Detection(), {"input": torch.randn(SAMPLES, 6), "boxes": boxes, "classes": classes, "weight": torch.rand(SAMPLES)}, {"accuracy": "maximize"}


def make(name):
    torch.manual_seed(17)
    module, samples, directions = STEPS[name]()
    return module, samples, directions


def trained(module, samples, *, micro, accumulate, steps, lr, seed_of):
    """Training as PyTorch does it: the loss of a step is sum / count over its micro-batches. Returns a record of each step, and the module."""
    module = copy.deepcopy(module).train()
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=lr)
    records, ticket = [], 0
    for _ in range(steps):
        optimizer.zero_grad()
        parts = []
        for _ in range(accumulate):
            rows = [(ticket * micro + i) % SAMPLES for i in range(micro)]
            torch.manual_seed(seed_of(ticket))
            parts.append((micro, module(**{name: values[rows] for name, values in samples.items()})))
            ticket += 1
        record = totals(parts)
        record["loss"].backward()
        optimizer.step()
        records.append({name: value.item() for name, value in record.items()})
    return records, module


def totals(parts):
    """Of (samples, returned dictionary): the loss, losses and metrics over all of them; a scalar counts as its samples."""
    sums = {}
    for samples, returned in parts:
        for name, value in {"loss": returned["loss"], **returned.get("losses", {}), **returned.get("metrics", {})}.items():
            total, count = value if isinstance(value, tuple) else (value * samples, samples)
            before = sums.get(name, (0, 0))
            sums[name] = before[0] + total, before[1] + count
    return {name: total / count for name, (total, count) in sums.items()}


def evaluated(module, samples, size):
    module.eval()
    with torch.no_grad():
        parts = [(min(size, SAMPLES - first), module(**{name: values[first:first + size] for name, values in samples.items()}))
                 for first in range(0, SAMPLES, size)]
    return {name: float(value) for name, value in totals(parts).items()}
