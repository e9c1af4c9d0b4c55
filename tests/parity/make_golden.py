#!/usr/bin/env python3
"""Writes the golden files of parity_golden_test.cc: make_golden.py [FOLDER].

Generated with PyTorch on one thread. A file contains the complete batches. Of every other tensor it
contains elements at equal distances (at most 256, unless the case sets fewer), its sum and its
norm, so that the files stay small.
"""
import hashlib
import pathlib
import sys

import torch
from safetensors.torch import save_file

from case import SEED, STEPS, round_erfinv_correctly
from cases import CASES, INITIAL_ONLY

MADE_BY = {"torch": torch.__version__}


def named_tensors(model):
    return [*model.named_parameters(), *model.named_buffers()]


def digest(model):
    """SHA-256 over names and bytes, parameters first and then buffers, as a tensor of 32 bytes."""
    sum_ = hashlib.sha256()
    for name, tensor in named_tensors(model):
        sum_.update(name.encode() + b"\n" + tensor.detach().numpy().tobytes())
    return torch.frombuffer(bytearray(sum_.digest()), dtype=torch.uint8)


def store_sample(tensors, name, tensor, num_stored):
    flat = tensor.detach().flatten().double()
    tensors[name] = flat[:: -(-flat.numel() // num_stored)].float().clone()
    tensors[name + "#sum_norm"] = torch.stack([flat.sum(), flat.norm()])


def run(case):
    """Trains a counterpart; returns the golden tensors, the model and its optimizer."""
    torch.manual_seed(SEED)
    model = case.model()
    tensors = {"initial_sha256": digest(model)}
    for name, tensor in named_tensors(model):
        store_sample(tensors, "initial/" + name, tensor, case.num_stored)
    torch.manual_seed(SEED + 1)
    batches = case.batches()
    for number, batch in enumerate(batches):
        tensors |= {f"batch{number}/{name}": tensor for name, tensor in batch.items()}
    optimizer = case.optimizer(model.parameters())
    schedule = case.schedule(optimizer)
    losses, norms, rates = [], [], []
    model.train()
    for step in range(STEPS):
        optimizer.zero_grad()
        logits, loss = case.loss(model, batches[step % 2])
        loss.backward()
        if step == 0:
            store_sample(tensors, "logits", logits, case.num_stored)
            for name, parameter in model.named_parameters():
                store_sample(tensors, "gradient/" + name, parameter.grad, case.num_stored)
        limit = case.clip_norm if case.clip_norm > 0 else float("inf")
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))
        losses.append(loss.detach())
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    for name, tensor in named_tensors(model):
        store_sample(tensors, "final/" + name, tensor, case.num_stored)
    model.eval()
    with torch.no_grad():
        tensors["eval_loss"] = case.loss(model, batches[0])[1].double()
    tensors |= {"losses": torch.stack(losses), "norms": torch.stack(norms)}
    tensors["rates"] = torch.tensor(rates, dtype=torch.float64)
    return tensors, model, optimizer


def initial_digests():
    digests = {}
    for name, make in INITIAL_ONLY.items():
        torch.manual_seed(SEED)
        digests[name] = digest(make())
    return digests


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "golden")
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    round_erfinv_correctly()
    for case in CASES:
        save_file(run(case)[0], folder / f"{case.name}.safetensors", MADE_BY)
    save_file(initial_digests(), folder / "initial_weights.safetensors", MADE_BY)


if __name__ == "__main__":
    main()
