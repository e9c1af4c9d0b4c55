#!/usr/bin/env python3
"""Compares the token ids of stoker with those of tokenizers and tiktoken (PyPI).

    tokenizers_test.py STOKER_TOKENIZE ROOT [MEGABYTES]
    tokenizers_test.py --record ROOT    writes tests/golden/tokenizers.json

Trains small tokenizers on the documents and sources below ROOT and encodes mixed text with them:
these files, all characters, random scripts and spaces, added tokens, and bytes that are not UTF-8,
which Python decodes with errors="replace". Each text is also encoded in parts. Exit code 77: a
package is missing.
"""
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unicodedata

try:
    import numpy
    import tokenizers
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as missing:
    print(f"skipped: {missing}; scripts/deps.sh --peers installs it")
    sys.exit(77)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level(**arguments):
    return pre_tokenizers.ByteLevel(**arguments)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert),
                                    byte_level(add_prefix_space=False, use_regex=False)])


def make_tokenizer(pre_tokenizer, texts, normalizer=None, special=SPECIAL, size=3000, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def make_tokenizers(texts):
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(add_prefix_space=False)])
    gpt2 = make_tokenizer(byte_level(add_prefix_space=False), texts)
    gpt2.add_tokens([tokenizers.AddedToken("naïve café", normalized=True), "<|im_start|>user"])
    nfc = make_tokenizer(split(QWEN2), texts, normalizers.NFC())
    nfc.add_tokens([tokenizers.AddedToken("cafe\u0301 au lait", normalized=True)])
    return {
        "gpt2": gpt2,
        "gpt2 with prefix space": make_tokenizer(byte_level(), texts),
        "llama3": make_tokenizer(split(LLAMA3), texts, ignore_merges=True),
        "qwen2": nfc,
        "cl100k, removed": make_tokenizer(split(LLAMA3, "removed", True), texts),
        "digits": make_tokenizer(digits, texts, special=[]),
        "no split": make_tokenizer(split("\n"), texts),
    }


def make_word_piece(texts, size=3000, **normalizer):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def make_word_pieces(texts):
    added = make_word_piece(texts)
    added.add_tokens([tokenizers.AddedToken("Naïve", normalized=True), "<|im_start|>user"])
    return {"bert": added,
            "bert, cased": make_word_piece(texts, lowercase=False),
            "bert, with accents": make_word_piece(texts, strip_accents=False),
            "bert, not cleaned": make_word_piece(texts, clean_text=False, handle_chinese_chars=False)}


