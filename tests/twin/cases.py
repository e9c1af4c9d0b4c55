"""What is compared with PyTorch. twin_case.cc has the same cases in C++."""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler

from models import Blstm, Gpt, Lenet, Lion, Lstm, LstmLayer, Mlp, MuonAndAdamW, Residual, Resnet
from vision_models import Alexnet, InceptionV3, Vgg, Vit

STEPS = 10
CLASS_WEIGHTS = (0.5, 2.0, 1.0, 0.25)


def picture(u8):
    return (u8.float() / 255 - 0.5) / 0.5


def language_model_loss(model, batch):
    tokens = batch["tokens"].long()
    logits = model(tokens[:, :-1])
    return logits, F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def classification_loss(model, batch):
    logits = model(picture(batch["input"]))
    return logits, F.cross_entropy(logits, batch["label"])


def regression_loss(model, batch):
    output = model(batch["input"])
    return output, F.mse_loss(output, batch["target"])


def warm_up_then(optimizer, warmup, after):
    rising = lr_scheduler.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    return lr_scheduler.SequentialLR(optimizer, [rising, after], milestones=[warmup])


@dataclass
class Case:
    name: str
    model: callable
    batches: callable  # -> two batches, each a dict of tensors as the data set stores them
    loss: callable
    optimizer: callable  # parameters -> optimizer
    schedule: callable  # optimizer -> scheduler
    clip_norm: float
    kept: int = 256  # elements of each tensor that the golden file holds


def tokens():
    return [{"tokens": torch.randint(64, (3, 9), dtype=torch.uint8)} for _ in range(2)]


def vectors():
    return [{"input": torch.randn(6, 10), "target": torch.randn(6, 2)} for _ in range(2)]


def pictures(samples, shape, classes):
    def make():
        return [
            {
                "input": torch.randint(256, (samples, *shape), dtype=torch.uint8),
                "label": torch.randint(classes, (samples,)),
            }
            for _ in range(2)
        ]

    return make


def sequences():
    return [{"input": torch.randn(6, 7, 5), "label": torch.randint(4, (6,))} for _ in range(2)]


def sequence_loss(model, batch):
    logits = model(batch["input"])
    return logits, F.cross_entropy(logits, batch["label"])


LENGTHS = ([7, 3, 1, 6, 7, 2], [4, 7, 5, 1, 2, 7])


def padded(values, classes, labels_each_step):
    """Two batches of sequences of 7 steps and of fewer, which are padded; `values(batch, steps)` makes them."""

    def make():
        batches = []
        for lengths in LENGTHS:
            name, sequences = values(6, 7)
            length = torch.tensor(lengths)
            is_padding = torch.arange(7)[None] >= length[:, None]
            sequences[is_padding] = 0
            batch = {name: sequences, "length": length}
            if labels_each_step:
                labels = torch.randint(classes, (6, 7)).masked_fill(is_padding, -100)
                labels[0, 2] = -100  # one within a sequence does not count either
                batch["labels"] = labels
            else:
                batch["label"] = torch.randint(classes, (6,))
            batches.append(batch)
        return batches

    return make


def of_vectors(batch, steps):
    return "input", torch.randn(batch, steps, 5)


def of_tokens(batch, steps):
    return "tokens", torch.randint(1, 24, (batch, steps), dtype=torch.int32)


def padded_loss(model, batch):
    logits = model(batch["input"] if "input" in batch else batch["tokens"], batch["length"])
    return logits, F.cross_entropy(logits, batch["label"])


def tagging_loss(model, batch):
    logits = model(batch["input"], batch["length"])
    return logits, F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())


def unplaced_labels():
    """As many labels as the steps can hold whatever they are, in one sample none; class 0 is the blank."""
    batches = []
    for lengths in LENGTHS:
        length = torch.tensor(lengths)
        counts = (length + 1) // 2
        counts[-1] = 0
        sequences = torch.randn(6, 7, 5)
        sequences[torch.arange(7)[None] >= length[:, None]] = 0
        labels = torch.randint(1, 4, (6, 4))
        labels[torch.arange(4)[None] >= counts[:, None]] = -100
        batches.append({"input": sequences, "length": length, "labels": labels})
    return batches


