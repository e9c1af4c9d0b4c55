#!/usr/bin/env python3
"""Prints resize_golden.txt: results of Pillow's resize(..., box=...) on images that the test generates, too.

Usage: make_resize_golden.py > resize_golden.txt        (requires Pillow and numpy)

Each line contains: image, its height and width, channels, the box (left top width height), the output height and width,
the interpolation, and the output planes in hexadecimal.
"""
import numpy
import PIL
from PIL import Image

WHOLE = None
CASES = [
    # image, height, width, channels, box, output height, output width
    ("pattern", 23, 37, 3, WHOLE, 9, 16),
    ("pattern", 23, 37, 3, WHOLE, 30, 20),
    ("pattern", 23, 37, 3, WHOLE, 20, 5),
    ("pattern", 23, 37, 3, WHOLE, 5, 40),
    ("pattern", 23, 37, 1, WHOLE, 9, 16),
    ("pattern", 23, 37, 1, WHOLE, 48, 17),
    ("pattern", 23, 37, 1, WHOLE, 23, 37),
    ("pattern", 23, 37, 3, WHOLE, 1, 1),
    ("pattern", 1, 1, 3, WHOLE, 3, 4),
    ("pattern", 60, 90, 3, (13, 7, 40, 30), 20, 18),
    ("pattern", 60, 90, 3, (13, 7, 20, 18), 18, 20),
    ("pattern", 60, 90, 3, (50, 20, 16, 20), 20, 16),
    ("pattern", 60, 90, 1, (0, 0, 45, 60), 33, 19),
    ("pattern", 60, 90, 1, (45, 30, 45, 30), 18, 33),
    ("pattern", 60, 90, 3, (4.5, 2.25, 70.25, 50.5), 20, 20),
    ("pattern", 60, 90, 1, (88.5, 58.5, 1.5, 1.5), 7, 9),
    ("pattern", 60, 90, 1, (30.3, 20.7, 0.4, 0.4), 3, 3),
    ("pattern", 400, 500, 1, WHOLE, 12, 20),
    ("pattern", 1000, 30, 1, WHOLE, 10, 10),
    ("pattern", 30, 1000, 3, (0, 0, 1000, 30), 8, 8),
    ("checker", 60, 90, 3, WHOLE, 21, 25),
    ("checker", 60, 90, 1, (10.5, 10.5, 40, 40), 39, 37),
    ("checker", 300, 300, 1, WHOLE, 20, 20),
    ("white", 50, 50, 1, WHOLE, 20, 70),
]


def make_image(name, height, width):
    y, x, c = numpy.meshgrid(range(height), range(width), range(3), indexing="ij")
    if name == "pattern":
        pixels = x * 7 + y * 13 + c * 50 + (x * y) % 31 * 5
    elif name == "checker":
        pixels = (x // 3 + y // 2 + c) % 2 * 255
    else:
        pixels = numpy.full_like(x, 255)
    return Image.fromarray((pixels % 256).astype(numpy.uint8))


def main():
    print(f"# Made by make_resize_golden.py with Pillow {PIL.__version__}.")
    for interpolation in ("bilinear", "nearest", "bicubic"):
        write_lines(interpolation, CASES if interpolation == "bilinear" else CASES[:16])


def write_lines(interpolation, cases):
    for name, height, width, channels, box, out_height, out_width in cases:
        image = make_image(name, height, width).convert("RGB" if channels == 3 else "L")
        left, top, box_width, box_height = box or (0, 0, width, height)
        edges = (left, top, left + box_width, top + box_height)
        small = numpy.asarray(image.resize((out_width, out_height), Image.Resampling[interpolation.upper()], box=edges))
        planes = small.reshape(out_height, out_width, channels).transpose(2, 0, 1)
        print(name, height, width, channels, left, top, box_width, box_height, out_height, out_width, interpolation,
              planes.tobytes().hex())


if __name__ == "__main__":
    main()
