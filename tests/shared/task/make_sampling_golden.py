#!/usr/bin/env python3
"""make_sampling_golden.py > sampling_golden.txt: logits, and what remains of them after the logits
processors of transformers (5.24.0) in the order in which its generate() applies them. A line has
temperature, top_k (0: none), top_p, the size of the vocabulary, the logits and the result."""
import torch
from transformers import GenerationConfig
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


def processors(config):
    warpers = LogitsProcessorList()
    if config.temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(config.temperature))
    if config.top_k:
        warpers.append(TopKLogitsWarper(top_k=config.top_k))
    if config.top_p < 1.0:
        warpers.append(TopPLogitsWarper(top_p=config.top_p))
    return warpers


def numbers(values):
    return " ".join(f"{value:.9g}" for value in values.tolist())


def main():
    torch.manual_seed(1)
    for temperature in (0.1, 0.7, 1.0, 2.5):
        for top_k in (0, 1, 3, 40):
            for top_p in (0.05, 0.5, 0.9, 0.99, 1.0):
                for kind in ("random", "ties"):
                    logits = torch.randn(1, 12) * 2
                    if kind == "ties":
                        logits = logits.round()
                    config = GenerationConfig(temperature=temperature, top_k=top_k, top_p=top_p)
                    result = processors(config)(torch.zeros(1, 1, dtype=torch.long), logits.clone())
                    print(temperature, top_k, top_p, logits.shape[1], numbers(logits[0]), numbers(result[0]))


if __name__ == "__main__":
    main()
