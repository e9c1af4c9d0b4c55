"""Training cases of sequence models. sequence_cases.cc has the same in C++."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn import init
from torch.optim import lr_scheduler

from case import CLASS_WEIGHTS, STEPS, Case, constant, initialized, language_model_loss, tokens, warm_up_then
from models import Blstm, Gpt, Lstm, LstmLayer

LENGTHS = ([7, 3, 1, 6, 7, 2], [4, 7, 5, 1, 2, 7])


def sequences():
    return [{"input": torch.randn(6, 7, 5), "label": torch.randint(4, (6,))} for _ in range(2)]


def sequence_loss(model, batch):
    logits = model(batch["input"])
    return logits, F.cross_entropy(logits, batch["label"])


def binary_sequences():
    return [{"input": torch.randn(6, 7, 5), "label": torch.randint(2, (6,))} for _ in range(2)]


def binary_sequence_loss(model, batch):
    logits = model(batch["input"])
    return logits, F.binary_cross_entropy_with_logits(logits.squeeze(1), batch["label"].float())


def binary_blstm():
    """With TensorFlow's initialization of an LSTM: Glorot weights, biases 0, forget bias 1."""
    rules = {"weight*": init.xavier_uniform_, "bias*": init.zeros_}
    model = initialized(Blstm(5, 8, 1, states="mean"), rules)
    with torch.no_grad():
        for bias in (model.lstm.bias_ih_l0, model.lstm.bias_ih_l0_reverse):
            bias[8:16] += 1
    return model


def padded(values, classes, labels_each_step):
    """Two batches of sequences padded to 7 steps; `values(batch, steps)` generates the inputs."""

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
                labels[0, 2] = -100  # an ignored label inside a sequence
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


def sequence_labeling_loss(model, batch):
    logits = model(batch["input"], batch["length"])
    return logits, F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())


def unplaced_labels():
    """As many labels as always fit the steps, and none in one sample; class 0 is the blank."""
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


def weighted_sequence_labeling_loss(model, batch):
    logits = model(batch["tokens"], batch["length"])
    weights, smoothing = torch.tensor(CLASS_WEIGHTS), 0.1 if model.training else 0.0
    labels = batch["labels"].flatten()
    return logits, F.cross_entropy(logits.flatten(0, 1), labels, weights, label_smoothing=smoothing)


def over_texts(name, model):
    return Case(
        name=name,
        model=model,
        batches=tokens,
        loss=language_model_loss,
        optimizer=lambda p: torch.optim.AdamW(p, lr=3e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, fused=True),
        schedule=lambda o: warm_up_then(o, 3, lr_scheduler.CosineAnnealingLR(o, T_max=STEPS - 3, eta_min=3e-4)),
        clip_norm=0.5,
    )


CASES = [
    over_texts("gpt_adamw_cosine", lambda: Gpt(layers=2, width=16, heads=2, context=8, vocab=64)),
    Case(
        name="blstm_adamw_last",
        model=lambda: Blstm(5, 8, 4),
        batches=sequences,
        loss=sequence_loss,
        optimizer=lambda p: torch.optim.AdamW(p, lr=5e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1, fused=True),
        schedule=constant,
        clip_norm=1.0,
    ),
    Case(
        name="blstm_sgd_momentum_mean",
        model=lambda: Blstm(5, 6, 4, layers=2, states="mean"),
        batches=sequences,
        loss=sequence_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
        schedule=constant,
        clip_norm=0.0,
    ),
    Case(
        name="blstm_adam_binary",
        model=binary_blstm,
        batches=binary_sequences,
        loss=binary_sequence_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=5e-3, betas=(0.9, 0.999), eps=1e-6, fused=True),
        schedule=constant,
        clip_norm=1.0,
        num_stored=48,
    ),
    Case(
        name="blstm_adam_padded_last",
        model=lambda: Blstm(5, 8, 4, layers=2),
        batches=padded(of_vectors, 4, labels_each_step=False),
        loss=padded_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=5e-3, betas=(0.9, 0.95), eps=1e-6, fused=True),
        schedule=constant,
        clip_norm=1.0,
        num_stored=48,
    ),
    Case(
        name="blstm_sgd_momentum_padded_mean",
        model=lambda: Blstm(6, 6, 4, states="mean", vocab=24),
        batches=padded(of_tokens, 4, labels_each_step=False),
        loss=padded_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
        schedule=constant,
        clip_norm=0.0,
        num_stored=48,
    ),
    Case(
        name="blstm_adam_sequence_labeling",
        model=lambda: Blstm(5, 8, 4, states="each"),
        batches=padded(of_vectors, 4, labels_each_step=True),
        loss=sequence_labeling_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=5e-3, betas=(0.9, 0.95), eps=1e-6, fused=True),
        schedule=constant,
        clip_norm=1.0,
        num_stored=48,
    ),
    Case(
        name="blstm_sgd_momentum_sequence_labeling",
        model=lambda: Blstm(7, 6, 4, layers=2, states="each", vocab=24),
        batches=padded(of_tokens, 4, labels_each_step=True),
        loss=weighted_sequence_labeling_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
        schedule=constant,
        clip_norm=0.0,
        num_stored=48,
    ),
    Case(
        name="blstm_adam_ctc",
        model=lambda: Blstm(5, 8, 4, states="each"),
        batches=unplaced_labels,
        loss=ctc_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=5e-3, betas=(0.9, 0.95), eps=1e-6, fused=True),
        schedule=constant,
        clip_norm=1.0,
        num_stored=48,
    ),
    over_texts("lstm_adamw_tied", lambda: Lstm(layers=2, width=12, vocab=64, tied=True)),
    Case(
        name="sequential_lstm_sgd_momentum",
        model=lambda: nn.Sequential(nn.Embedding(64, 12), LstmLayer(12, 16, batch_first=True), nn.Linear(16, 64)),
        batches=tokens,
        loss=language_model_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, fused=True),
        schedule=constant,
        clip_norm=1.0,
        num_stored=48,
    ),
]
