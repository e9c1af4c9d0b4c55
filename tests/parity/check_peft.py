#!/usr/bin/env python3
"""check_peft.py FOLDER: loads with PEFT the adapters that parity_peft_test exported for the cases of
make_peft.py: no missing or unexpected names, and the same logits."""
import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model, load_peft_weights, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

TOLERANCE = 1e-5  # relative to the largest logit


def check(case):
    expected = load_file(case / "expected.safetensors")
    base = AutoModelForCausalLM.from_pretrained(case)
    config = LoraConfig.from_pretrained(case / "exported")
    config.inference_mode = False  # the adapter's parameters require a gradient
    model = get_peft_model(base, config)
    weights = load_peft_weights(case / "exported", device="cpu")
    report = set_peft_model_state_dict(model, weights)
    assert not report.unexpected_keys, f"{case.name}: unexpected {report.unexpected_keys}"
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    missing = sorted(set(report.missing_keys) & set(trained))
    assert not missing and len(weights) == len(trained), f"{case.name}: missing {missing}"
    with torch.no_grad():
        logits = model.eval()(expected["tokens0"][:, :-1]).logits
    error = (logits - expected["logits"]).abs().max() / expected["logits"].abs().max()
    assert error <= TOLERANCE, f"{case.name}: logits differ by {error:.1e}"
    return error.item()


def main():
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    cases = sorted(path.parent for path in Path(sys.argv[1]).glob("*/exported"))
    assert cases, f"{sys.argv[1]}: nothing was exported"
    print(f"{len(cases)} adapters loaded; largest difference of logits {max(map(check, cases)):.1e}")


if __name__ == "__main__":
    main()
