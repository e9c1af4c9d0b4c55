#!/usr/bin/env python3
"""Makes a small captioning dataset: drawn shapes in colors, "a red circle above a blue square".

FOLDER/train.jsonl and FOLDER/val.jsonl list PNG files of 32 x 32 pixels with their caption;
FOLDER/words.txt is the vocabulary. A fifth of the combinations of two shapes, their colors and
"above" or "left of" occurs in val.jsonl only. Needs only Python's standard library; the files depend
only on the arguments.

Usage: make_shapes.py FOLDER [TRAIN_IMAGES [VAL_IMAGES]]
"""
import itertools
import json
import pathlib
import random
import struct
import sys
import zlib

SIDE = 32
COLORS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (50, 80, 230), "yellow": (230, 210, 40)}
SHAPES = ("circle", "square", "triangle")
RELATIONS = ("above", "left of")


def png(rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    data = b"".join(b"\0" + bytes(row) for row in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) +
            chunk(b"IEND", b""))


def draw(rows, shape, color, x, y, radius):
    """Centered at (x, y), up to `radius` pixels to each side."""
    for dy in range(-radius, radius + 1):
        if shape == "square":
            half = radius
        elif shape == "circle":
            half = int((radius * radius - dy * dy) ** 0.5 + 0.5)
        else:
            half = (dy + radius) // 2
        row = rows[y + dy]
        for column in range(x - half, x + half + 1):
            row[3 * column:3 * column + 3] = bytes(color)


def draw_image(combination, rng):
    (first_color, first), (second_color, second), relation = combination
    background = [rng.randrange(40)] * 3
    rows = [bytearray(background * SIDE) for _ in range(SIDE)]
    radii = [rng.randint(4, 6) for _ in range(2)]
    near = [rng.randint(7, 9), rng.randint(22, 24)]  # along the relation
    across = [rng.randint(8, 23) for _ in range(2)]
    for i, (color, shape) in enumerate(((first_color, first), (second_color, second))):
        x, y = (across[i], near[i]) if relation == "above" else (near[i], across[i])
        draw(rows, shape, COLORS[color], x, y, radii[i])
    return png(rows)


def caption_of(combination):
    (first_color, first), (second_color, second), relation = combination
    return f"a {first_color} {first} {relation} a {second_color} {second}"


def main():
    folder = pathlib.Path(sys.argv[1])
    counts = {"train": int(sys.argv[2]) if len(sys.argv) > 2 else 8000,
              "val": int(sys.argv[3]) if len(sys.argv) > 3 else 580}
    objects = list(itertools.product(COLORS, SHAPES))
    combinations = list(itertools.product(objects, objects, RELATIONS))
    random.Random(1).shuffle(combinations)
    held_out = len(combinations) // 5
    parts = {"val": combinations[:held_out], "train": combinations[held_out:]}
    for name, part in parts.items():
        rng = random.Random(name)
        (folder / name).mkdir(parents=True, exist_ok=True)
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as listing:
            for i in range(counts[name]):
                combination = part[i % len(part)]
                path = f"{name}/{i:05}.png"
                (folder / path).write_bytes(draw_image(combination, rng))
                print(json.dumps({"path": path, "captions": [caption_of(combination)]}), file=listing)
    words = sorted({word for each in combinations for word in caption_of(each).split()})
    (folder / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")


main()