def ctc_loss(model, batch):
    logits = model(batch["input"], batch["length"])
    log_probabilities = logits.log_softmax(2).transpose(0, 1)
    counts = (batch["labels"] >= 0).sum(1)
    return logits, F.ctc_loss(log_probabilities, batch["labels"].clamp_min(0), batch["length"], counts)


def weighted_tagging_loss(model, batch):
    logits = model(batch["tokens"], batch["length"])
    weights, smoothing = torch.tensor(CLASS_WEIGHTS), 0.1 if model.training else 0.0
    labels = batch["labels"].flatten()
    return logits, F.cross_entropy(logits.flatten(0, 1), labels, weights, label_smoothing=smoothing)


def smoothed_loss(model, batch):
    """The loss of training; in evaluation nothing is smoothed."""
    logits = model(batch["input"])
    return logits, F.cross_entropy(logits, batch["label"], label_smoothing=0.1 if model.training else 0.0)


def labelled_vectors():
    return [{"input": torch.randn(6, 10), "label": torch.randint(4, (6,))} for _ in range(2)]


def marked_vectors():
    return [{"input": torch.randn(6, 10), "target": torch.randint(2, (6, 3)).float()} for _ in range(2)]


def multi_label_loss(model, batch):
    logits = model(batch["input"])
    return logits, F.binary_cross_entropy_with_logits(logits, batch["target"])


def weighted_loss(model, batch):
    """The loss of training; in evaluation nothing is smoothed."""
    logits = model(batch["input"])
    weights = torch.tensor(CLASS_WEIGHTS)
    return logits, F.cross_entropy(logits, batch["label"], weights, label_smoothing=0.1 if model.training else 0.0)


def weighted_multi_label_loss(model, batch):
    logits = model(batch["input"])
    weights = torch.tensor([3.0, 1.0, 0.5])
    return logits, F.binary_cross_entropy_with_logits(logits, batch["target"], pos_weight=weights)


def grouped_adamw(parameters):
    """Biases without decay, then the first layer at a tenth of the rate and with another decay, then the rest."""
    parameters = list(parameters)  # weight and bias of three layers
    groups = [
        {"params": [parameters[2], parameters[4]]},
        {"params": parameters[1::2], "weight_decay": 0.0},
        {"params": [parameters[0]], "lr": 2e-3 * 0.1, "weight_decay": 0.3},
    ]
    return torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1, fused=True)


def muon(parameters):
    """Two of the three matrices, the first at half the rate; the last, and the biases, by AdamW, biases without decay."""
    parameters = list(parameters)  # weight and bias of three layers
    of_muon = [{"params": [parameters[2]]}, {"params": [parameters[0]], "lr": 4e-3 * 0.5}]
    of_adamw = [{"params": [parameters[4]]}, {"params": parameters[1::2], "weight_decay": 0.0}]
    return MuonAndAdamW(
        torch.optim.Muon(of_muon, lr=4e-3, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(of_adamw, lr=4e-3, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1, fused=True),
    )


def layers():
    """Every kind of layer for pictures, as model.stack declares them."""
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        Residual(
            [
                nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=2),
                nn.BatchNorm2d(12),
                nn.GELU(),
                nn.Conv2d(12, 12, 3, padding=1),
            ],
            [nn.AvgPool2d(2), nn.Conv2d(8, 12, 1)],
        ),
        Residual([nn.ReLU(), nn.BatchNorm2d(12)]),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(48, 16),
        nn.LayerNorm(16),
        nn.Tanh(),
        nn.Dropout(0.0),
        nn.Linear(16, 3, bias=False),
    )


