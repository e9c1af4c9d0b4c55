#!/usr/bin/env python3
"""check_parity.py GOLDEN CHECKPOINTS: trains every case in double precision, compares the golden files with what
make_golden.py would write, and loads the checkpoints that parity_export wrote into the PyTorch
counterparts. All names and shapes must match; weights, optimizer state and evaluation loss must
be as close to double precision as single precision can be on any processor (reference.py). Not
compared: initial_weights.safetensors and digests of initial weights (check_torchvision.py,
parity_golden_test.cc)."""
import pathlib
import sys

import torch
from safetensors.torch import load_file

from case import round_erfinv_correctly
from cases import CASES
from make_golden import golden
from reference import ROUNDING, SAFETY, make_batches, reference

differences = []


def compare(what, actual, expected, tolerance):
    if actual.shape != expected.shape:
        differences.append(f"{what}: shape {tuple(actual.shape)}, PyTorch has {tuple(expected.shape)}")
        return
    error = (actual.detach().double() - expected.detach().double()).abs().max().item()
    if not error <= tolerance:
        differences.append(f"{what}: error {error:.3g}, tolerance {tolerance:.3g}")


def read_batches(file):
    names = [key.removeprefix("batch0/") for key in file if key.startswith("batch0/")]
    return [{name: file[f"batch{number}/{name}"] for name in names} for number in range(2)]


def compare_golden(name, old, new):
    if old.keys() != new.keys():
        differences.append(f"{name}: other tensors than make_golden.py writes")
    for key in sorted(old.keys() & new.keys() - {"initial_sha256"}):
        if key.endswith("#summary"):
            continue
        # Both are rounded from double precision; the last bits of normal numbers depend on the processor.
        roundings = SAFETY if key.startswith(("batch", "initial/")) else 2
        tolerance = roundings * ROUNDING[torch.float32] * new[key].double().abs().max().item()
        if key + "#summary" in old:
            tolerance += 1e-6 * old[key + "#summary"][2].item()  # of values that are 0 except for rounding
        compare(f"golden {name} {key}", old[key], new[key], tolerance)


def compare_checkpoint(case, batches, exact, tolerances, folder):
    (checkpoint,) = folder.glob("step-*")
    weights = load_file(checkpoint / "model.safetensors")
    for name, tensor in weights.items():
        compare(f"{case.name} {name}", tensor, exact.tensors["final/" + name], tolerances["final/" + name])
    actual_state = load_file(checkpoint / "optimizer.safetensors")
    expected = {name.removeprefix("state/"): name for name in exact.tensors if name.startswith("state/")}
    if actual_state.keys() != expected.keys():
        differences.append(f"{case.name}: optimizer state {sorted(actual_state.keys() ^ expected.keys())[:5]}")
    for name in actual_state.keys() & expected.keys():
        full_name = expected[name]
        compare(f"{case.name} {name}", actual_state[name], exact.tensors[full_name], tolerances[full_name])
    loaded = case.model()
    loaded.load_state_dict(weights, strict=True)  # raises if names or shapes differ
    loaded.eval()
    with torch.no_grad():
        loss = case.loss(loaded, batches[0])[1]
    compare(f"{case.name} loss", loss, exact.tensors["eval_loss"], tolerances["eval_loss"])


def main():
    folder, checkpoints = (pathlib.Path(p) for p in sys.argv[1:])
    torch.set_num_threads(1)
    round_erfinv_correctly()
    if {path.stem for path in folder.glob("*.safetensors")} != {"initial_weights", *(case.name for case in CASES)}:
        differences.append("the golden files are not those that make_golden.py writes: run it and commit them")
    for case in CASES:
        old = load_file(folder / f"{case.name}.safetensors")
        batches = read_batches(old)
        exact, tolerances, _ = reference(case, batches)
        compare_golden(case.name, old, golden(case, make_batches(case), exact, tolerances))
        compare_checkpoint(case, batches, exact, tolerances, checkpoints / case.name)
    for line in differences[:20]:
        print(line)
    print(f"{len(CASES)} cases against PyTorch {torch.__version__}: {len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
