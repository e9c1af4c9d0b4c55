#!/usr/bin/env python3
"""check_inputs.py GOLDEN FOLDER: whether torchvision still computes the inputs that parity_inputs_test.cc compares
with."""
import pathlib
import sys

from safetensors.torch import load_file
from torch.testing import assert_close

import make_inputs


def main():
    golden, folder = pathlib.Path(sys.argv[1]), sys.argv[2]
    sys.argv = ["make_inputs.py", folder]
    make_inputs.main()
    name = "inputs.safetensors"
    assert_close(load_file(pathlib.Path(folder) / name), load_file(golden / "inputs" / name))


if __name__ == "__main__":
    main()
