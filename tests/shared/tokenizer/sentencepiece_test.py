#!/usr/bin/env python3
"""Compares the token ids of stoker with those of sentencepiece (PyPI).

    sentencepiece_test.py STOKER_TOKENIZE ROOT [MEGABYTES]
    sentencepiece_test.py --record ROOT    writes tests/golden/sentencepiece.json

Trains small models on the documents below ROOT and encodes the mixed text of tokenizers_test.py with
them, whole and in parts. Exit code 77: a package is missing.
"""
import io
import json
import pathlib
import sys
import tempfile
import time

try:
    import sentencepiece
except ImportError as missing:
    print(f"skipped: {missing}; scripts/deps.sh --peers installs it")
    sys.exit(77)

from tokenizers_test import INVALID, RECORDED, Comparison, make_text

SYMBOLS = ["<|im_start|>", "<|im_end|>", "caf\u00e9", "to be"]
# What the published models set: T5 and ALBERT, XLM-RoBERTa, Llama 2, Gemma; and what they do not.
MODELS = {
    "unigram": {},
    "unigram, byte fallback": {"byte_fallback": True, "normalization_rule_name": "nfkc_cf"},
    "unigram, identity": {"normalization_rule_name": "identity", "user_defined_symbols": SYMBOLS, "remove_extra_whitespaces": False},
    "unigram, across words": {"split_by_whitespace": False, "add_dummy_prefix": False},
    "unigram, suffix": {"treat_whitespace_as_suffix": True},
    "bpe": {"model_type": "bpe"},
    "bpe, llama": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "split_digits": True,
                   "allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False},
    "bpe, gemma": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "add_dummy_prefix": False,
                   "remove_extra_whitespaces": False, "user_defined_symbols": SYMBOLS + ["\u2581" * n for n in range(2, 9)]},
}
# Those that the C++ tests read; a table of normalization of 240 kB would be most of a file.
RULES = "41\t61\n65 301\tE9\nFB01\t66 69\nA0\t20\nAD\t\n"
GOLDEN = {
    "unigram": {"rules": RULES, "user_defined_symbols": SYMBOLS},
    "unigram, byte fallback": {"normalization_rule_name": "identity", "byte_fallback": True, "remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "bpe": {"model_type": "bpe", "rules": RULES},
    "bpe, llama": MODELS["bpe, llama"],
}
TEXTS = ["Afi\ufb01 e\u0301 x\u00ady\u00a0 \u00a0z", "  to be  or not  to be ", "\u2581a \u2581", "caf\u00e9<|im_start|>  b<|im_end|><s></s><unk><0x0A>",
         "unknown \U0001f600\U0001f601 run \u4e2d\u6587", " ", "the the the settings of a run"]


def train(lines, size, rules=None, **settings):
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as table:
        if rules:
            table.write(rules)
            table.flush()
            settings["normalization_rule_tsv"] = table.name
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, vocab_size=size, hard_vocab_limit=False,
            num_threads=1, minloglevel=2, **settings)
    return model.getvalue()


def encode(model, text):
    return sentencepiece.SentencePieceProcessor(model_proto=model).encode(text)


def record(root):
    lines = (root / "README.md").read_text().splitlines()
    rows = []
    for name, settings in GOLDEN.items():
        model = train(lines, 420, **settings)
        cases = [text.encode() for text in RECORDED + TEXTS] + INVALID
        rows.append({"name": name, "model": model.hex(),
                     "cases": [{"bytes": list(case), "ids": encode(model, case)} for case in cases]})
    (root / "tests/golden/sentencepiece.json").write_text("[" + ",\n".join(json.dumps(row) for row in rows) + "]\n")


def main():
    if sys.argv[1] == "--record":
        return record(pathlib.Path(sys.argv[2]))
    program, root = sys.argv[1], pathlib.Path(sys.argv[2])
    size = int(float(sys.argv[3] if len(sys.argv) > 3 else 10) * 1e6)
    lines = [line for page in sorted((root / "docs").glob("*.md")) for line in page.read_text().splitlines()]
    text = make_text(root, size)
    print(f"sentencepiece {sentencepiece.__version__}, {len(text)} bytes")
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(program, folder)
        for name, settings in MODELS.items():
            model = train(lines, 3000, **settings)
            path = comparison.folder / "spiece.model"
            path.write_bytes(model)
            start = time.monotonic()
            expected = encode(model, text)
            theirs = time.monotonic() - start
            seconds = comparison.compare(name, path, text, expected)
            print(f"  {len(text) / 1e6 / seconds:.1f} MB/s; sentencepiece: {len(text) / 1e6 / theirs:.1f} MB/s")
    sys.exit(comparison.failed)


if __name__ == "__main__":
    main()
