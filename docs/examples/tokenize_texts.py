#!/usr/bin/env python3
"""Tokenizes text files into a dataset of format `tokens`, with the tokenizer of your choice.

    tokenize_texts.py --tokenizer TOKENIZER --out train.bin [--field NAME] [--end ID] FILE…

TOKENIZER is one of
    bytes                            each byte is a token; 256 is the end of a text (nothing to install)
    sentencepiece:MODEL.model        a SentencePiece model (package sentencepiece)
    tiktoken:NAME                    an encoding of tiktoken, such as gpt2 (package tiktoken)
    tokenizers:TOKENIZER.json        a Hugging Face tokenizer (package tokenizers)

Each FILE is one text; in a .jsonl file, the value under --field of each line is one. Each text is
followed by the end-of-text token of the tokenizer, or by the one set with --end. Token ids are
written as uint16 if the vocabulary has at most 65,536 tokens, otherwise as uint32, little-endian.
The output is written to a temporary file and renamed when it is complete. Finally the dataset and
model settings for the configuration are printed.
"""
import argparse
import array
import json
import os
import sys

TEXT_BATCH = 256  # texts per tokenizer call


class Bytes:
    size, end = 257, 256

    def encode(self, texts):
        return [list(text.encode()) for text in texts]


class SentencePiece:
    def __init__(self, path):
        import sentencepiece

        self.model = sentencepiece.SentencePieceProcessor(model_file=path)
        self.size = self.model.get_piece_size()
        self.end = self.model.eos_id() if self.model.eos_id() >= 0 else None

    def encode(self, texts):
        return self.model.encode(texts)


class Tiktoken:
    def __init__(self, name):
        import tiktoken

        self.encoding = tiktoken.get_encoding(name)
        self.size, self.end = self.encoding.n_vocab, self.encoding.eot_token

    def encode(self, texts):
        return self.encoding.encode_ordinary_batch(texts)


class Tokenizers:
    ENDS = ("<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>", "[SEP]")

    def __init__(self, path):
        import tokenizers

        self.tokenizer = tokenizers.Tokenizer.from_file(path)
        self.size = self.tokenizer.get_vocab_size()
        known = [self.tokenizer.token_to_id(name) for name in self.ENDS]
        self.end = next((token for token in known if token is not None), None)

    def encode(self, texts):
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False)]


def make_tokenizer(name):
    kind, _, argument = name.partition(":")
    tokenizer_classes = {"sentencepiece": SentencePiece, "tiktoken": Tiktoken, "tokenizers": Tokenizers}
    if kind == "bytes" and not argument:
        return Bytes()
    if kind not in tokenizer_classes or not argument:
        sys.exit(f"--tokenizer: '{name}' is not one of bytes, sentencepiece:FILE, tiktoken:NAME, tokenizers:FILE")
    return tokenizer_classes[kind](argument)


def read_texts(path, field):
    if not path.endswith(".jsonl"):
        with open(path, encoding="utf-8", newline="") as file:
            yield file.read()
        return
    if not field:
        sys.exit(f"{path}: set --field to the key of the texts")
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            text = json.loads(line).get(field)
            if not isinstance(text, str):
                sys.exit(f"{path}:{number}: '{field}' is not a string")
            yield text


def make_batches(paths, field):
    batch = []
    for path in paths:
        for text in read_texts(path, field):
            batch.append(text)
            if len(batch) == TEXT_BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


def write_tokens(tokenizer, batches, end, out, code):
    tokens = 0
    for batch in batches:
        for ids in tokenizer.encode(batch):
            row = array.array(code, ids)
            row.append(end)
            if sys.byteorder == "big":
                row.byteswap()
            row.tofile(out)
            tokens += len(row)
    return tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--field")
    parser.add_argument("--end", type=int)
    parser.add_argument("files", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    tokenizer = make_tokenizer(arguments.tokenizer)
    end = tokenizer.end if arguments.end is None else arguments.end
    if end is None or not 0 <= end < tokenizer.size:
        sys.exit(f"the tokenizer has no end-of-text token; set --end to one of its {tokenizer.size} tokens")
    dtype, code = ("uint16", "H") if tokenizer.size <= 65536 else ("uint32", "I")
    temporary_path = arguments.out + ".part"
    with open(temporary_path, "wb") as out:
        tokens = write_tokens(tokenizer, make_batches(arguments.files, arguments.field), end, out, code)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary_path, arguments.out)
    print(f"{tokens} tokens. In the configuration:")
    print(f"  data:  {{train: {{format: tokens, path: {arguments.out}, dtype: {dtype}}}}}")
    print(f"  model: {{name: gpt, vocab_size: {tokenizer.size}}}")


if __name__ == "__main__":
    main()
