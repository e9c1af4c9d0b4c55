"""The self-test: a seeded step, computed by Python and by the exported graph, which stokerd repeats before training."""
import hashlib

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import ExportError
from .files import first_line

SEED = 2026
MARGIN = 16  # between the rounding that is measured here and that of another processor
EPS = 2.0**-22
LARGEST = 0.01  # of the norm: a larger bound would accept another gradient


def run(step, call, tensors, restore):
    """Loss and outputs in eval mode; then a step from the same state: the loss, gradients, buffers. Changes the module."""
    module = step.module
    restore()
    for parameter in module.parameters():
        parameter.grad = None
    torch.manual_seed(SEED)
    step.eval()
    with torch.no_grad():
        evaluated = [value.clone() for value in call["eval"](*tensors)]
    restore()
    for parameter in module.parameters():
        parameter.grad = None
    torch.manual_seed(SEED)
    step.train()
    trained = call["train"](*tensors)
    count = step.num_loss_values
    mean = mean_of(trained[:count])
    mean.backward()
    values = {f"{name} in {mode} mode": value for mode, all_values in (("training", trained), ("eval", evaluated))
              for name, value in metrics_of(step, all_values).items()}
    return {"loss": mean.detach(), "gradients": {name: p.grad for name, p in module.named_parameters() if p.requires_grad},
            "buffers": {name: b.detach().clone() for name, b in module.named_buffers()},
            "parameters": {name: p.detach().clone() for name, p in module.named_parameters()},  # forward() can write to them
            "eval_loss": mean_of(evaluated[:count]), "metrics": values, "outputs": evaluated[step.num_values:]}


def metrics_of(step, values):
    """The further losses and the metrics."""
    names = [*step.loss_names, *step.metric_names]
    sums = values[step.num_loss_values:step.num_values]
    return {name: (sums[2 * i] / sums[2 * i + 1]).detach() for i, name in enumerate(names)}


def mean_of(values):
    return values[0] if len(values) == 1 else values[0] / values[1].to(values[0].dtype)


