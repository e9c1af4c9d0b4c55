#!/usr/bin/env python3
"""Writes the folders of parity_bert_test.cc: make_bert.py FOLDER [COUNT [SEED]].

As make_huggingface.py, for random BertForSequenceClassification and BertForTokenClassification, with
padding and token types. The golden folders are those of COUNT 0.
"""
import random
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from make_huggingface import STEPS, move_vectors, record_steps
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification
from transformers.utils import logging

SEP = 3
PAD = 4  # a token that occurs, of every fifth case
IGNORED = -100


def bert_config(rng):
    heads = rng.randint(1, 4)
    return BertConfig(
        num_hidden_layers=rng.randint(1, 3),
        num_attention_heads=heads,
        hidden_size=heads * rng.randint(3, 9),
        intermediate_size=rng.randint(3, 40),
        max_position_embeddings=rng.randint(20, 32),
        vocab_size=rng.randint(11, 67),
        type_vocab_size=rng.choice([1, 2, 3]),
        layer_norm_eps=rng.choice([1e-12, 1e-5, 1e-3]),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
        num_labels=rng.randint(2, 5),
    )


class Batch:
    def __init__(self, config, rng, samples, time, is_per_token, is_padded):
        # Not 0, the usual padding, whose embedding transformers does not train.
        self.tokens = torch.randint(1, config.vocab_size, (samples, time))
        if config.pad_token_id != 0:
            self.tokens[0, 1] = config.pad_token_id
        self.lengths = torch.tensor([time, *(rng.randint(1, time) if is_padded else time for _ in range(samples - 1))])
        valid = torch.arange(time) < self.lengths[:, None]
        self.tokens *= valid
        self.labels = torch.randint(config.num_labels, (samples, time) if is_per_token else (samples,))
        if is_per_token:
            self.labels[~valid] = IGNORED
            self.labels[:, time // 2] = IGNORED

    def tensors(self, step):
        return {f"tokens{step}": self.tokens, f"lengths{step}": self.lengths, f"labels{step}": self.labels}


def logits_of(model, batch, i=0):
    """Of batch `i` of Batch.tensors()."""
    tokens, mask = batch[f"tokens{i}"], None
    if f"lengths{i}" in batch:
        mask = (torch.arange(tokens.shape[1]) < batch[f"lengths{i}"][:, None]).long()
    ends = (tokens == SEP).long()
    types = (ends.cumsum(1) - ends).clamp(max=model.config.type_vocab_size - 1)
    return model(tokens, attention_mask=mask, token_type_ids=types).logits


def record_training(folder, model, parameters, rng, is_per_token, is_padded, steps=STEPS):
    samples, time = rng.randint(2, 4), rng.randint(3, 19)
    batches = [Batch(model.config, rng, samples, time, is_per_token, is_padded) for _ in range(2)]
    expected = batches[0].tensors(0) | batches[1].tensors(1)
    if not is_padded:
        expected = {name: tensor for name, tensor in expected.items() if not name.startswith("lengths")}

    def step(i):
        logits, labels = logits_of(model, expected, i % 2), batches[i % 2].labels
        return logits, F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED)

    record_steps(folder, parameters, step, expected, steps)


def make_model(rng, seed, dtype, pad_token=0):
    """Of classification, and with an even seed of each token."""
    config = bert_config(rng)
    config.pad_token_id = pad_token
    torch.manual_seed(seed)
    make = BertForTokenClassification if seed % 2 == 0 else BertForSequenceClassification
    model = make._from_config(config, attn_implementation="sdpa", dtype=dtype)
    move_vectors(model)
    return model


def write_case(folder, seed, dtype):
    rng = random.Random(f"bert {seed}")
    model = make_model(rng, seed, dtype, PAD if seed % 5 == 0 else 0).train()
    model.save_pretrained(folder)
    record_training(folder, model, dict(model.named_parameters()), rng, seed % 2 == 0, is_padded=seed % 3 != 0)


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for seed in range(first, first + count) if count > 0 else (1, 2, 3, 5):
        write_case(folder / f"bert_{seed}", seed, torch.float32)
        if count > 0:
            write_case(folder / f"bert_{seed}_double", seed, torch.float64)


if __name__ == "__main__":
    main()
