#!/usr/bin/env python3
"""Writes the golden files of parity_golden_test.cc: make_golden.py [FOLDER].

A file contains the complete batches. Of every other tensor, computed in double precision, it contains elements at equal
distances (at most 256, unless the case sets fewer), and its sum, its norm and the tolerance of an element in single precision
(reference.py), so that the files stay small.
"""
import hashlib
import pathlib
import sys

import torch
from safetensors.torch import save_file

from case import SEED, round_erfinv_correctly
from cases import CASES, INITIAL_ONLY
from reference import make_batches, make_model, named_tensors, reference

MADE_BY = {"torch": torch.__version__}


def digest(model):
    """SHA-256 over names and bytes, parameters first and then buffers, as a tensor of 32 bytes."""
    sum_ = hashlib.sha256()
    for name, tensor in named_tensors(model):
        sum_.update(name.encode() + b"\n" + tensor.detach().numpy().tobytes())
    return torch.frombuffer(bytearray(sum_.digest()), dtype=torch.uint8)


def stored(name, tensor, tolerance, num_stored):
    flat = tensor.flatten()
    return {
        name: flat[:: -(-flat.numel() // num_stored)].float().clone(),
        name + "#summary": torch.tensor([flat.sum(), flat.norm(), tolerance], dtype=torch.float64),
    }


def golden(case, batches, exact, tolerances):
    tensors = {"initial_sha256": digest(make_model(case)), "rates": exact.tensors["rates"]}
    for number, batch in enumerate(batches):
        tensors |= {f"batch{number}/{name}": tensor for name, tensor in batch.items()}
    for name, tensor in exact.tensors.items():
        if name != "rates" and not name.startswith("state/"):  # check_parity.py compares the state
            tensors |= stored(name, tensor, tolerances[name], case.num_stored)
    return tensors


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
        batches = make_batches(case)
        exact, tolerances, undecided = reference(case, batches)
        if undecided:
            sys.exit(f"{case.name}: {undecided}")
        save_file(golden(case, batches, exact, tolerances), folder / f"{case.name}.safetensors", MADE_BY)
    save_file(initial_digests(), folder / "initial_weights.safetensors", MADE_BY)


if __name__ == "__main__":
    main()