CASES = [
    Case(
        name="gpt_adamw_cosine",
        model=lambda: Gpt(layers=2, width=16, heads=2, context=8, vocab=64),
        batches=tokens,
        loss=language_model_loss,
        optimizer=lambda p: torch.optim.AdamW(p, lr=3e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, fused=True),
        schedule=lambda o: warm_up_then(o, 3, lr_scheduler.CosineAnnealingLR(o, T_max=STEPS - 3, eta_min=3e-4)),
        clip_norm=0.5,
    ),
    Case(
        name="mlp_momentum_linear",
        model=lambda: Mlp(10, [16, 8], 2),
        batches=vectors,
        loss=regression_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01, fused=True),
        schedule=lambda o: warm_up_then(o, 2, lr_scheduler.LinearLR(o, 1.0, 0.1, total_iters=STEPS - 2)),
        clip_norm=0.0,
    ),
    Case(
        name="lenet_adam_step",
        model=lambda: Lenet(1, 12, 7),
        batches=pictures(5, (1, 12, 12), 7),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=2e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, fused=True),
        schedule=lambda o: lr_scheduler.StepLR(o, step_size=4, gamma=0.5),
        clip_norm=1.0,
    ),
    Case(
        name="resnet8_sgd_constant",
        model=lambda: Resnet(8, 3, 4),
        # Eight: with four, one input of a ReLU is so near 0 that PyTorch differs from itself between one thread and two.
        batches=pictures(8, (3, 16, 16), 4),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.05, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=0.25,
    ),
    Case(
        name="mlp_adamw_groups",
        model=lambda: Mlp(10, [16, 8], 2),
        batches=vectors,
        loss=regression_loss,
        optimizer=grouped_adamw,
        schedule=lambda o: lr_scheduler.StepLR(o, step_size=4, gamma=0.5),
        clip_norm=0.5,
    ),
    Case(
        name="alexnet_momentum_constant",
        model=lambda: Alexnet(1, 4, width=24, dropout=0.0),
        batches=pictures(4, (1, 63, 63), 4),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=1.0,
        kept=48,
    ),
    Case(
        name="vgg11_bn_sgd_constant",
        model=lambda: Vgg(11, 1, 3, batch_norm=True, width=24, dropout=0.0),
        batches=pictures(6, (1, 32, 32), 3),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.02, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=1.0,
        kept=48,
    ),
    Case(
        name="mlp_rmsprop_multi_label",
        model=lambda: Mlp(10, [16, 8], 3),
        batches=marked_vectors,
        loss=multi_label_loss,
        optimizer=lambda p: torch.optim.RMSprop(p, lr=0.003, alpha=0.9, eps=1e-6, momentum=0.8, weight_decay=0.01),
        schedule=lambda o: lr_scheduler.StepLR(o, step_size=4, gamma=0.5),
        clip_norm=1.0,
    ),
    Case(
        name="mlp_rmsprop_plain",
        model=lambda: Mlp(10, [16, 8], 2),
        batches=vectors,
        loss=regression_loss,
        optimizer=lambda p: torch.optim.RMSprop(p, lr=0.003, alpha=0.99, eps=1e-6),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=0.0,
    ),
    Case(
        name="mlp_adagrad_smoothed",
        model=lambda: Mlp(10, [16, 8], 4),
        batches=labelled_vectors,
        loss=smoothed_loss,
        optimizer=lambda p: torch.optim.Adagrad(p, lr=0.02, eps=1e-6, weight_decay=0.01),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=0.0,
    ),
    Case(
        name="mlp_sgd_weighted",
        model=lambda: Mlp(10, [16, 8], 4),
        batches=labelled_vectors,
        loss=weighted_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=0.0,
    ),
    Case(
        name="mlp_sgd_weighted_multi_label",
        model=lambda: Mlp(10, [16, 8], 3),
        batches=marked_vectors,
        loss=weighted_multi_label_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=0.0,
    ),
    Case(
        name="mlp_muon_groups",
        model=lambda: Mlp(10, [16, 8], 2),
        batches=vectors,
        loss=regression_loss,
        optimizer=muon,
        schedule=lambda o: lr_scheduler.StepLR(o, step_size=4, gamma=0.5),
        clip_norm=0.5,
    ),
    Case(
        name="mlp_lion_linear",
        model=lambda: Mlp(10, [16, 8], 2),
        batches=vectors,
        loss=regression_loss,
        optimizer=lambda p: Lion(p, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1),
        schedule=lambda o: warm_up_then(o, 2, lr_scheduler.LinearLR(o, 1.0, 0.1, total_iters=STEPS - 2)),
        clip_norm=1.0,
    ),
    Case(
        name="blstm_adamw_last",
        model=lambda: Blstm(5, 8, 4),
        batches=sequences,
        loss=sequence_loss,
        optimizer=lambda p: torch.optim.AdamW(p, lr=5e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=1.0,
    ),
    Case(
        name="blstm_momentum_mean",
        model=lambda: Blstm(5, 6, 4, layers=2, states="mean"),
        batches=sequences,
        loss=sequence_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=0.0,
    ),
    Case(
        name="blstm_adam_padded_last",
        model=lambda: Blstm(5, 8, 4, layers=2),
        batches=padded(of_vectors, 4, labels_each_step=False),
        loss=padded_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=5e-3, betas=(0.9, 0.95), eps=1e-6, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=1.0,
        kept=48,
    ),
    Case(
        name="blstm_momentum_padded_mean",
        model=lambda: Blstm(6, 6, 4, states="mean", vocab=24),
        batches=padded(of_tokens, 4, labels_each_step=False),
        loss=padded_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=0.0,
        kept=48,
    ),
    Case(
        name="blstm_adam_tagging",
        model=lambda: Blstm(5, 8, 4, states="each"),
        batches=padded(of_vectors, 4, labels_each_step=True),
        loss=tagging_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=5e-3, betas=(0.9, 0.95), eps=1e-6, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=1.0,
        kept=48,
    ),
    Case(
        name="blstm_momentum_tagging",
        model=lambda: Blstm(7, 6, 4, layers=2, states="each", vocab=24),
        batches=padded(of_tokens, 4, labels_each_step=True),
        loss=weighted_tagging_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=0.0,
        kept=48,
    ),
    Case(
        name="blstm_adam_ctc",
        model=lambda: Blstm(5, 8, 4, states="each"),
        batches=unplaced_labels,
        loss=ctc_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=5e-3, betas=(0.9, 0.95), eps=1e-6, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=1.0,
        kept=48,
    ),
    Case(
        name="lstm_adamw_tied",
        model=lambda: Lstm(layers=2, width=12, vocab=64, tied=True),
        batches=tokens,
        loss=language_model_loss,
        optimizer=lambda p: torch.optim.AdamW(p, lr=3e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, fused=True),
        schedule=lambda o: warm_up_then(o, 3, lr_scheduler.CosineAnnealingLR(o, T_max=STEPS - 3, eta_min=3e-4)),
        clip_norm=0.5,
    ),
    Case(
        name="vit_momentum_constant",
        model=lambda: Vit(3, 16, 4, layers=2, heads=4, width=32, mlp_width=48, outputs=4),
        batches=pictures(5, (3, 16, 16), 4),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=1.0,
        kept=48,
    ),
    Case(
        name="layers_adam_constant",
        model=layers,
        batches=pictures(6, (2, 16, 16), 3),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=2e-3, betas=(0.9, 0.999), eps=1e-5, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=1.0,
        kept=48,
    ),
    Case(
        name="layers_lstm_momentum",
        model=lambda: nn.Sequential(nn.Embedding(64, 12), LstmLayer(12, 16, batch_first=True), nn.Linear(16, 64)),
        batches=tokens,
        loss=language_model_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, fused=True),
        schedule=lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
        clip_norm=1.0,
        kept=48,
    ),
]

