"""The export of a module and its loss as a graph of PyTorch's operators, which stokerd runs under LibTorch's autograd.

A folder holds graph.json (graph.py), model.safetensors (parameters, buffers, constants) and self_test.safetensors (the example batch). Programs:

  train    inputs, targets -> loss, or its sum and count; sum and count of each metric      module.train()
  eval     inputs, targets -> loss, or its sum and count; sum and count of each metric      module.eval()
  predict  inputs -> outputs of the module                                                  module.eval()

Only a step (step.py), a module whose forward() takes the fields of a sample by name and returns its loss, has metrics.

What torch.export loses without an error is found here, or by the comparison of a step with Python's (self_test.py).
"""
import contextlib
import functools
import hashlib
import io
import json
import os
import random
import re
import sys
import time
import traceback
import warnings

import safetensors.torch
import torch
import torch.utils._pytree as pytree
import torch.utils.checkpoint
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import Dim
from torch.fx.experimental import symbolic_shapes

from . import ExportError
from .files import as_tensors, check_batch, check_can_write, first_line, new_folder
from .graph import PACKAGES, Table, autocast_error, batch_range, kept_inputs, program_json, steps_range, user_line, without_inputs
from .self_test import compare
from .step import check_fields, fields_of, line_of_forward, metric_rows, parts_of_step, sum_and_count

FORMAT = 1
SEQUENCE_FIELDS, SEQUENCE_TARGETS = ("input", "tokens", "input_ids"), ("labels", "target")  # which stokerd pads
FILES = ("graph.json", "model.safetensors", "self_test.safetensors")
PREFIX = "module."  # of the names of the module's tensors in Step