def make_text(root, size):
    generator = random.Random(1)
    files = sorted(p for p in root.rglob("*") if p.suffix in (".md", ".cc", ".h", ".py") and ".deps" not in p.parts and "build" not in p.parts)
    # All characters are 4.4 MB; a shorter text has every seventh of those above the first scripts.
    step = 1 if size >= 5e6 else 7
    parts = [b"".join(chr(c).encode() for c in range(0x110000)
                      if not 0xD800 <= c < 0xE000 and (c < 0x3000 or c % step == 0))]
    parts.append("".join(chr(c) + "\u0301a \u0323" for c in range(32, 0x3000)).encode())
    parts.append(b"".join(bytes([a, b, c]) + b"x" for a in (0x41, 0xc3, 0xe0, 0xe2, 0xed, 0xf0, 0xf4, 0xff)
                          for b in range(0x7f, 0x100) for c in (0x20, 0x7f, 0x80, 0xbf, 0xc0, 0xf0)))
    scripts = [(0x20, 0x7f), (0xa0, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x590, 0x700), (0x900, 0xe00),
               (0x1100, 0x1200), (0x2000, 0x2070), (0x3040, 0x3100), (0x4e00, 0x9fff), (0xac00, 0xd7a4), (0x1d400, 0x1d800), (0x1f300, 0x1f700)]
    spaces = [" ", "  ", "\n", "\n\n", "\t", "\r\n", " \n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "'s", "'LL", "'ſ", "123456", "½", "", "",
              "<|endoftext|>", "<|im_start|>user", "<|im_end|", "naïve café", "cafe\u0301 au lait", "a" * 70, "=" * 300, " " * 90]
    while sum(map(len, parts)) < size:
        chosen = generator.random()
        if chosen < 0.5:
            parts.append(files[generator.randrange(len(files))].read_bytes()[:20000])
        elif chosen < 0.9:
            words = []
            for _ in range(2000):
                low, high = generator.choice(scripts)
                words.append("".join(chr(generator.randrange(low, high)) for _ in range(generator.randrange(1, 9))))
                words.append(generator.choice(spaces))
            parts.append("".join(words).encode())
        elif chosen < 0.97:
            corrupt = bytearray(parts[generator.randrange(len(parts))][:5000])
            for _ in range(len(corrupt) // 20):
                corrupt[generator.randrange(len(corrupt))] = generator.randrange(256)
            parts.append(bytes(corrupt))
        else:
            parts.append(generator.randbytes(3000))
    return b"".join(parts)


def without_new_marks(text):
    """Without the combining marks that the NFC of tokenizers (Unicode 10) does not know and does not order."""
    theirs = normalizers.NFC()
    unicode_15 = {0xECE, *range(0x10EFD, 0x10F00), 0x1E08F, *range(0x1E4EC, 0x1E4F0)}
    for code in range(0x300, 0x20000):
        mark = chr(code)
        if code in unicode_15 or unicodedata.combining(mark) and any(
                theirs.normalize_str(word) != unicodedata.normalize("NFC", word)
                for word in ("\u0334" + mark + "\u0301", "\u0301" + mark + "\u0323")):
            text = text.replace(mark.encode(), b"?")
    return text


class Comparison:
    def __init__(self, program, folder):
        self.program, self.folder, self.failed = program, pathlib.Path(folder), False

    def ids(self, tokenizer, text, *arguments):
        (self.folder / "text").write_bytes(text)
        subprocess.run([self.program, tokenizer, self.folder / "text", self.folder / "ids", *arguments], check=True)
        return numpy.fromfile(self.folder / "ids", dtype="<i4")

    def compare(self, name, tokenizer, text, expected, count_rounded=lambda ids, expected: None):
        """count_rounded: the number of places where the other library rounds, if all differences are such places, or None."""
        expected = numpy.array(expected, dtype="<i4")
        start = time.monotonic()
        found = self.ids(tokenizer, text)
        seconds = time.monotonic() - start
        for what, ids in (("whole", found), ("in parts", self.ids(tokenizer, text, "5000"))):
            equal = len(ids) == len(expected) and bool((ids == expected).all())
            at = 0 if equal else int(numpy.argmin(ids[:len(expected)] == expected[:len(ids)]))
            different = f"different from index {at}: {ids[at - 3:at + 5]}, expected {expected[at - 3:at + 5]}"
            rounded = None if equal else count_rounded(ids, expected)
            if rounded is not None:
                different += f"; all {rounded} such places are of rounding"
            print(f"{name}, {what}: {len(expected)} ids, {'equal' if equal else different}")
            self.failed |= not equal and rounded is None
        return seconds


def compare_tokenizers(comparison, texts, text):
    known = without_new_marks(text)
    for name, tokenizer in [*make_tokenizers(texts).items(), *make_word_pieces(texts).items()]:
        compared = known if tokenizer.normalizer else text
        path = comparison.folder / "tokenizer.json"
        tokenizer.save(str(path))
        start = time.monotonic()
        expected = tokenizer.encode(compared.decode(errors="replace"), add_special_tokens=False).ids
        theirs = time.monotonic() - start
        seconds = comparison.compare(name, path, compared, expected)
        print(f"  {len(text) / 1e6 / seconds:.1f} MB/s; tokenizers: {len(text) / 1e6 / theirs:.1f} MB/s")


def compare_tiktoken(comparison, texts, text):
    import tiktoken  # which sentencepiece_test.py does not need
    # The number of ranks of r50k_base, most of them pairs of bytes that text does not have.
    tokenizer = make_tokenizer(byte_level(add_prefix_space=False), texts, special=[])
    bytes_of = {character: byte for byte, character in bytes_to_unicode().items()}
    vocabulary = tokenizer.get_vocab()
    ranks = {bytes(bytes_of[c] for c in token): rank for token, rank in vocabulary.items()}
    for first in range(256):
        for second in range(256):
            if len(ranks) < 50256:
                ranks.setdefault(bytes([255 - first, second]), len(ranks))
    path = comparison.folder / "r50k_base.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    encoding = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    comparison.compare("tiktoken", path, text, encoding.encode_ordinary(text.decode(errors="replace")))


def bytes_to_unicode():
    shown = [*range(33, 127), *range(0xa1, 0xad), *range(0xae, 0x100)]
    characters = {byte: chr(byte) for byte in shown}
    for byte in range(256):
        if byte not in characters:
            characters[byte] = chr(256 + len(characters) - len(shown))
    return characters


RECORDED = ["", "to be, or not to be", "Don't  you'LL we'Ve\n\n\tx \r\n", "12345 \u00bd \u0663\u0664 3.14", "caf\u00e9 cafe\u0301 \u0301a",
            "\u4e2d\u6587 \ud55c\uad6d\uc5b4 \u0939\u093f\u0928\u094d\u0926\u0940", "a <|endoftext|> b<|im_start|>user", " \u00a0\u3000\u2028x \u180ey",
            "\U0001f600\U0001f468\u200d\U0001f469 =====", "xNameOf_a.bCd(e)  //f"]
INVALID = [b"a\xffb\xe2\x82", b"\xed\xa0\x80\xf0\x9f\x98", bytes(range(256))]


def record(root):
    """Small cases of some tokenizers, which the C++ tests read."""
    texts = [(root / "docs/datasets.md").read_text()]
    made = {"gpt2": make_tokenizer(byte_level(add_prefix_space=False), texts, size=300),
            "prefix space": make_tokenizer(byte_level(), texts, size=300, special=[]),
            "llama3": make_tokenizer(split(LLAMA3), texts, size=300, ignore_merges=True),
            "qwen2": make_tokenizer(split(QWEN2), texts, normalizers.NFC(), size=300),
            "bert": make_word_piece(texts, size=300)}
    cases = [text.encode() for text in RECORDED] + INVALID
    rows = [{"name": name, "tokenizer": json.loads(tokenizer.to_str()),
             "cases": [{"bytes": list(case), "ids": tokenizer.encode(case.decode(errors="replace"), add_special_tokens=False).ids}
                       for case in cases]} for name, tokenizer in made.items()]
    (root / "tests/golden/tokenizers.json").write_text("[" + ",\n".join(json.dumps(row) for row in rows) + "]\n")


def main():
    if sys.argv[1] == "--record":
        return record(pathlib.Path(sys.argv[2]))
    program, root = sys.argv[1], pathlib.Path(sys.argv[2])
    size = int(float(sys.argv[3] if len(sys.argv) > 3 else 10) * 1e6)
    texts = [p.read_text(errors="replace") for p in sorted((root / "docs").glob("*.md"))]
    text = make_text(root, size)
    print(f"tokenizers {tokenizers.__version__}, {len(text)} bytes")
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(program, folder)
        compare_tokenizers(comparison, texts, text)
        compare_tiktoken(comparison, texts, text)
    sys.exit(comparison.failed)


if __name__ == "__main__":
    main()
