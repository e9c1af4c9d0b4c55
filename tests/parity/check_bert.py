#!/usr/bin/env python3
"""check_bert.py FOLDER: loads what parity_bert_test exported for the cases of make_bert.py with
transformers: no missing or unexpected names, and the same logits."""
from check_huggingface import check_all, check_logits, load_complete
from make_bert import logits_of
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification


def check(case):
    expected = load_file(case / "expected.safetensors")
    auto = AutoModelForTokenClassification if expected["labels0"].dim() == 2 else AutoModelForSequenceClassification
    model = load_complete(auto, case / "exported")
    assert model.config.num_labels == expected["logits"].shape[-1], case.name
    return check_logits(model, case, logits_of)


def main():
    check_all(check, "exported folders of bert")


if __name__ == "__main__":
    main()
