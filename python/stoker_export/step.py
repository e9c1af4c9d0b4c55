"""A step: a module whose forward() takes the fields of a sample by name and returns its loss, further losses, metrics and outputs.

  def forward(self, input, label):
      logits = self.net(input)
      return {"loss": (F.cross_entropy(logits, label, reduction="sum"), label.numel()),
              "metrics": {"accuracy": ((logits.argmax(1) == label).sum(), label.numel())}, "logits": logits}

A value is (sum, count), or a scalar, the mean over the batch, which counts as its samples.
"""
import collections.abc
import dataclasses
import inspect
import os
import re

import torch

from . import ExportError

PARTS = ("loss", "losses", "metrics")
DIRECTIONS = ("maximize", "minimize")
MAX_METRICS = 32
RESERVED = {  # fields of stoker's records
    "loss", "step", "epoch", "lr", "dataset", "num_samples", "num_quarantined", "manifest_sha256", "duration_seconds", "wall_time", "per_class",
    "confusion_matrix", "pr_curves", "grad_norm", "samples_seen", "skipped_steps", "loss_scale", "samples_per_second", "step_time_ms", "data_wait_ms",
    "checkpoint_stall_ms", "degraded",
    # What a program uses of the machine, kResourceFields.
    "cpu_cores", "rss_bytes", "read_bytes_per_second", "written_bytes_per_second", "worker_cpu_cores", "worker_rss_bytes", "worker_read_bytes_per_second",
    "worker_written_bytes_per_second", "device_busy", "device_allocated_bytes", "machine_cpu_cores", "machine_disk_read_bytes_per_second",
    "machine_disk_written_bytes_per_second", "machine_network_received_bytes_per_second", "machine_network_sent_bytes_per_second", "peak_rss_bytes",
    "device_reserved_bytes", "device_peak_allocated_bytes"}


def line_of_forward(module):
    """"net.py:12 (forward)"."""
    try:
        code = inspect.unwrap(type(module).forward).__code__
        return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno} (forward)"
    except AttributeError:
        return f"forward() of {type(module).__name__}"


def check_fields(module, batch):
    """The names of the fields, which are those of the parameters of forward()."""
    where = line_of_forward(module)
    if not isinstance(batch, collections.abc.Mapping) or not batch:
        raise ExportError('the example batch of a module without a loss function must be a dictionary, {"input": tensor, "label": tensor, …}, with a tensor for '
                          f"each parameter of its forward() ({where})")
    for name, tensor in batch.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise ExportError(f"{name!r} of the example batch must be a tensor, not {type(tensor).__name__}")
    parameters = inspect.signature(module.forward).parameters
    kinds = inspect.Parameter
    named = [name for name, each in parameters.items() if each.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    takes_all = any(each.kind == kinds.VAR_KEYWORD for each in parameters.values())
    missing = [name for name in named if parameters[name].default is kinds.empty and name not in batch]
    unknown = [name for name in batch if name not in named and not takes_all]
    if missing or unknown:
        raise ExportError(f"{where}: forward() takes {', '.join(named) or 'nothing'}, the example batch has {', '.join(batch)}: "
                          f"{', '.join(missing or unknown)} {'is missing' if missing else 'is no parameter'}")
    return list(batch)


def fields_of(returned):
    """A dataclass as a dictionary."""
    if dataclasses.is_dataclass(returned) and not isinstance(returned, dict):
        return vars(returned)
    return returned


def parts_of_step(returned):
    """(loss, losses, metrics, outputs) of what forward() returned."""
    returned = fields_of(returned)
    if not isinstance(returned, collections.abc.Mapping) or returned.get("loss") is None:
        raise ExportError('forward() must return a dictionary with the loss, {"loss": (sum, count), "losses": {…}, "metrics": {…}, "logits": …}, not '
                          f"{'one without it' if isinstance(returned, collections.abc.Mapping) else type(returned).__name__}; or give the loss as a function")
    named = [returned.get(key) or {} for key in PARTS[1:]]
    for key, values in zip(PARTS[1:], named):
        if not isinstance(values, collections.abc.Mapping):
            raise ExportError(f'"{key}" must be a dictionary, {{name: (sum, count)}}')
    for name in named[0]:
        if name in named[1]:
            raise ExportError(f"{name} is the name of a loss and of a metric; rename one")
    return returned["loss"], *named, {key: value for key, value in returned.items() if key not in PARTS and value is not None}


def sum_and_count(value, what, samples=None):
    """[sum, count], or [mean] of a scalar; with `samples`, the batch size, as sum and count, too."""
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    if not 1 <= len(values) <= 2 or not isinstance(values[0], torch.Tensor):
        raise ExportError(f"{what} must be a scalar, the mean over the batch, or (sum, count)")
    if samples is not None:
        if any(isinstance(each, torch.Tensor) and each.numel() != 1 for each in values):
            raise ExportError(f"{what} has the shape {list(values[0].shape)}; it must be a scalar, the mean over the batch, or (sum, count): reduce it, for "
                              "example with .sum()")
        values = [values[0].detach().reshape(()).double(), *values[1:]]  # of any precision of the run
        if len(values) == 1:
            values = [values[0] * samples, samples]
    if len(values) == 2 and not isinstance(values[1], torch.Tensor):
        values[1] = values[0].new_full((), values[1])
    return values


def metric_rows(losses, names, declared, where):
    """The rows of the table of metrics."""
    if len(losses) + len(names) > MAX_METRICS:
        raise ExportError(f"{where}: forward() returns {len(losses) + len(names)} losses and metrics; at most {MAX_METRICS}")
    for name in [*losses, *names]:
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_]{1,64}", name) or name in RESERVED:
            raise ExportError(f"{where}: {name!r} cannot be the name of a loss or a metric: use a to z, 0 to 9 and _, and no field of stoker's records")
    for name in declared:
        if name not in names:
            raise ExportError(f"{where}: the metric {name} has a direction, but forward() does not return it; its metrics: {', '.join(names) or 'none'}")
    rows = [{"name": name, "direction": "minimize", "unit": "", "aggregation": "mean", "help": ""} for name in losses]
    for name in names:
        given = declared.get(name)
        row = dict(given) if isinstance(given, collections.abc.Mapping) else {"direction": given}
        if row.get("direction") not in DIRECTIONS or set(row) - {"direction", "unit", "help"}:
            raise ExportError(f"{where}: say which values of the metric {name} are better: return the module, the batch and "
                              f'{{"{name}": "maximize"}}, or "minimize"')
        rows.append({"name": name, "direction": row["direction"], "unit": row.get("unit", ""), "aggregation": "mean", "help": row.get("help", "")})
    return rows
