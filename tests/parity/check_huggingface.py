#!/usr/bin/env python3
"""check_huggingface.py FOLDER: loads what parity_huggingface_test exported for the cases of
make_huggingface.py with transformers: no missing or unexpected names, and the same logits."""
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

TOLERANCE = 1e-5  # relative to the largest logit


def load_complete(auto, folder):
    """The model, of which the folder has all weights, and no others."""
    model, report = auto.from_pretrained(folder, output_loading_info=True)
    different = {what: names for what, names in report.items() if names}
    assert not different, f"{folder}: {different}"
    return model.eval()


def next_token_logits(model, expected):
    return model(expected["tokens0"][:, :-1]).logits


def check_logits(model, case, logits_of=next_token_logits):
    expected = load_file(case / "expected.safetensors")
    with torch.no_grad():
        logits = logits_of(model.eval(), expected)
    error = (logits - expected["logits"]).abs().max() / expected["logits"].abs().max()
    assert error <= TOLERANCE, f"{case.name}: logits differ by {error:.1e}"
    return error.item()


def check_all(check, what):
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    cases = sorted(path.parent for path in Path(sys.argv[1]).glob("*/exported"))
    assert cases, f"{sys.argv[1]}: nothing was exported"
    print(f"{len(cases)} {what} loaded; largest difference of logits {max(map(check, cases)):.1e}")


def check(case):
    return check_logits(load_complete(AutoModelForCausalLM, case / "exported"), case)


def main():
    check_all(check, "exported folders")


if __name__ == "__main__":
    main()
