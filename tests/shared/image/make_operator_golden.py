#!/usr/bin/env python3
"""Prints operator_golden.txt: results of torchvision.transforms.v2.functional on uint8 tensors that the test generates, too.

Usage: make_operator_golden.py > operator_golden.txt        (requires torch and torchvision)

Each line contains: image, its height, width and channels; the operator (a name of image_operators.h), the interpolation, the fill ("none" or a
level per channel), the number of parameters and the parameters; the output planes in hexadecimal.
"""
import torch
import torchvision
from torchvision.transforms.v2 import functional as F
from torchvision.transforms.functional import _get_perspective_coeffs

SIZES = [("pattern", 13, 17, 3), ("dark", 12, 12, 3), ("pattern", 11, 16, 1)]


def make_image(name, height, width, channels):
    y = torch.arange(height).view(1, -1, 1)
    x = torch.arange(width).view(1, 1, -1)
    c = torch.arange(channels).view(-1, 1, 1)
    pixels = (x * 7 + y * 13 + c * 50 + (x * y) % 31 * 5) % 256
    return (pixels // 3 + 40 if name == "dark" else pixels).to(torch.uint8)


def affine(image, interpolation, fill, angle, x, y, scale, shear_x, shear_y, center_x, center_y):
    center = [image.shape[2] / 2 + center_x, image.shape[1] / 2 + center_y]
    return F.affine(image, angle, [x, y], scale, [shear_x, shear_y], interpolation, fill, center)


def simple(function):
    return lambda image, interpolation, fill, *numbers: function(image, *numbers)


def erase(image, interpolation, fill, top, left, height, width):
    return F.erase(image, top, left, height, width, torch.tensor(fill, dtype=torch.uint8).view(-1, 1, 1))


def perspective(image, interpolation, fill, *coefficients):
    return F.perspective(image, None, None, interpolation, fill, list(coefficients))


OPERATORS = {
    "flip": simple(F.horizontal_flip),
    "vertical_flip": simple(F.vertical_flip),
    "brightness": simple(F.adjust_brightness),
    "contrast": simple(F.adjust_contrast),
    "saturation": simple(F.adjust_saturation),
    "hue": simple(F.adjust_hue),
    "sharpness": simple(F.adjust_sharpness),
    "grayscale": simple(lambda image: F.rgb_to_grayscale(image, image.shape[0])),
    "invert": simple(F.invert),
    "posterize": simple(F.posterize),
    "solarize": simple(F.solarize),
    "autocontrast": simple(F.autocontrast),
    "equalize": simple(F.equalize),
    "gaussian_blur": simple(lambda image, size, sigma: F.gaussian_blur(image, [size, size], [sigma, sigma])),
    "erase": erase,
    "affine": affine,
    "perspective": perspective,
}
POINTS = [
    [[2, 1], [14, 3], [15, 11], [1, 9]],
    [[0, 0], [11, 4], [16, 12], [4, 10]],
]


def cases(height, width, channels):
    fill = [200, 10, 90][:channels]
    for name in ("flip", "vertical_flip", "grayscale", "invert", "autocontrast", "equalize"):
        yield name, "nearest", None, []
    for name in ("brightness", "contrast", "saturation", "sharpness"):
        for factor in (0.0, 0.1, 0.73, 1.27, 1.9):
            yield name, "nearest", None, [factor]
    for turn in (-0.4, 0.1):
        yield "hue", "nearest", None, [turn]
    for bits in (0, 3, 8):
        yield "posterize", "nearest", None, [bits]
    for threshold in (0.0, 127.5, 128.0, 255.0):
        yield "solarize", "nearest", None, [threshold]
    for size, sigma in ((1, 1.0), (3, 0.1), (5, 1.3), (9, 2.0)):
        yield "gaussian_blur", "nearest", None, [size, sigma]
    yield "erase", "nearest", fill, [2, 3, 5, 7]
    corner = [-width / 2, -height / 2]
    parameters = [
        [0.0, 3, -2, 1.0, 0.0, 0.0, 0, 0],
        [30.0, 0, 0, 1.0, 0.0, 0.0, 0, 0],
        [-90.0, 0, 0, 1.0, 0.0, 0.0, 0, 0],
        [0.0, 0, 0, 1.0, 16.7, 0.0] + corner,
        [0.0, 0, 0, 1.0, 0.0, -44.7] + corner,
        [-17.3, 2, 1, 0.7, 5.0, -3.0, 0, 0],
        [125.0, -1, 4, 1.6, 0.0, 12.0, 2.5, -1],
    ]
    for each in parameters:
        for interpolation in ("nearest", "bilinear"):
            for level in (None, fill):
                yield "affine", interpolation, level, each
    corners = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    for points in POINTS:
        coefficients = _get_perspective_coeffs(corners, points)
        for interpolation in ("nearest", "bilinear"):
            for level in (None, fill):
                yield "perspective", interpolation, level, coefficients


def main():
    print(f"# Made by make_operator_golden.py with torchvision {torchvision.__version__.split('+')[0]}.")
    for size in SIZES:
        image = make_image(*size)
        for name, interpolation, fill, numbers in cases(*size[1:]):
            mode = torchvision.transforms.InterpolationMode(interpolation)
            planes = OPERATORS[name](image.clone(), mode, fill, *numbers)
            level = "none" if fill is None else ",".join(map(str, fill))
            print(*size, name, interpolation, level, len(numbers), *numbers, planes.numpy().tobytes().hex())
    corners = [[0, 0], [16, 0], [16, 12], [0, 12]]
    for points in POINTS:
        print("coefficients", *(number for point in points for number in point), *_get_perspective_coeffs(corners, points))


if __name__ == "__main__":
    main()
