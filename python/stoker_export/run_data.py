"""--config: compares the example batch with data.train of a run, which stokerd describes (--check-data), before anything is traced."""
import re
import subprocess

from . import ExportError
from .files import DTYPES, as_tensors
from .step import line_of_forward

MODEL_DTYPES = {"input": "F32", "tokens": "I64"}  # what a model gets, whatever the dataset stores
WITHOUT_MODEL = ("eval.monitor=loss", "checkpoint.monitor=[]", "eval.datasets=[]")


def data_of_run(config, program):
    """{tensor: (dtype, shape)} of a sample of data.train, as a model gets it."""
    command = [program, "--config", config, "--check-data"]
    for setting in WITHOUT_MODEL:
        command += ["--set", setting]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ExportError(f"{program} cannot be started, which --config needs to describe the data: {error.strerror}; name it with --stokerd PATH") from error
    found = re.search(r"^data\.train: \d+ samples of ([^;\n]+)", result.stdout, re.MULTILINE)
    if not found:  # its errors have place and remedy
        errors = result.stderr.strip() or result.stdout.strip() or f"{program} ends with {result.returncode}"
        raise ExportError(f"{config}: the data cannot be compared: {errors}")
    tensors = {}
    for name, dtype, shape in re.findall(r"(\w+) ([A-Z0-9]+) \[([0-9, ]*)\]", found[1]):
        tensors[name] = MODEL_DTYPES.get(name, dtype), [int(side) for side in shape.split(",") if side.strip()]
    return tensors


def described(tensors):
    return ", ".join(f"{name} {dtype} {shape}" for name, (dtype, shape) in tensors.items()) or "nothing"


def of_batch(tensors):
    return {name: (DTYPES.get(tensor.dtype, str(tensor.dtype)), list(tensor.shape[1:])) for name, tensor in tensors.items()}


def elements(shape):
    count = 1
    for side in shape:
        count *= side
    return count


def expected_order(data):
    """(inputs, targets) that a module and its loss get, in this order."""
    first = "tokens" if "tokens" in data else "input"
    targets = {name: each for name, each in data.items() if name not in (first, "length")}
    if first == "tokens" and not targets:  # predicts the next token
        dtype, shape = data[first]
        shorter = dtype, [shape[0] - 1]
        return {first: shorter}, {"next tokens": shorter}
    return {name: each for name, each in data.items() if name in (first, "length")}, targets


def check_data(module, loss, batch, config, program="stokerd"):
    """ExportError with both sides if the run's data is not what the module takes."""
    data = data_of_run(config, program)
    where = line_of_forward(module)
    if loss is None:
        taken = of_batch(batch)
        for name, (dtype, shape) in taken.items():
            source = "tokens" if name == "input_ids" and name not in data else name
            given = data.get(source)
            what = None
            if given is None:
                what = f"{name} is missing; name parameters as the tensors of the dataset"
            elif given != (dtype, shape):
                is_converted = source == "target" and (given[0], dtype) == ("F32", "I64")
                if (given[0] != dtype and not is_converted) or elements(given[1]) != elements(shape):
                    what = f"{name} differs"
            if what:
                raise ExportError(f"{where}: forward() takes {described(taken)}; data.train of {config} has {described(data)}: {what}")
        return
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        return  # which the export rejects
    inputs = as_tensors(batch[0], "the input")
    targets = as_tensors(batch[1:], "the targets")
    for kind, given, wanted in zip(("input", "targets"), (inputs, targets), expected_order(data)):
        found = list(of_batch(dict(enumerate(given))).values())
        if found != list(wanted.values()):
            shown = ", ".join(f"{dtype} {shape}" for dtype, shape in found)
            raise ExportError(f"{where}: the example batch has the {kind} {shown} per sample; data.train of {config} gives {described(wanted)}")
