"""Reads our files and writes test files with Python's safetensors. Exit code 77: it is not installed.

check_safetensors.py read FILE      prints one line per tensor: name dtype shape sha256-of-its-bytes
check_safetensors.py accepts DIR    loads every file in DIR; prints the names of those that fail to load
check_safetensors.py write FILE     writes a file; prints the same lines as `read`
check_safetensors.py torch FILE     loads the file with safetensors.torch and compares it with `read`
"""

import hashlib
import os
import sys

try:
    import safetensors
    import safetensors.numpy
    import numpy
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)


def lines_of(path):
    with open(path, "rb") as file:
        tensors = safetensors.deserialize(file.read())
    return sorted(
        f"{name} {tensor['dtype']} {list(tensor['shape'])} {hashlib.sha256(bytes(tensor['data'])).hexdigest()}"
        for name, tensor in tensors
    )


def write(path):
    random = numpy.random.default_rng(1)
    tensors = {
        "weights": random.standard_normal((3, 4)).astype(numpy.float32),
        "halves": random.standard_normal(5).astype(numpy.float16),
        "doubles": random.standard_normal((2, 1, 2)),
        "bytes": random.integers(0, 255, 7).astype(numpy.uint8),
        "words": random.integers(0, 9999, 3).astype(numpy.uint16),
        "steps": numpy.array(12, dtype=numpy.int64),
        "flags": numpy.array([True, False, True]),
        "none": numpy.zeros((0, 4), dtype=numpy.int32),
        'odd "name" é': numpy.zeros(1, dtype=numpy.int8),
    }
    safetensors.numpy.save_file(tensors, path, metadata={"made by": 'numpy\n"é"'})


def check_torch(path):
    try:
        import safetensors.torch
        import torch
    except ImportError as missing:
        print(missing, file=sys.stderr)
        sys.exit(77)
    loaded = safetensors.torch.load_file(path)
    expected = {name: tensor for name, tensor in safetensors.deserialize(open(path, "rb").read())}
    assert loaded.keys() == expected.keys(), (loaded.keys(), expected.keys())
    for name, tensor in loaded.items():
        assert list(tensor.shape) == list(expected[name]["shape"]), name
        have = bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
        assert have == bytes(expected[name]["data"]), name


def main(verb, path):
    if verb == "write":
        write(path)
    if verb in ("read", "write"):
        print("\n".join(lines_of(path)))
    if verb == "torch":
        check_torch(path)
    if verb == "accepts":
        for name in sorted(os.listdir(path)):
            try:
                lines_of(os.path.join(path, name))
            except Exception as error:  # the type depends on the version
                print(name, type(error).__name__, error)


main(*sys.argv[1:])