class Step(torch.nn.Module):
    """What is traced: tensors -> the values of the loss, the sum and count of each metric, then the tensors that the module returned.

    The module gets the first `num_inputs` tensors, and the loss its result with the others. With `fields`, the module gets all tensors by these names
    and returns the loss itself. With neither, only the outputs are returned.
    """

    def __init__(self, module, loss, num_inputs, fields=None):
        super().__init__()
        self.module, self.loss, self.num_inputs, self.fields = module, loss, num_inputs, fields
        self.num_loss_values = self.output_names = None  # known after a call
        self.loss_names = self.metric_names = ()  # of further losses, and of metrics
        self.is_plain = False  # leaves buffers that forward() replaced as the module leaves them

    @property
    def num_values(self):
        """Before the outputs."""
        return self.num_loss_values + 2 * (len(self.loss_names) + len(self.metric_names))

    def forward(self, *tensors):
        before = dict(self.module.named_buffers())
        returned = self.module(**dict(zip(self.fields, tensors))) if self.fields else self.module(*tensors[:self.num_inputs])
        if not self.is_plain:
            self.keep_buffers(before)
        values, loss = [], []
        if self.fields:
            loss, losses, metrics, returned = parts_of_step(returned)
            loss = sum_and_count(loss, "the loss")
            self.loss_names, self.metric_names = tuple(losses), tuple(metrics)
            samples = tensors[0].shape[0]
            for name, value in [*losses.items(), *metrics.items()]:
                values += sum_and_count(value, name, samples)
        leaves = self.tensors_of(returned)
        if not self.fields:
            versions = [leaf._version for _, leaf in leaves]
            if self.loss is not None:
                loss = sum_and_count(self.loss(returned, *tensors[self.num_inputs:]), "the loss")
            if versions != [leaf._version for _, leaf in leaves]:
                raise ExportError("the loss changes an output of the module in place, so that predictions would be others than the module's; write it with "
                                  "operators without an underscore (div instead of div_)")
        self.num_loss_values, self.output_names = len(loss), [name for name, _ in leaves]
        return [*loss, *values, *(leaf for _, leaf in leaves)]

    def train(self, mode=True):
        """The loss keeps its mode, as in Python's loops of training."""
        self.training = mode
        self.module.train(mode)
        return self

    @staticmethod
    def tensors_of(returned):
        returned = fields_of(returned)
        leaves = [(pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path(returned)[0]
                  if isinstance(leaf, torch.Tensor)]
        return sorted(leaves, key=lambda leaf: leaf[0] != "['logits']")  # the first output is the one that is scored

    def keep_buffers(self, before):
        """`self.buffer = value` writes to the buffer instead: torch.export keeps replaced buffers of the root module only."""
        replaced = []
        for name, buffer in before.items():
            owner, _, last = name.rpartition(".")
            owner = self.module.get_submodule(owner)
            now = owner._buffers.get(last)
            if now is buffer:
                continue
            if now is None or now.shape != buffer.shape:
                raise ExportError(f"the buffer {name} gets another shape in forward(); keep it the same, or run the module once on the "
                                  "example batch before the export if that is when it gets it")
            # A copy before any of them is written to: the new value may be another buffer.
            replaced.append((owner, last, buffer, now.detach().clone()))
        for owner, last, buffer, value in replaced:
            with torch.no_grad():
                buffer.copy_(value)
            owner._buffers[last] = buffer


def mean_loss(values):
    return values[0] if len(values) == 1 else values[0] / values[1].to(values[0].dtype)


# ---- What Python does in addition to the operators

class TracingGuards:
    """While a module is traced: rejects torch.autograd.Function, whose backward() would be lost, and notes what torch.utils.checkpoint
    recomputes, which would be forgotten. Replaces two functions of PyTorch that read values or fix the batch size."""

    def __init__(self, module):
        self.names = {id(each): name for name, each in module.named_modules()}
        self.checkpointed = set()
        self.lines = {}  # of the user: conditions on sizes

    def line_of_size(self, size):
        """The user's line that made a size the number that it is in the example."""
        lines = {condition: line for condition, line in self.lines.items() if line and condition.startswith("Eq(")}
        exact = [line for condition, line in lines.items() if re.fullmatch(rf"Eq\(s\d+, {size}\)", condition)]
        return next(iter([*exact, *lines.values()]), None)

    def note(self, function):
        self.checkpointed.add(self.names.get(id(getattr(function, "__self__", function)), ""))

    @contextlib.contextmanager
    def active(self):
        guards, checkpoint = self, torch.utils.checkpoint
        apply = torch.autograd.Function.__dict__["apply"]
        generator = checkpoint._checkpoint_without_reentrant_generator
        transformer, functions = torch.nn.modules.transformer, torch._C._nn
        detect_causal, cross_entropy = transformer._detect_is_causal_mask, functions.cross_entropy_loss

        def guarded(cls, *args, **kwargs):
            if cls is checkpoint.CheckpointFunction:
                self.note(args[0])
                return args[0](*args[2:])
            if cls.__module__.startswith("torch._higher_order_ops."):
                return apply.__func__(cls, *args, **kwargs)
            line = user_line(traceback.extract_stack())
            if cls.__name__ == "BackwardHookFunction":
                raise ExportError(f"{line}: a module has a hook on its backward pass (register_full_backward_hook()), which a graph does not have: remove it, or "
                                  "write it into forward() as differentiable operators")
            raise ExportError(f"{line}: {cls.__qualname__} is a torch.autograd.Function, whose backward() an exported graph does not hold; write "
                              "it with differentiable operators, for example x + (f(x) - x).detach()")

        def no_recomputation(function, *args, **kwargs):
            self.note(function)
            yield

        def hinted_causal(mask, is_causal=None, size=None):
            return bool(is_causal)  # only a hint: the mask is used in any case

        data = torch.Tensor.data

        def set_data(self, value):
            if self.shape != value.shape or self.dtype != value.dtype:
                raise ExportError(f"{user_line(traceback.extract_stack())}: .data = … of another shape or dtype; keep it the same")
            with torch.no_grad():
                self.copy_(value)

        # PyTorch does not trace the attribute: what it returns would be a constant.
        traced_data = property(lambda self: self.detach() if is_traced(self) else data.__get__(self),
                               lambda self, value: set_data(self, value) if is_traced(self) else data.__set__(self, value))

        def refused(what):
            def raise_error(*args, **kwargs):
                raise ExportError(f"{user_line(traceback.extract_stack())}: {what}")
            return raise_error

        def frames_of_user(self, frames):  # not of forward() alone: of functions that it calls, and of the loss
            return traceback.StackSummary.from_list([frame for frame in frames if not frame.filename.startswith((*PACKAGES, "<"))][-1:])

        replaced = [(torch.fx.proxy.TracerBase, "_filter_traceback_frames", frames_of_user),
                    (torch.Tensor, "register_hook", refused("register_hook() in forward(): a graph has no hooks; write what it does as differentiable operators, for "
                                                            "example x.detach() + (x - x.detach()) * factor")),
                    (torch, "manual_seed", refused("torch.manual_seed() in forward(), which a graph does not have: draw the numbers once into a buffer, or leave "
                                                   "the seed to run.seed"))]
        originals = [getattr(owner, name) for owner, name, _ in replaced]
        autocast, log_guard = torch.amp.autocast_mode.autocast.__init__, symbolic_shapes.ShapeEnv._log_guard

        def autocast_of_cpu(self, device_type, *args, **kwargs):
            if device_type != "cpu":
                raise ExportError(f"{user_line(traceback.extract_stack())}: {autocast_error(device_type)}")
            autocast(self, device_type, *args, **kwargs)

        def noted_guard(self, prefix, condition, *args, **kwargs):
            guards.lines.setdefault(str(condition), user_line(traceback.extract_stack()))
            return log_guard(self, prefix, condition, *args, **kwargs)

        def cross_entropy_of_sizes(logits, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
            if not target.is_floating_point():
                return cross_entropy(logits, target, weight, reduction, ignore_index, label_smoothing)
            return soft_cross_entropy(logits, target, weight, reduction, label_smoothing)

        gaussian_nll_loss = torch.nn.functional.gaussian_nll_loss

        def gaussian_nll_of_any(*args, **kwargs):  # which asks whether a variance is negative, as the first step was asked
            original, torch.any = torch.any, lambda condition: False
            try:
                return gaussian_nll_loss(*args, **kwargs)
            finally:
                torch.any = original

        distribution = torch.distributions.Distribution
        validates = distribution._validate_args
        distribution.set_default_validate_args(False)  # which asks for values, and only raises errors
        torch.Tensor.data = traced_data
        for owner, name, function in replaced:
            setattr(owner, name, function)
        torch.autograd.Function.apply = classmethod(guarded)
        checkpoint._checkpoint_without_reentrant_generator = no_recomputation
        transformer._detect_is_causal_mask, functions.cross_entropy_loss = hinted_causal, cross_entropy_of_sizes
        torch.nn.functional.gaussian_nll_loss = gaussian_nll_of_any
        torch.amp.autocast_mode.autocast.__init__, symbolic_shapes.ShapeEnv._log_guard = autocast_of_cpu, noted_guard
        try:
            with shapes_of_operators():
                yield
        finally:
            for (owner, name, _), original in zip(replaced, originals):
                setattr(owner, name, original)
            distribution.set_default_validate_args(validates)
            del torch.Tensor.data  # that of its base class is the original
            torch.autograd.Function.apply = apply
            torch.amp.autocast_mode.autocast.__init__, symbolic_shapes.ShapeEnv._log_guard = autocast, log_guard
            checkpoint._checkpoint_without_reentrant_generator = generator
            transformer._detect_is_causal_mask, functions.cross_entropy_loss = detect_causal, cross_entropy
            torch.nn.functional.gaussian_nll_loss = gaussian_nll_loss


def is_traced(tensor):
    """Of the module, while torch.export runs it: PyTorch's own code asks for .data, too."""
    return isinstance(tensor, FakeTensor) and torch.fx.experimental.proxy_tensor.get_proxy_mode() is not None and \
        user_line(traceback.extract_stack(limit=4)[:-2][-1:]) is not None


def reduced(x, q, dim=None, keepdim=False, *, interpolation="linear"):
    """As quantile(): its shape."""
    y = x.sum(tuple(range(x.dim())) if dim is None else dim, keepdim=keepdim)
    return y * q.view(-1, *[1] * y.dim()) if isinstance(q, torch.Tensor) and q.dim() else y


def taken(x, indices, dim=None):
    return (indices.flatten() * 0 + x.sum() if dim is None else indices * 0 + x.sum(dim, keepdim=True)).to(x.dtype)


def products(a, b):
    a, b = (x.reshape((1,) * (max(a.dim(), b.dim()) - x.dim()) + x.shape) for x in (a, b))
    return a.sum() * b.sum() + a.new_zeros([m * n for m, n in zip(a.shape, b.shape)])


def recurrent(x, states, parameters, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    """Of lstm (two states), gru and rnn: PyTorch would run all steps of the sequence, and fix their number."""
    size = states[0].shape[-1] * (2 if bidirectional else 1)
    zero = parameters[0].sum() * 0
    return x.new_zeros((*x.shape[:-1], size)) + zero, *(torch.zeros_like(state) + zero for state in states)


def covariances(x, **_):
    return x @ x.T if x.dim() == 2 and x.shape[0] != 1 else x.sum()


def ctc_losses(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=1, zero_infinity=False):
    return log_probs.sum() if reduction else log_probs.sum(0).sum(-1)


ATEN = torch.ops.aten
# Results of the shape, of operators that ask for values or for the batch size when they are traced, and decide when they run.
SHAPES = {
    ATEN.cdist.default: lambda a, b, p=2.0, compute_mode=None: (a.unsqueeze(-2) - b.unsqueeze(-3)).sum(-1),
    ATEN.quantile.default: reduced, ATEN.quantile.scalar: reduced, ATEN.nanquantile.default: reduced, ATEN.nanquantile.scalar: reduced,
    ATEN.take_along_dim.default: taken, ATEN.kron.default: products, ATEN.linalg_multi_dot.default: lambda matrices: functools.reduce(torch.matmul, matrices),
    ATEN.linalg_matrix_norm.default: lambda x, ord, dim=(-2, -1), keepdim=False, dtype=None: x.sum(dim, keepdim=keepdim),
    ATEN.lstm.input: recurrent, **{operator.input: lambda x, state, *others: recurrent(x, [state], *others)
                                   for operator in (ATEN.gru, ATEN.rnn_tanh, ATEN.rnn_relu)},
    ATEN.cov.default: covariances, ATEN.corrcoef.default: covariances, ATEN.ctc_loss.Tensor: ctc_losses, ATEN.ctc_loss.IntList: ctc_losses,
}


@contextlib.contextmanager
def shapes_of_operators():
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    before = {operator: operator.py_kernels.get(key) for operator in SHAPES}

    def put(kernels):
        for operator, kernel in kernels.items():
            operator.py_kernels.pop(key, None)
            operator._dispatch_cache.clear()
            if kernel is not None:
                operator.py_impl(key)(kernel)

    put(SHAPES)
    try:
        yield
    finally:
        put(before)


def soft_cross_entropy(logits, target, weight, reduction, label_smoothing):
    """The cross entropy with probabilities as PyTorch computes it, which fixes the batch size when it is exported."""
    dim = 0 if logits.dim() == 1 else 1
    classes = logits.shape[dim]
    if label_smoothing > 0:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    products = logits.log_softmax(dim) * target
    if weight is not None:
        products = products * weight.view([classes if i == dim else 1 for i in range(logits.dim())])
    if reduction == 0:
        return -products.sum(dim)
    total = -products.sum()
    return total / (logits.numel() // classes) if reduction == 1 else total


def is_of_user(value):
    """An object of a class that is neither Python's nor a package's, such as a schedule."""
    kind = type(value)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module) and file is not None and not is_installed(file)


def is_installed(file):
    return file.startswith((*PACKAGES, os.path.dirname(os.__file__))) or "site-packages" in file or "dist-packages" in file


def parts_of(value, depth=4):
    """Numbers, texts and tensors in dictionaries, lists and objects: (path, value)."""
    if isinstance(value, (bool, int, float, str, torch.Tensor)):
        yield "", value
    elif depth and is_of_user(value):
        for key, each in list(vars(value).items()):
            for path, part in parts_of(each, depth - 1):
                yield f".{key}{path}", part
    elif depth and isinstance(value, (dict, list, tuple)):
        for key, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
            for path, part in parts_of(each, depth - 1):
                yield f"[{key!r}]{path}", part


def shared_state(kind):
    """(what, attribute, value) of the user's class itself, and of the global variables that its methods name."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None or is_installed(file):
        return
    for key, value in list(vars(kind).items()):
        if not key.startswith("__") and not callable(value):
            yield f"the class {kind.__qualname__.replace('<locals>.', '')}", key, value
        code = getattr(value, "__code__", None)
        for name in code.co_names if code else ():
            variable = value.__globals__.get(name)
            if isinstance(variable, (bool, int, float, dict, list)) or is_of_user(variable):
                yield "global variables", name, variable


def attributes_of(module):
    """(what, attribute, value) of what a module or a function has in addition to its tensors."""
    kinds = {type(each): None for each in module.modules()} if isinstance(module, torch.nn.Module) else [type(module)]
    for kind in kinds:
        yield from shared_state(kind)
    if isinstance(module, torch.nn.Module):
        for name, each in module.named_modules():
            where = f"{name} ({type(each).__name__})" if name else type(each).__name__
            yield from ((where, key, value) for key, value in vars(each).items() if key != "training" and not key.startswith("_forward") and
                        key not in ("_parameters", "_buffers", "_modules"))
        return
    where = getattr(module, "__qualname__", type(module).__name__).replace("<locals>.", "")
    yield from ((where, key, value) for key, value in getattr(module, "__dict__", {}).items())
    function = getattr(module, "__func__", module)
    for key, cell in zip(getattr(getattr(function, "__code__", None), "co_freevars", ()), getattr(function, "__closure__", None) or ()):
        with contextlib.suppress(ValueError):  # an empty cell
            yield where, key, cell.cell_contents
    if hasattr(module, "__self__") and not isinstance(module.__self__, torch.nn.Module):
        yield from ((where, key, value) for key, value in getattr(module.__self__, "__dict__", {}).items())


def host_state(*modules):
    """What forward() and the loss could read or change outside of parameters and buffers, and Python's random generators."""
    values = {}
    for module in modules:
        if module is None:
            continue
        for where, key, value in attributes_of(module):
            for path, part in parts_of(value):
                is_tensor = isinstance(part, torch.Tensor)
                # A tensor that is replaced is another matter: check_second_call().
                values[(where, key + path, id(part) if is_tensor else 0)] = part.detach().clone() if is_tensor else part
    return values, random.getstate(), str(sys.modules["numpy"].random.get_state()) if "numpy" in sys.modules else None


def is_same(a, b):
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    return a == b or a != a and b != b  # NaN


def check_host_state(before, after):
    for (where, key, tensor), value in after[0].items():
        if is_same(before[0].get((where, key, tensor), value), value):
            continue
        if tensor:
            raise ExportError(f"{key} of {where} is changed in place, but it is no buffer, so that no checkpoint would have it; make it one "
                              f"(register_buffer(\"{key}\", …)), in the loss a buffer of the module")
        raise ExportError(f"forward() changes {key} of {where}, which is not a tensor: a graph would keep its value; make it a buffer "
                          f"(register_buffer(\"{key}\", torch.tensor(…))) of the module")
    if before[1:] != after[1:]:
        raise ExportError("forward() draws random numbers from Python or NumPy: a graph would keep those of the export; draw them with torch.rand")


def check_loss_state(loss, state):
    """Parameters and buffers of the loss are constants of a graph."""
    for owner, key, tensor, value, _ in state.tensors:
        if owner.get(key) is not tensor or not is_same(tensor.detach(), value):
            raise ExportError(f"the loss changes its buffer {key}, which would be in no checkpoint: make the loss a part of the module")


class State:
    """Parameters, buffers and attributes as they were, to be restored."""

    def __init__(self, module):
        self.attributes = [(each, {key: value for key, value in vars(each).items() if key not in ("_parameters", "_buffers", "_modules")})
                           for each in module.modules()]
        # transformers registers its hooks in the first call, and notes in an attribute that it has.
        self.hooks = [(hooks, dict(hooks)) for each in module.modules() for key, hooks in vars(each).items() if "_hooks" in key and isinstance(hooks, dict)]
        self.tensors = [(owner._parameters if kind else owner._buffers, key, tensor, tensor.detach().clone(), tensor.grad)
                        for owner in module.modules() for kind in (True, False)
                        for key, tensor in (owner._parameters if kind else owner._buffers).items() if tensor is not None]

    def restore_tensors(self):
        with torch.no_grad():
            for owner, key, tensor, value, grad in self.tensors:
                tensor.copy_(value)
                tensor.grad = grad
                owner[key] = tensor

    def restore(self):
        self.restore_tensors()
        for each, attributes in self.attributes:
            for key in set(vars(each)) - set(attributes) - {"_parameters", "_buffers", "_modules"}:
                delattr(each, key)
            vars(each).update(attributes)
        for hooks, before in self.hooks:
            hooks.clear()
            hooks.update(before)

    def changed_attribute(self):
        """An attribute with a tensor that was not there, or None: "last of Block"."""
        for each, attributes in self.attributes:
            for key, value in vars(each).items():
                if isinstance(value, torch.Tensor) and attributes.get(key) is not value:
                    return f"{key} of {type(each).__name__}"
        return None


# ---- Checks before anything is traced

def check_module(module, loss):
    if not isinstance(module, torch.nn.Module):
        raise ExportError(f"the module is a {type(module).__name__}, not a torch.nn.Module")
    compiled = next((name for name, each in module.named_modules() if isinstance(each, torch._dynamo.OptimizedModule)), None)
    if compiled is not None:
        raise ExportError(f"{compiled or 'the module'} is a result of torch.compile(): export the module itself (_orig_mod)")
    if any(isinstance(each, torch.jit.ScriptModule) for part in (module, loss) if isinstance(part, torch.nn.Module) for each in part.modules()):
        raise ExportError("a part of the module or its loss is TorchScript: export the Python module that it was written from, which takes the weights by "
                          "load_state_dict(torch.jit.load(FILE).state_dict())")
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise ExportError(f"{name} has no shape yet: run the module once on the example batch before the export")
        if tensor.is_meta:
            raise ExportError(f"{name} is on the device meta and has no values: initialize the module (module.to_empty(device='cpu'), then "
                              "reset_parameters()) before the export")
        if tensor.device.type != "cpu":
            raise ExportError(f"{name} is on {tensor.device}: move the module and the batch to the CPU for the export; train.device of the run "
                              "chooses the device")
        if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_quantized:
            raise ExportError(f"{name} is {tensor.dtype} ({tensor.layout}), which checkpoints do not hold")
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise ExportError(f"{name} has a hook on its gradient (register_hook()), which a graph does not have: remove it, or put it into forward() as "
                              "differentiable operators")
        if not parameter.is_floating_point():
            raise ExportError(f"{name} is a parameter of {parameter.dtype}: make it a buffer (register_buffer())")
        if parameter.dtype != torch.float32:
            raise ExportError(f"{name} is {parameter.dtype}: parameters must be torch.float32; train.precision of the run chooses a lower precision")
    for name, each in module.named_modules():
        if getattr(each, "sparse", False) is True and isinstance(each, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            raise ExportError(f"{name or 'the module'} is a {type(each).__name__} with sparse=True, whose gradient no optimizer of stokerd takes: set sparse=False")
        if isinstance(each, torch.nn.modules.batchnorm._NormBase) and each.momentum is None and each.track_running_stats:
            raise ExportError(f"{name or 'the module'} is a {type(each).__name__} with momentum=None, whose factor PyTorch computes as a Python number from a tensor: "
                              "set a momentum")
    if not any(p.requires_grad for p in module.parameters()):
        raise ExportError("the module has no parameter with requires_grad: nothing would be trained")
    if isinstance(loss, torch.nn.Module) and any(p.requires_grad for p in loss.parameters()):
        raise ExportError("the loss has parameters, which would not be trained: make it a part of the module")


def check_memory(module, changed):
    """Tensors that share memory without being one would be apart in stokerd."""
    first = {}
    for kind, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for name, tensor in named:
            if tensor.numel() == 0:
                continue
            other, was_changed = first.setdefault(tensor.untyped_storage().data_ptr(), (name, False))
            is_changed = kind == "parameter" and tensor.requires_grad or name in changed
            if other != name and (is_changed or was_changed):
                raise ExportError(f"{name} shares the memory of {other} and is changed in training; make them one tensor, or compute one from the "
                                  "other in forward()")
            first[tensor.untyped_storage().data_ptr()] = (other, was_changed or is_changed)


def check_second_call(step, tensors, state, first):
    state.restore_tensors()
    torch.manual_seed(0)
    second = mean_loss(step(*tensors)[:step.num_loss_values])
    if torch.equal(first, second) or first.isnan() and second.isnan():
        return
    attribute = state.changed_attribute()
    if attribute is None:
        raise ExportError("two calls of module and loss from the same seed differ: they read what is neither a parameter nor a buffer (a global variable, a class "
                          "attribute, a generator of their own, the time), of which a graph would keep the value; use a buffer (register_buffer()) and "
                          "torch.rand without a generator")
    raise ExportError(f"forward() reads a tensor that the call before it kept in {attribute}; make it a buffer (register_buffer())")


def check_leaves(loss, module, tensors):
    """What the loss is differentiated by must be parameters of the module."""
    known = {id(parameter) for parameter in module.parameters()}
    memory = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    stack, seen = [(loss.grad_fn, None)], set()
    while stack:
        node, user = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            frames = [] if user is None else re.findall(r'File "(.*)", line (\d+), in (.*)', "".join(user.metadata.get("traceback_", [])))
            line = user_line(traceback.FrameSummary(name, int(number), function, lookup_line=False) for name, number, function in frames)
            if any(leaf is tensor for tensor in tensors):
                raise ExportError(f"{line + ': ' if line else ''}forward() sets requires_grad of an input, as for torch.autograd.grad(), which cannot be exported: write the "
                                  "derivative as operators, or use a plugin")
            if leaf._base is not None and leaf.untyped_storage().data_ptr() in memory:
                continue  # a view of an input, as wav2vec2 of transformers makes it for reentrant checkpoints: its gradient is not used
            raise ExportError(f"{line + ': ' if line else ''}a tensor {list(leaf.shape)} has requires_grad, but it is no parameter of the module and would not be "
                              "trained; make it one (self.name = torch.nn.Parameter(…))")
        stack.extend((following, node) for following, _ in node.next_functions)


def check_first_step(step, tensors):
    """Runs a step in Python; finds most errors."""
    module = step.module
    has_modules = isinstance(step.loss, torch.nn.Module)
    state, loss_state = State(module), State(step.loss if has_modules else torch.nn.Module())
    before = host_state(module, step.loss)
    names = dict(module.named_buffers())
    old = {name: buffer.detach().clone() for name, buffer in names.items()}
    try:
        module.train()
        torch.manual_seed(0)
        with torch.autograd.set_detect_anomaly(True, check_nan=False):  # keeps lines
            values = step(*tensors)
        check_loss_state(step.loss, loss_state)
        check_host_state(before, host_state(module, step.loss))
        loss = mean_loss(values[:step.num_loss_values])
        names_of_values = step.loss_names, step.metric_names
        changed = {name for name, buffer in names.items() if not torch.equal(buffer, old[name])}
        if values[0].dim() != 0:
            raise ExportError(f"the loss has the shape {list(values[0].shape)}; it must be a scalar: reduce it, for example with .mean()")
        if not torch.isfinite(loss):
            raise ExportError(f"the loss of the example batch is {loss.item()}; export with a batch that has a finite loss")
        if not loss.requires_grad:
            raise ExportError("the loss does not depend on a parameter with requires_grad: nothing would be trained")
        check_leaves(loss, module, tensors)
        check_memory(module, changed)
        saved = module.state_dict()
        for name in sorted(changed - set(saved)):
            raise ExportError(f"the buffer {name} is changed in training, but it is not part of checkpoints: register it with persistent=True")
        check_second_call(step, tensors, state, loss)
        train_values = step.num_loss_values
        module.eval()
        with torch.no_grad():
            outputs = step(*tensors)[step.num_values:]
        check_loss_state(step.loss, loss_state)
        check_host_state(before, host_state(module, step.loss))
        if step.num_loss_values != train_values:
            raise ExportError("the loss must have the same form in training and in evaluation")
        if (step.loss_names, step.metric_names) != names_of_values:
            raise ExportError(f"{line_of_forward(module)}: forward() must return the same losses and metrics in training and in evaluation; leave count 0 "
                              "where there is no value")
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"{at_line(error)}{'forward() fails' if step.fields else 'module and loss fail'} on the example batch: {reason(error)}") from error
    finally:
        state.restore()
        loss_state.restore()
    if step.fields:
        return
    if not outputs:
        raise ExportError("the module returns no tensor, or an object that PyTorch cannot look into: return a tensor, a tuple, a dictionary or a dataclass of tensors")
    for name, output in zip(step.output_names, outputs):
        if output.dim() == 0 and name == step.output_names[0]:
            raise ExportError(f"the output{name} that is scored has no dimension; return the outputs first, or as 'logits'")


def per_step(step, inputs):
    """Of each output, whether its second dimension is that of the steps of the input, as a shorter input shows; else by its dimensions."""
    x = inputs[0]
    steps = x.shape[1] if x.dim() > 1 else 0
    state = State(step.module)

    def outputs(tensors):
        step.module.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return [leaf for _, leaf in Step.tensors_of(step.module(*tensors))]

    try:
        found = outputs(inputs)
        is_possible = [steps > 1 and output.dim() > 1 and output.shape[1] == steps for output in found]
        try:
            length = [tensor.clamp(max=steps - 1) for tensor in inputs[1:]]
            shorter = outputs([x[:, :-1].contiguous(), *length])
            return [possible and each.dim() > 1 and each.shape[1] == steps - 1 for possible, each in zip(is_possible, shorter, strict=True)]
        except Exception:  # the module fixes the length
            return [possible and output.dim() > 2 for possible, output in zip(is_possible, found)]
    finally:
        state.restore()


def reason(error):
    kind = type(error).__name__
    return first_line(error) if kind in ("RuntimeError", "ValueError", "TypeError") else f"{kind}: {first_line(error)}"


def at_line(error):
    line = user_line(traceback.extract_tb(error.__traceback__))
    return f"{line}: " if line else ""


# ---- Tracing

def sequences(tensors, fields):
    """The indices of tensors that have a step per element of a sequence, of which the first is the input."""
    first = next((i for i, name in enumerate(fields) if name in SEQUENCE_FIELDS), 0) if fields else 0
    x = tensors[first]
    if x.dim() < 2 or x.shape[1] < 2 or fields and fields[first] not in SEQUENCE_FIELDS:
        raise ExportError("dynamic_length: the example batch has no sequence [batch, 2 or more steps, …] as input or tokens")
    others = [i for i, tensor in enumerate(tensors) if i != first and tensor.dim() > 1 and tensor.shape[1] == x.shape[1]
              and (fields is None or fields[i] in SEQUENCE_FIELDS + SEQUENCE_TARGETS)]
    return [first, *others]


def trace(step, tensors, what, guards, free=()):
    """`free`: of which tensors the second dimension is free, too."""
    steps = tensors[free[0]].shape[1] if free else 0
    for dim in (Dim("batch", min=1), Dim.AUTO):  # AUTO accepts what restricts the batch
        length = Dim.AUTO if dim is Dim.AUTO or not free else Dim("steps", min=1, max=steps)
        shapes = tuple({0: dim, 1: length} if i in free else {0: dim} for i in range(len(tensors)))
        try:
            # PyTorch prints the graph of what it cannot export.
            with warnings.catch_warnings(), guards.active(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                program = torch.export.export(step, tuple(tensors), dynamic_shapes=(shapes,), strict=False)
        except ExportError:
            raise
        except Exception as error:
            if dim is not Dim.AUTO and any(text in str(error) for text in ("Constraints violated", "Expected op to be", "inconsistent min")):
                continue
            raise ExportError(f"{what}: {explain(error)}") from error
        if free and steps_range(program, free, steps, guards.lines) in (None, steps):
            line = guards.line_of_size(steps)
            raise ExportError(f"{what}: {line + ': ' if line else ''}the module's Python code fixes the length of sequences at that of the example ({steps}); write "
                              "x.shape[1] instead of a number, and no Python loop over the steps; or export without dynamic_length")
        if batch_range(program, guards.lines) is None:
            line = guards.line_of_size(tensors[0].shape[0])
            raise ExportError(f"{what}: {line + ': ' if line else ''}the module's Python code fixes the batch size at that of the example ({tensors[0].shape[0]}); write "
                              "x.shape[0] or -1 instead of a number, x.shape[0] instead of len(x), and no Python loop over the samples")
        return program
    raise AssertionError("unreachable")


def other_batch(tensors, batch, free, min_steps):
    """The example with one sample more, or less, and sequences one step shorter, or None."""
    samples = tensors[0].shape[0]
    size = next((n for n in (samples + 1, samples - 1) if n >= batch[0] and (batch[1] is None or n <= batch[1])), samples)
    rows = torch.arange(size) % samples
    steps = tensors[free[0]].shape[1] - 1 if free and tensors[free[0]].shape[1] > min_steps else None
    if size == samples and steps is None:
        return None
    changed = [tensor[rows] for tensor in tensors]
    if steps is None:
        return changed
    # Lengths, which are the tensors of one integer per sample, must not be above it.
    return [tensor[:, :steps].contiguous() if i in free else
            tensor.clamp(max=steps) if tensor.dim() == 1 and tensor.dtype == torch.int64 else tensor for i, tensor in enumerate(changed)]


def explain(error):
    text, kind = str(error), type(error).__name__
    if any(word in text + kind for word in ("data-dependent", "DataDependent", "Could not guard", "Could not extract specialized integer")):
        return (f"{at_line(error)}the module's Python code depends on values of its tensors (an `if`, a loop or .item()); write it with torch.where "
                "or torch.cond")
    if "unsupported format string passed to FakeTensor" in text or "Cannot access data pointer" in text or ".numpy() is not supported" in text:
        return f"{at_line(error)}the module's Python code reads values of its tensors (a format, .numpy() or the like), which a graph does not have; remove it"
    if "specialized" in text or "inferred to be a constant" in text or "Constraints violated" in text:
        return f"{at_line(error)}the module's Python code fixes the batch size; write x.shape[0] or -1 instead of a number"
    if "DynamicOutputShape" in kind:
        return f"{at_line(error)}the size of a result depends on values, which PyTorch does not export for this operator: {first_line(error)}"
    return f"{at_line(error)}{kind}: {first_line(error)}"


def export(module, loss, example_batch, path, *, metrics=None, dynamic_length=False, overwrite=False, progress=None):
    """Writes the folder `path` of `model: {name: exported, path: …}`.

    module         a torch.nn.Module with float32 parameters on the CPU
    loss           loss(output, *targets) -> the mean over the batch, a scalar; or (sum, count). None: a step, whose forward() takes the fields of a sample
                   by name and returns {"loss": (sum, count), "losses": {…}, "metrics": {…}, …}; all else are outputs
    example_batch  (input, *targets); input is a tensor, or (input, length) for padded sequences. Of a step {field: tensor}. Two samples or more; dtypes and
                   shapes except the batch size are those of the run. Stored in the folder for the self-test
    metrics        of a step: {name: "maximize" or "minimize"}, which values are better
    dynamic_length sequences can be shorter: the second dimension of the input, and of targets that have the same one, is free up to that of the example batch
    progress       called with a line about each phase

    Training uses module.train(), evaluation module.eval(). The folder appears complete or not at all. Raises ExportError with one line.
    """
    say = progress or (lambda text: None)
    began = time.monotonic()
    check_can_write(path, FILES, overwrite)
    check_module(module, loss)
    fields = None
    if loss is None:
        fields = check_fields(module, example_batch)
        inputs, targets = [example_batch[name].detach().contiguous() for name in fields], []
    else:
        if not isinstance(example_batch, (tuple, list)) or len(example_batch) < 2:
            raise ExportError("the example batch must be (input, target, …)")
        inputs = [t.detach().contiguous() for t in as_tensors(example_batch[0], "the input")]
        targets = [t.detach().contiguous() for t in as_tensors(example_batch[1:], "the targets")]
        if not 1 <= len(inputs) <= 2:
            raise ExportError("the input must be a tensor, or (input, length)")
    check_batch([*inputs, *targets], fields)
    threads = torch.get_num_threads()
    state = State(module)
    loss_state = State(loss if isinstance(loss, torch.nn.Module) else torch.nn.Module())
    try:
        with torch.random.fork_rng(devices=[]), new_folder(path) as folder:
            torch.set_num_threads(1)  # the self-test compares bits
            free = sequences([*inputs, *targets], fields) if dynamic_length else ()
            write(Step(module, loss, len(inputs), fields), [*inputs, *targets], free, metrics, folder, say)
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"the export fails: {explain(error)}") from error
    finally:
        torch.set_num_threads(threads)
        state.restore()
        loss_state.restore()
    say(f"wrote {path} in {time.monotonic() - began:.0f} s")


def write(step, tensors, free, metrics, folder, say):
    module, loss, fields = step.module, step.loss, step.fields
    check_first_step(step, tensors)
    rows = metric_rows(step.loss_names, step.metric_names, metrics or {}, line_of_forward(module))
    table = Table(module)
    guards = TracingGuards(module)
    programs, schemas, traced, batch = {}, {}, {}, [1, None]
    steps, shapes = 1 if free else 0, [list(tensor.shape[1:]) for tensor in tensors]
    for name in ("train", "eval"):
        say(f"tracing {name}")
        step.train(name == "train")
        with contextlib.nullcontext() if name == "train" else torch.no_grad():
            traced[name] = trace(step, tensors, name, guards, free)
        program, used = program_json(traced[name], table, PREFIX, shapes, free)
        if free:
            steps = max(steps, steps_range(traced[name], free, shapes[free[0]][0], guards.lines))
        schemas |= used
        lower, upper = batch_range(traced[name], guards.lines)
        batch = [max(lower, batch[0]), upper if batch[1] is None else batch[1] if upper is None else min(upper, batch[1])]
        count = step.num_values
        outputs = program["outputs"][count:]
        programs[name] = program | {"outputs": program["outputs"][:count]}
    kept = kept_inputs(program, outputs) if fields else list(range(step.num_inputs))
    programs["predict"] = without_inputs(program, kept, outputs)
    if programs["predict"] is None:  # the loss returned an output itself, as broadcast_tensors() does: then the output is that of the loss
        with torch.no_grad():
            predict = trace(Step(module, None, len(kept)).eval(), tensors[:len(kept)], "predict", guards, [i for i in free if i < len(kept)])
        programs["predict"], used = program_json(predict, table, PREFIX, shapes, free)
        schemas |= used
    # Those of predict are the first ones.
    order = kept + [i for i in range(len(tensors)) if i not in kept]
    for name in ("train", "eval"):
        programs[name]["inputs"] = [programs[name]["inputs"][i] for i in order]
    if guards.checkpointed:
        named = sorted(name for name in guards.checkpointed if name)
        say("recomputed in the backward pass: " + (", ".join(named) or "nothing, because torch.utils.checkpoint gets functions, not modules"))

    say("comparing a step with Python's")
    state = State(module)
    test = compare(step, traced, tensors, other_batch(tensors, batch, free, steps), state.restore, bool(guards.checkpointed))
    without = [name for name, gradient in test["gradients"].items() if gradient is None]
    if without:  # PyTorch's optimizers leave them alone; stokerd's would decay them
        say("get no gradient, so that they keep their values: " + ", ".join(without))
        for name in without:
            del test["gradients"][name]
            table.entries[table.by_name[name]]["requires_grad"] = False
    weights = dict(zip((entry["name"] for entry in table.entries), table.values))
    safetensors.torch.save_file(weights, os.path.join(folder, "model.safetensors"))
    names = [*(f"input.{i}" for i in range(len(kept))), *(f"target.{i}" for i in range(len(tensors) - len(kept)))]
    safetensors.torch.save_file({n: tensors[i].clone() for n, i in zip(names, order)}, os.path.join(folder, "self_test.safetensors"))
    of_step = {"fields": [fields[i] for i in order], "metrics": rows} if fields else {"per_step": per_step(step, tensors[:len(kept)])}
    document = {
        "format": FORMAT, "torch": torch.__version__.split("+")[0], "num_inputs": len(kept), "batch": {"min": batch[0], "max": batch[1]},
        **of_step, **({"min_steps": [steps if i in free else 0 for i in order]} if free else {}),
        "outputs": step.output_names, "checkpointed": sorted(guards.checkpointed), "tensors": table.entries, "tied": table.tied,
        "operators": schemas, "programs": programs, "self_test": test,
        "files": {name: sha256(os.path.join(folder, name)) for name in FILES[1:]},
    }
    with open(os.path.join(folder, "graph.json"), "w", encoding="utf-8") as file:
        json.dump(document, file, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
