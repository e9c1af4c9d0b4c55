#!/usr/bin/env python3
"""Records 1,000 captions with references and their scores: tests/golden/captions.jsonl.

Needs Java and pycocoevalcap 1.2 (pip install pycocoevalcap==1.2). The first line has the scores of
all captions, each other line a caption, its references, its words and its CIDEr-D.

Usage: make_captions_golden.py OUTPUT
"""
import contextlib
import json
import random
import sys

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

COUNT = 1000
SUBJECTS = [
    "a man", "two women", "a dog's owner", "the boys' team", "a black-and-white cat", "an old couple",
    "a t-shirt", "someone", "a 10-year-old girl", "three people", "A B&W photo", "Mr. Smith",
    "a U.S. soldier", "a little girl who's happy", "Kids", "an AT&T truck", "a rock'n'roll band",
    "a woman (left)", "the #1 player", "a half-eaten pizza", 'A cat named "Tom"', "a café owner",
    "people", "O'Brien's horse", "a 3D model", "le garçon", "the man’s “best” friend"]
VERBS = [
    "is riding", "isn't holding", "sits on", "can't reach", "stares at", "is standing next to",
    "jumps over", "doesn't want", "is eating", "are playing with", "wearing", "won't stop near",
    "they're watching", "we've seen", "it'll carry", "cannot see", "is gonna catch", "walks past",
    "I'd like", "'tis near"]
OBJECTS = [
    "a wave", "the red/white/blue flag", "a bench", "2 dogs", "a 50% off sign", "the t.v.",
    "St. Mary's church", "a bottle of O.J.", "a skateboard", "5th Ave.", "1/2 of a sandwich",
    "an apple, a pear, and a plum", "a $3.50 sandwich", "3,000 sheep", "an open-air market",
    "a bus at 10:30 a.m.", 'the "stop" sign', "a kite/balloon", "the man's & woman's bikes",
    "the giraffe", "'smart' phones", "a fire-hydrant", "a traffic light", "snow", "[a box]",
    "#surf", "a 4x4 truck", "jan. 5 news"]
ENDS = [
    ".", " .", "!", "...", " in the background", ", and smiles.", " -- in the rain.", " - at night",
    " on a sunny day.", " (in color)", "; it's fun", " w/ friends", " etc.", " near the water?",
    "!!", " at the top of the hill", " next to mt. Fuji", " in the '90s.", ".A second sentence", "",
    "…", " — again"]


def changed(caption, rng):
    """The caption with some words dropped, repeated or replaced."""
    words = caption.split()
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(words))
        kind = rng.randrange(3)
        if kind == 0 and len(words) > 1:
            del words[at]
        elif kind == 1:
            words.insert(at, words[at])
        else:
            words[at] = rng.choice(OBJECTS)
    return " ".join(words)


def main():
    rng = random.Random(7)
    parts = (SUBJECTS, VERBS, OBJECTS)
    new = lambda: " ".join(rng.choice(part) for part in parts) + rng.choice(ENDS)
    references, captions = {}, {}
    for i in range(COUNT):
        references[i] = [{"caption": new()} for _ in range(1 + rng.randrange(4))]
        captions[i] = [{"caption": changed(rng.choice(references[i])["caption"], rng)}]
    with contextlib.redirect_stdout(sys.stderr):
        tokenizer = PTBTokenizer()
        reference_words = tokenizer.tokenize(references)
        caption_words = tokenizer.tokenize(captions)
        bleu, _ = Bleu(4).compute_score(reference_words, caption_words, verbose=0)
        cider, of_each = Cider().compute_score(reference_words, caption_words)
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        print(json.dumps({"bleu": bleu, "cider_d": cider}), file=out)
        for i in range(COUNT):
            row = {"caption": captions[i][0]["caption"],
                   "references": [each["caption"] for each in references[i]],
                   "words": caption_words[i][0], "cider_d": round(of_each[i], 12)}
            print(json.dumps(row, ensure_ascii=False), file=out)


main()
