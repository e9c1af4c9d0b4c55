#!/usr/bin/env python3
"""check_parity.py GOLDEN CHECKPOINTS: trains every case, compares the golden files with what
make_golden.py would write, and loads the checkpoints that parity_export wrote into the PyTorch
counterparts. All names and shapes must match; weights, optimizer state and evaluation loss must
agree with the counterpart. Not compared: initial_weights.safetensors and digests of initial weights
(check_torchvision.py, parity_golden_test.cc)."""
import pathlib
import sys

import torch
from safetensors.torch import load_file

from case import round_erfinv_correctly
from cases import CASES
from make_golden import run

differences = []


def compare(what, actual, expected, tolerance):
    if actual.shape != expected.shape:
        differences.append(f"{what}: shape {tuple(actual.shape)}, PyTorch has {tuple(expected.shape)}")
        return
    actual, expected = actual.detach().double(), expected.detach().double()
    error, scale = (actual - expected).abs().max().item(), expected.abs().max().item()
    # A value that is zero except for rounding, such as the gradient of a bias before a batch norm,
    # can be any small number.
    if not error <= tolerance * scale + 1e-8:
        differences.append(f"{what}: error {error:.3g}, largest element {scale:.3g}")


def compare_golden(name, old, new):
    if old.keys() != new.keys():
        differences.append(f"{name}: other tensors than make_golden.py writes")
    for key in sorted(old.keys() & new.keys() - {"initial_sha256"}):
        if "#" not in key:
            compare(f"golden {name} {key}", old[key], new[key], 1e-4)


def compare_checkpoint(case, reference, optimizer, folder):
    (checkpoint,) = folder.glob("step-*")
    weights = load_file(checkpoint / "model.safetensors")
    for name, tensor in reference.state_dict().items():
        if name in weights:
            compare(f"{case.name} {name}", weights[name], tensor, 1e-4)
    actual_state = load_file(checkpoint / "optimizer.safetensors")
    expected = {
        f"{kind}.{name}": optimizer.state[parameter][kind]
        for name, parameter in reference.named_parameters()
        for kind in optimizer.state[parameter]
        if optimizer.state[parameter][kind] is not None
    }
    if actual_state.keys() != expected.keys():
        differences.append(f"{case.name}: optimizer state {sorted(actual_state.keys() ^ expected.keys())[:5]}")
    for name in actual_state.keys() & expected.keys():
        compare(f"{case.name} {name}", actual_state[name], expected[name], 1e-3)
    loaded = case.model()
    loaded.load_state_dict(weights, strict=True)  # raises if names or shapes differ
    loaded.eval()
    torch.manual_seed(8)
    batch = case.batches()[0]
    reference.eval()
    with torch.no_grad():
        compare(f"{case.name} loss", case.loss(loaded, batch)[1], case.loss(reference, batch)[1], 1e-5)


def main():
    golden, checkpoints = (pathlib.Path(p) for p in sys.argv[1:])
    torch.set_num_threads(1)
    round_erfinv_correctly()
    if {path.stem for path in golden.glob("*.safetensors")} != {"initial_weights", *(case.name for case in CASES)}:
        differences.append("the golden files are not those that make_golden.py writes: run it and commit them")
    for case in CASES:
        tensors, reference, optimizer = run(case)
        compare_golden(case.name, load_file(golden / f"{case.name}.safetensors"), tensors)
        compare_checkpoint(case, reference, optimizer, checkpoints / case.name)
    for line in differences[:20]:
        print(line)
    print(f"{len(CASES)} cases against PyTorch {torch.__version__}: {len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
