#!/usr/bin/env python3
"""check_peft.py FOLDER: loads with PEFT the adapters that parity_peft_test exported for the cases of
make_peft.py: no missing or unexpected names, and the same logits."""
from check_huggingface import check_all, check_logits
from peft import LoraConfig, get_peft_model, load_peft_weights, set_peft_model_state_dict
from transformers import AutoModelForCausalLM


def check(case):
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
    return check_logits(model, case)


if __name__ == "__main__":
    check_all(check, "adapters")
