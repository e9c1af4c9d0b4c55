#!/usr/bin/env python3
"""Prints policy_golden.txt: the spaces, policies and operators of torchvision.transforms.v2's automatic augmentation.

Usage: make_policy_golden.py > policy_golden.txt        (requires torch and torchvision)

Lines:
  magnitude SPACE OPERATOR SIGNED HEIGHT WIDTH BINS MAGNITUDE...      one magnitude per bin; none: the operator has none
  step POLICY PAIR OPERATOR PROBABILITY MAGNITUDE                     an operator of AutoAugment; its magnitude for images of 10 x 14
  operator OPERATOR MAGNITUDE PLANES                                  the result, in hexadecimal, for the image of the test
"""
import torch
import torchvision
from torchvision.transforms import AutoAugmentPolicy, InterpolationMode
from torchvision.transforms.v2 import AugMix, AutoAugment, RandAugment, TrivialAugmentWide

SPACES = [("RandAugment", RandAugment, 31), ("RandAugment", RandAugment, 11), ("TrivialAugmentWide", TrivialAugmentWide, 31),
          ("AutoAugment", AutoAugment, 10), ("AugMix", AugMix, 10)]
SIZES = [(10, 14), (224, 176)]
OPERATORS = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness", "Posterize",
             "Solarize", "AutoContrast", "Equalize", "Invert"]
MAGNITUDES = {"ShearX": [0.21, -0.3], "ShearY": [0.3], "TranslateX": [3.9, -4.2], "TranslateY": [-2.5], "Rotate": [21.0, -30.0],
              "Brightness": [0.27, -0.9], "Color": [0.54], "Contrast": [-0.36], "Sharpness": [0.9, -0.5], "Posterize": [5.0],
              "Solarize": [0.7]}


def image():
    y, x, c = torch.arange(10).view(1, -1, 1), torch.arange(14).view(1, 1, -1), torch.arange(3).view(-1, 1, 1)
    return ((x * 7 + y * 13 + c * 50 + (x * y) % 31 * 5) % 256).to(torch.uint8)


def main():
    print(f"# Made by make_policy_golden.py with torchvision {torchvision.__version__.split('+')[0]}.")
    for name, policy, bins in SPACES:
        for operator, (magnitudes_of, is_signed) in policy()._AUGMENTATION_SPACE.items():
            for height, width in SIZES:
                magnitudes = magnitudes_of(bins, height, width)
                values = [] if magnitudes is None else [float(each) for each in magnitudes]
                print("magnitude", name, operator, int(is_signed), height, width, bins, *values)
    for policy in AutoAugmentPolicy:
        space = AutoAugment._AUGMENTATION_SPACE
        for pair, steps in enumerate(AutoAugment()._get_policies(policy)):
            for operator, probability, magnitude_bin in steps:
                magnitudes = space[operator][0](10, 10, 14)
                magnitude = 0.0 if magnitudes is None else float(magnitudes[magnitude_bin])
                print("step", policy.value, pair, operator, probability, magnitude)
    for operator in OPERATORS:
        for magnitude in MAGNITUDES.get(operator, [0.0]):
            planes = RandAugment()._apply_image_or_video_transform(image(), operator, magnitude, InterpolationMode.NEAREST, {torch.Tensor: None})
            print("operator", operator, magnitude, planes.numpy().tobytes().hex())


if __name__ == "__main__":
    main()
