#!/usr/bin/env python3
"""Compares the token ids of stoker with those of sentencepiece (PyPI).

    sentencepiece_test.py STOKER_TOKENIZE ROOT [MEGABYTES]
    sentencepiece_test.py --record ROOT    writes tests/golden/sentencepiece.json

Trains small models on the documents below ROOT and encodes the mixed text of tokenizers_test.py with
them, whole and in parts. sentencepiece rounds the sums of the scores of Unigram; where the ids differ,
those of stoker must be of the same text and at least as likely. Exit code 77: a package is missing.
"""
import io
import json
import math
import pathlib
import sys
import tempfile
import time

try:
    import numpy
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


class Unigram:
    """The text and the exact score of pieces of a model."""
    UNKNOWN_PENALTY = 10
    MAX_BYTES = 1000  # of a place

    def __init__(self, model):
        pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = range(pieces.get_piece_size())
        self.is_byte = [pieces.is_byte(i) for i in ids]
        self.text = [bytes([int(pieces.id_to_piece(i)[3:5], 16)]) if self.is_byte[i] else pieces.id_to_piece(i).encode() for i in ids]
        self.score = [pieces.get_score(i) for i in ids]
        self.unknown = min(self.score[i] for i in ids if not (self.is_byte[i] or pieces.is_control(i) or pieces.is_unknown(i))) - self.UNKNOWN_PENALTY

    def sum(self, ids):
        # Several byte tokens are one unknown character: all but the first continue it.
        is_continued = [self.is_byte[i] and self.text[i][0] & 0xC0 == 0x80 for i in ids]
        return math.fsum(self.unknown if self.is_byte[i] else self.score[i] for i, continued in zip(ids, is_continued) if not continued)

    def next_common_boundary(self, ids, expected):
        """The numbers of both sides' ids of the same text; None: the texts differ."""
        ours, theirs, i, j = b"", b"", 0, 0
        while len(ours) < self.MAX_BYTES:
            if len(ours) <= len(theirs):
                if i == len(ids):
                    return None
                ours, i = ours + self.text[ids[i]], i + 1
            else:
                if j == len(expected):
                    return None
                theirs, j = theirs + self.text[expected[j]], j + 1
            if ours == theirs:
                return i, j
        return None

    def count_rounded(self, ids, expected):
        count = 0
        while len(ids) and len(expected):
            size = min(len(ids), len(expected))
            differs = ids[:size] != expected[:size]
            at = int(numpy.argmax(differs))
            if not differs[at]:
                ids, expected = ids[size:], expected[size:]
                break
            ids, expected = ids[at:], expected[at:]
            boundary = self.next_common_boundary(ids, expected)
            if boundary is None:
                return None
            found, theirs = ids[:boundary[0]], expected[:boundary[1]]
            if self.sum(found) < self.sum(theirs):
                print(f"  less likely: {found}, {self.sum(found)}, than {theirs}, {self.sum(theirs)}")
                return None
            print(f"  {found} is more likely by {self.sum(found) - self.sum(theirs):.6f} than {theirs}")
            count += 1
            ids, expected = ids[boundary[0]:], expected[boundary[1]:]
        return None if len(ids) or len(expected) else count


def record(root):
    lines = (root / "docs/datasets.md").read_text().splitlines()
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
            rounding = {} if settings.get("model_type") == "bpe" else {"count_rounded": Unigram(model).count_rounded}
            seconds = comparison.compare(name, path, text, expected, **rounding)
            print(f"  {len(text) / 1e6 / seconds:.1f} MB/s; sentencepiece: {len(text) / 1e6 / theirs:.1f} MB/s")
    sys.exit(comparison.failed)


if __name__ == "__main__":
    main()
