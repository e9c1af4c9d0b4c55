#!/usr/bin/env python3
"""check_bert.py FOLDER: loads what parity_bert_test exported for the cases of make_bert.py with
transformers: no missing or unexpected names, and the same logits."""
import torch
from check_huggingface import TOLERANCE, check_all
from make_bert import SEP
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification


def check(case):
    expected = load_file(case / "expected.safetensors")
    tokens, is_per_token = expected["tokens0"], expected["labels0"].dim() == 2
    auto = AutoModelForTokenClassification if is_per_token else AutoModelForSequenceClassification
    model, report = auto.from_pretrained(case / "exported", output_loading_info=True)
    different = {what: names for what, names in report.items() if names}
    assert not different, f"{case.name}: {different}"
    assert model.config.num_labels == expected["logits"].shape[-1], case.name
    mask = None
    if "lengths0" in expected:
        mask = (torch.arange(tokens.shape[1]) < expected["lengths0"][:, None]).long()
    ends = (tokens == SEP).long()
    types = (ends.cumsum(1) - ends).clamp(max=model.config.type_vocab_size - 1)
    with torch.no_grad():
        logits = model.eval()(tokens, attention_mask=mask, token_type_ids=types).logits
    error = (logits - expected["logits"]).abs().max() / expected["logits"].abs().max()
    assert error <= TOLERANCE, f"{case.name}: logits differ by {error:.1e}"
    return error.item()


if __name__ == "__main__":
    check_all(check, "exported folders of bert")
