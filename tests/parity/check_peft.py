#!/usr/bin/env python3
"""check_peft.py FOLDER: loads with PEFT the adapters that parity_peft_test exported for the cases of
make_peft.py: no missing or unexpected names, and the same logits."""
import json

import make_bert
import transformers
from check_huggingface import check_all, check_logits, next_token_logits
from make_peft import load_vit
from peft import LoraConfig, get_peft_model, load_peft_weights, set_peft_model_state_dict
from safetensors.torch import load_file, load_model


def load_base(case):
    if not (case / "config.json").exists():
        model = load_vit(load_file(case / "expected.safetensors")["vit_sizes"])
        load_model(model, case / "model.safetensors")
        return model, lambda model, batch: model(batch["images0"])
    architecture = json.loads((case / "config.json").read_text())["architectures"][0]
    model = getattr(transformers, architecture).from_pretrained(case)
    return model, make_bert.logits_of if architecture.startswith("Bert") else next_token_logits


def check(case):
    base, logits_of = load_base(case)
    config = LoraConfig.from_pretrained(case / "exported")
    config.inference_mode = False  # the adapter's parameters require a gradient
    model = get_peft_model(base, config)
    weights = load_peft_weights(case / "exported", device="cpu")
    report = set_peft_model_state_dict(model, weights)
    assert not report.unexpected_keys, f"{case.name}: unexpected {report.unexpected_keys}"
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    missing = sorted(set(report.missing_keys) & set(trained))
    assert not missing and len(weights) == len(trained), f"{case.name}: missing {missing}"
    return check_logits(model, case, logits_of)


def main():
    check_all(check, "adapters")


if __name__ == "__main__":
    main()
