"""What the example batch and the folder of an export must be."""
import contextlib
import os
import shutil
import tempfile

import torch

from . import ExportError

DTYPES = {  # as in safetensors
    torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}


def first_line(error):
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def as_tensors(value, what):
    tensors = [value] if isinstance(value, torch.Tensor) else value
    if not isinstance(tensors, (tuple, list)) or not all(isinstance(t, torch.Tensor) for t in tensors):
        raise ExportError(f"{what} must be a tensor or a tuple of tensors, not {type(value).__name__}")
    return list(tensors)


def check_batch(tensors, fields=None):
    """`fields`: their names, if they have any."""
    for i, tensor in enumerate(tensors):
        what = f"{fields[i] if fields else f'tensor {i}'} of the example batch"
        if tensor.device.type != "cpu":
            raise ExportError(f"{what} is on {tensor.device}: move the module and the batch to the CPU for the export; train.device of the run "
                              "chooses the device")
        if tensor.dtype not in DTYPES:
            raise ExportError(f"{what} is {tensor.dtype}, which datasets do not have")
        if tensor.dtype == torch.float64:
            raise ExportError(f"{what} is torch.float64; stokerd passes torch.float32: convert it with .float()")
        if tensor.dim() == 0 or tensor.size(0) != tensors[0].size(0):
            raise ExportError(f"{what} has the shape {list(tensor.shape)}; the first dimension must be the batch of "
                              f"{tensors[0].size(0) if tensors[0].dim() else 'the input'}")
    if tensors[0].size(0) < 2:
        raise ExportError("the example batch has one sample; use two or more, else PyTorch fixes the batch size at 1")


def check_can_write(path, files, overwrite):
    if os.path.lexists(path) and not overwrite:
        raise ExportError(f"{path} exists; choose another folder or overwrite it with overwrite=True (--overwrite)")
    if os.path.lexists(path) and not (os.path.isdir(path) and set(os.listdir(path)) <= set(files)):
        raise ExportError(f"{path} is not a folder that stoker-export wrote: it is not overwritten")


def replace(new, folder):
    """Renames `new` to `folder`, whose earlier version stays if that fails."""
    old = new + ".old"
    if os.path.lexists(folder):
        os.rename(folder, old)
    try:
        os.rename(new, folder)
    except OSError:
        if os.path.lexists(old):
            os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def new_folder(path):
    """A temporary folder that becomes `path` at the end, unless there is an exception."""
    folder = os.path.abspath(os.fspath(path))
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".stoker-export-", dir=os.path.dirname(folder))
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o755 & ~umask)
        for name in os.listdir(temporary):
            os.chmod(os.path.join(temporary, name), 0o644 & ~umask)
        replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
