"""Reads our files and writes test files with PyTorch. Exit code 77: it is not installed.

check_torch.py read FILE    loads the file with weights_only=True; prints one line per tensor: name dtype shape
                            sha256-of-its-bytes
check_torch.py load_dcp DIR loads the folder with torch.distributed.checkpoint into a model and its optimizer; prints
                            the same lines, of the names of their state_dict
check_torch.py load_any_dcp DIR loads all tensors that the folder names, in the same way; prints the same lines
check_torch.py write DIR    writes files of many kinds to DIR, each with a file of the same lines next to it
"""

import hashlib
import os
import sys

try:
    import torch
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)

NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.uint16: "U16", torch.bool: "BOOL",
}


def line_of(name, tensor):
    tensor = tensor.detach().contiguous()
    data = bytes(tensor.reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""
    return f"{name} {NAMES[tensor.dtype]} {list(tensor.shape)} {hashlib.sha256(data).hexdigest()}"


def lines_of(tensors, prefix=""):
    lines = []
    for name, value in tensors.items():
        if isinstance(value, dict):
            lines += lines_of(value, prefix + name + ".")
        elif isinstance(value, torch.Tensor):
            lines.append(line_of(prefix + name, value))
        else:
            lines.append(f"{prefix}{name} = {value!r}")
    return sorted(lines)


def save(folder, name, value, weights, **how):
    torch.save(value, os.path.join(folder, name), **how)
    with open(os.path.join(folder, name + ".lines"), "w") as file:
        file.write("".join(line + "\n" for line in lines_of(weights)))


def write(folder):
    torch.manual_seed(1)
    every = {}
    for dtype, name in NAMES.items():
        every[name] = (torch.rand(3, 5) * 100).to(dtype)
    save(folder, "every_dtype.pt", every, every)

    base = torch.randn(6, 4)
    views = {
        "transposed": base.t(), "row": base[3], "column": base[:, 1], "every_other": base[::2, 1::2], "whole": base,
        "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 7), "expanded": torch.randn(1, 4).expand(5, 4),
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1), "channels_last": torch.randn(2, 3, 4, 4).contiguous(
            memory_format=torch.channels_last), "odd name é": torch.ones(1),
    }
    save(folder, "views.pt", views, views)

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(),
                                torch.nn.Linear(16, 2))
    weights = model.state_dict()
    save(folder, "state_dict.pth", weights, weights)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
    model(torch.randn(2, 3, 4, 4)).sum().backward()
    optimizer.step()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
    for nest in ("state_dict", "model_state_dict", "model"):
        whole = {"epoch": 3, "best": 0.25, nest: weights, "optimizer": optimizer.state_dict(), "none": None,
                 "schedule": schedule.state_dict(), "big": 1 << 100, "negative": -7, "shape": torch.ones(2, 3).shape,
                 "device": torch.device("cpu"), "list": [1, (2, "x")], "dtype": torch.float16}
        save(folder, f"trainer_{nest}.bin", whole, weights)
    save(folder, "parameters.pt", dict(model.named_parameters()), dict(model.named_parameters()))
    torch.serialization.set_crc32_options(False)
    save(folder, "no_checksums.pt", weights, weights)
    torch.serialization.set_crc32_options(True)
    # Rejected by stoker, each with a specific error.
    torch.save(weights, os.path.join(folder, "refused_legacy.pt"), _use_new_zipfile_serialization=False)
    torch.save(model, os.path.join(folder, "refused_module.pt"))
    torch.save({"w": torch.ones(2, dtype=torch.complex64)}, os.path.join(folder, "refused_complex.pt"))
    torch.save(weights, os.path.join(folder, "refused_protocol.pt"), pickle_protocol=4)
    torch.save({"w": torch.ones(2, 2).to_sparse()}, os.path.join(folder, "refused_sparse.pt"))


def load_dcp(folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": {"state": optimizer_state["state"]}}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(folder))
    optimizer_state["state"] = state["optim"]["state"]
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=optimizer_state)
    names = [name for name, _ in model.named_parameters()]
    moments = {names[i]: each for i, each in optimizer.state_dict()["state"].items()}
    print("\n".join(lines_of({"model": model.state_dict(), "optim": {"state": moments}})))


def load_any_dcp(folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    saved = HuggingFaceStorageReader(folder).read_metadata().state_dict_metadata
    state = {name: torch.zeros(each.size, dtype=each.properties.dtype) for name, each in saved.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(folder))
    print("\n".join(lines_of(state)))


def main(verb, path):
    if verb == "load_any_dcp":
        load_any_dcp(path)
    if verb == "load_dcp":
        load_dcp(path)
    if verb == "read":
        lines = lines_of(torch.load(path, weights_only=True))
        assert lines == lines_of(torch.load(path, weights_only=True, mmap=True))
        print("\n".join(lines))
    if verb == "write":
        write(path)


main(*sys.argv[1:])