class RandomInFloat32(TorchDispatchMode):
    """Random operators compute in float32 as they would without the conversion of the module, so that they return the same numbers."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)

        def to_single(value):
            if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
                return value.float()
            return torch.float32 if value is torch.float64 else value

        single = [to_single(value) for value in args]
        result = func(*single, **{key: to_single(value) for key, value in kwargs.items()})
        if func._schema.name.endswith("_") and isinstance(args[0], torch.Tensor):  # in place
            return args[0].copy_(single[0])
        return torch.utils._pytree.tree_map(lambda v: v.double() if isinstance(v, torch.Tensor) and v.dtype == torch.float32 else v, result)


def run_in_double(step, tensors, restore):
    """In place, because the loss may have the module or its tensors, too."""
    restore()
    converted = list({id(t): t for t in [*step.parameters(), *step.buffers()] if t.is_floating_point()}.values())
    single = [tensor.data for tensor in converted]
    try:
        for tensor, data in zip(converted, single):
            tensor.grad, tensor.data = None, data.double()
        values = [tensor.data.clone() for tensor in converted]

        def restore_double():
            restore_slots()
            for tensor, value in zip(converted, values):
                tensor.data = value.clone()

        slots = [(owner, key, tensor) for module in step.modules() for owner in (module._parameters, module._buffers) for key, tensor in owner.items()]

        def restore_slots():
            for owner, key, tensor in slots:
                owner[key] = tensor

        arguments = [t.double() if t.is_floating_point() else t for t in tensors]
        with RandomInFloat32():
            return run(step, {"train": step, "eval": step}, arguments, restore_double)
    finally:
        for tensor, data in zip(converted, single):
            tensor.grad, tensor.data = None, data


def run_perturbed(step, tensors, restore):
    """For modules that do not run in F64: each parameter changed by about a rounding."""
    def restore_perturbed():
        generator = torch.Generator().manual_seed(SEED)
        restore()
        with torch.no_grad():
            for parameter in step.module.parameters():
                parameter.mul_(1 + EPS * (2 * torch.rand(parameter.shape, generator=generator) - 1))

    return run(step, {"train": step, "eval": step}, tensors, restore_perturbed)


def flattened(result):
    named = [("loss", result["loss"]), *((f"gradient of {n}", g) for n, g in result["gradients"].items()),
             *((f"buffer {n}", b) for n, b in result["buffers"].items()), *result["metrics"].items(),
             ("loss in eval mode", result["eval_loss"]), *((f"output {i}", o) for i, o in enumerate(result["outputs"]))]
    return dict(named)


def finite(tensor):
    """As a vector of F64; what is not finite, such as masked logits, as 0."""
    return torch.nan_to_num(tensor.detach().double().flatten(), 0, 0, 0)


def signs(count):
    """A fixed pattern of 1 and -1, which graph_self_test.cc has, too."""
    index = numpy.arange(count, dtype=numpy.uint64)
    mixed = (index * numpy.uint64(0x9E3779B97F4A7C15)) >> numpy.uint64(63)
    return torch.from_numpy(1.0 - 2.0 * mixed.astype(numpy.float64))


def numbers(tensor, bound):
    values = finite(tensor)
    raw = tensor.detach().contiguous().flatten()
    return {"sha256": hashlib.sha256(raw.view(torch.uint8).numpy().tobytes() if raw.numel() else b"").hexdigest(),
            "norm": values.norm().item(), "projection": (values * signs(values.numel())).sum().item(), "bound": bound}


def norms(tensors):
    """Of each tensor, and of all gradients together."""
    norm = {name: 0.0 if t is None else finite(t).norm().item() for name, t in tensors.items()}
    return norm, sum(value**2 for name, value in norm.items() if name.startswith("gradient of "))**0.5


def bounds(single, other):
    """How far each tensor may be from its value here: a multiple of what rounding changes, at most LARGEST of it."""
    norm, total = norms(single)
    error, total_error = norms({name: None if t is None or other[name] is None else finite(t) - finite(other[name]) for name, t in single.items()})
    relative = total_error / max(total, 1e-300)
    result = {}
    for name, tensor in single.items():
        if tensor is not None and not tensor.is_floating_point():
            result[name] = 0.0
            continue
        is_gradient = name.startswith("gradient of ")
        # A gradient that is 0 in exact arithmetic is rounding alone: its bound is that of the others.
        rounding = MARGIN * EPS * total if is_gradient else 0
        measured = MARGIN * max(error[name], EPS * norm[name], relative * norm[name] if is_gradient else 0) + rounding / MARGIN
        result[name] = min(measured, LARGEST * norm[name] + rounding)
    return result


def bounds_of_graph(single):
    """How far a graph may be from Python, on one machine with one thread: its operators are the same, so that hardly any bit differs."""
    norm, total = norms(single)
    return {name: 4 * EPS * (norm[name] + (total if name.startswith("gradient of ") else 0)) for name in single}


def check(expected, found, allowed, is_recomputed):
    for name, value in expected.items():
        other = found[name]
        if (value is None) != (other is None):
            raise ExportError(f"the exported graph {'has a' if value is None else 'has no'} {name}, unlike Python: forward() changes requires_grad or replaces a "
                              "parameter; use detach() or torch.no_grad(); if it does neither, please report the module")
        if value is None or torch.equal(value, other):
            continue
        difference = (finite(value) - finite(other)).norm().item()
        if value.shape != other.shape or value.dtype != other.dtype or not difference <= allowed[name]:
            if is_recomputed and name.startswith("buffer "):
                raise ExportError(f"torch.utils.checkpoint recomputes a part that changes the {name}, which Python therefore updates twice in a step: leave it (such as "
                                  "a BatchNorm) out of that part, or call it without checkpoint()")
            raise ExportError(f"the exported graph computes another {name} than Python (difference {difference:.1e}, norm {finite(value).norm().item():.1e}): "
                              "forward() does something that torch.export does not record, such as requires_grad_() (use detach() or torch.no_grad()), a seed, or "
                              "state outside of parameters and buffers; if it does none of these, please report the module")


def compare_other(step, eager, graphs, tensors, restore, is_recomputed):
    """With a batch of another size. What the module itself does not take, such as one value per channel, is no error."""
    try:
        expected = flattened(run(step, eager, tensors, restore))
    except Exception:
        return
    finally:
        torch._dynamo.reset()  # of torch.cond, which it would compile for any size from then on
    try:
        found = flattened(run(step, graphs, tensors, restore))
    except Exception as error:
        if "Guard failed" in str(error):  # of PyTorch's assumptions about sizes, which the graph does not have
            return
        raise ExportError(f"the exported graph fails with inputs {', '.join(str(list(each.shape)) for each in tensors)}, of other sizes than the example's: "
                          f"{first_line(error)}") from error
    try:
        check(expected, found, bounds_of_graph(expected), is_recomputed)
    except ExportError as error:
        raise ExportError(f"with inputs {', '.join(str(list(each.shape)) for each in tensors)}, of other sizes than the example's: {error}") from error


def compare(step, traced, tensors, other_tensors, restore, is_recomputed=False):
    """Compares a step of the graph with that of the module itself, also of a batch of another size, if there is one. Returns what stokerd must get."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # graphs have the layers themselves
    eager = {"train": step, "eval": step}
    step.is_plain = True
    try:
        expected = run(step, eager, tensors, restore)
        restore()
        graphs = {name: program.module() for name, program in traced.items()}
        single = flattened(expected)
        of_graph = run(step, graphs, tensors, restore)
        check(single, flattened(of_graph), bounds_of_graph(single), is_recomputed)
        for name, value in expected["parameters"].items():
            if not torch.equal(value, of_graph["parameters"][name]):
                raise ExportError(f"forward() changes the parameter {name} in a way that a graph does not have, such as parameter.data = …: write to it in place "
                                  "under torch.no_grad(), for example parameter.copy_(…)")
        if other_tensors is not None:
            compare_other(step, eager, graphs, other_tensors, restore, is_recomputed)
        try:
            other = run_in_double(step, tensors, restore)
        except Exception:  # such as a dtype that the module fixes
            torch._dynamo.reset()  # torch.cond does not compile with a dispatch mode
            other = run_perturbed(step, tensors, restore)
    finally:
        step.is_plain = False
        restore()
        torch.backends.mha.set_fastpath_enabled(fast_path)
    allowed = bounds(single, flattened(other))
    number = {name: None if t is None else numbers(t, allowed[name]) for name, t in single.items()}
    return {"seed": SEED, "loss": number["loss"], "eval_loss": number["loss in eval mode"],
            "gradients": {name: number[f"gradient of {name}"] for name in expected["gradients"]},
            "buffers": {name: number[f"buffer {name}"] for name in expected["buffers"]},
            "outputs": [number[f"output {i}"] for i in range(len(expected["outputs"]))]}