# Only the bytes of the initial weights are compared.
INITIAL_ONLY = {
    "resnet18": lambda: Resnet(18, 3, 10),
    "resnet20": lambda: Resnet(20, 3, 10),
    "resnet50": lambda: Resnet(50, 1, 5),
    "resnet101": lambda: Resnet(101, 3, 5),
    "resnet152": lambda: Resnet(152, 3, 5),
    "alexnet": lambda: Alexnet(3, 10),
    "vgg11": lambda: Vgg(11, 3, 10),
    "vgg13_bn": lambda: Vgg(13, 3, 5, batch_norm=True, width=8),
    "vgg16": lambda: Vgg(16, 1, 5, width=8),
    "vgg19_bn": lambda: Vgg(19, 3, 5, batch_norm=True, width=8),
    "vit_b_32": lambda: Vit(3, 64, 32, layers=12, heads=12, width=768, mlp_width=3072, outputs=5),
    "inception_v3": lambda: InceptionV3(3, 5),
    "mlp_dropout": lambda: Mlp(12, [7, 5], 3, dropout=0.1),
    "gpt": lambda: Gpt(layers=3, width=24, heads=3, context=16, vocab=256),
    "blstm": lambda: Blstm(9, 16, 3, layers=2),
    "lstm": lambda: Lstm(layers=2, width=24, vocab=100),
}
SEED = 7
