"""The compilation of a module, its loss and its gradients into one AOTInductor package.

A package holds three programs, called by stokerd and stoker-eval with flat lists of tensors:

  train    parameters, buffers, inputs, targets, seeds -> loss, gradients; updates the buffers in place
  predict  parameters, buffers, inputs -> outputs, in eval mode
  loss     outputs, targets -> loss

All random numbers of `train` derive from `seeds`, int64 [n], so that the caller controls them.
"""
import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import tempfile
import time

import safetensors.torch
import torch
import torch._inductor
from torch._inductor import inductor_prims
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.replace_random import replace_random_passes
from torch._inductor.package import load_package, package_aoti
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.stateless import _reparametrize_module

from . import ExportError
from .files import DTYPES, as_tensors, check_batch, check_can_write, first_line, replace

FORMAT = 2  # packages of format 1 did not update the statistics of batch norm
# Compilation takes about a minute per 3,000 operations; an LSTM has 76 per step and layer, with its gradients.
MAX_OPERATIONS = 10_000
MAX_SENSITIVITY = 0.05  # of gradients to rounding
FILES = ("model.pt2", "model.safetensors", "self_test.safetensors")
# Instructions that g++ -march=native generates by itself; a processor without one of those in use ends the program.
CPU_FLAG_PREFIXES = ("sse4_", "ssse3", "avx", "amx", "bmi", "fma", "f16c", "popcnt", "movbe", "abm")
AOT_OPTIONS = {
    "aot_inductor.package": True,
    # The package then needs libtorch_cpu alone, which the caller has loaded.
    "aot_inductor.link_libtorch": False,
    "cpp.dynamic_threads": True,
}


# ---- The module as pure functions

class Traced:
    """The module with its names: parameters and buffers in the order in which the programs take them."""

    def __init__(self, module, loss, inputs, targets, autocast):
        self.module, self.loss, self.autocast = module, loss, autocast
        self.inputs, self.targets = inputs, targets
        self.parameter_names = [name for name, _ in module.named_parameters()]
        self.buffer_names = [name for name, _ in module.named_buffers()]
        # Contiguous, as stokerd's tensors are.
        self.parameters = [p.detach().clone(memory_format=torch.contiguous_format) for p in module.parameters()]
        self.buffers = [b.detach().clone(memory_format=torch.contiguous_format) for b in module.buffers()]
        self.trainable = [p.requires_grad for p in module.parameters()]
        self.updated = []  # indices of the buffers that training changes; known when the step has been traced

    def named(self, parameters, buffers):
        return dict(zip(self.parameter_names, parameters)) | dict(zip(self.buffer_names, buffers))

    def step(self, parameters, buffers, inputs, targets):
        """The loss, the gradients of the trainable parameters, and all buffers afterwards."""
        leaves = [p.detach().requires_grad_(needs) for p, needs in zip(parameters, self.trainable)]
        wanted = [p for p, needs in zip(leaves, self.trainable) if needs]
        clones = [b.clone() for b in buffers]
        named = self.named(leaves, clones)
        # The gradients inside, too: checkpointed segments run the module again.
        with torch.enable_grad(), _reparametrize_module(self.module, named, tie_weights=True):
            with torch.autocast(inputs[0].device.type, self.autocast, enabled=self.autocast is not None):
                loss = self.loss(self.module(*inputs), *targets)
            gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
        gradients = [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, wanted)]
        # A buffer can be written to or replaced; `named` then has the replacement.
        after = [named[name].detach() for name in self.buffer_names]
        return loss.detach().to(torch.float32), gradients, after

    def predict(self, parameters, buffers, inputs):
        with _reparametrize_module(self.module, self.named(parameters, buffers), tie_weights=True):
            return self.module(*inputs)


def flat_outputs(outputs):
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, (tuple, list)) and outputs and all(isinstance(o, torch.Tensor) for o in outputs):
        return list(outputs)
    raise ExportError(f"the module returns {type(outputs).__name__}; return a tensor or a tuple of tensors")


def data_dependent(error):
    text = str(error)
    return any(word in text or word in type(error).__name__ for word in
               ("GuardOnDataDependentSymNode", "data-dependent", "DataDependent", "_local_scalar_dense",
                "Could not guard", "is_nonzero"))


def explained(error, what):
    line = first_line(error)
    if data_dependent(error):
        return ExportError(f"{what}: the module's Python code depends on values of its tensors (an `if`, a loop or "
                           ".item()); write it with torch.where or torch.cond, or export that part apart: " + line)
    return ExportError(f"{what}: {line}")


# ---- Checks before anything is compiled

def check_module(module):
    tensors = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in tensors:
        if tensor.is_meta:
            raise ExportError(f"{name} is on the device meta and has no values: initialize the module "
                              "(module.to_empty(device='cpu'), then reset_parameters()) before the export")
        if tensor.dtype not in DTYPES:
            raise ExportError(f"{name} is {tensor.dtype}, which checkpoints do not hold")
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise ExportError(f"{name} is {parameter.dtype}: parameters must be torch.float32; choose a lower "
                              "precision as precision='bf16'")
    if not any(p.requires_grad for p in module.parameters()):
        raise ExportError("the module has no parameter with requires_grad: nothing would be trained")
    for name, tensor in tensors:
        check_on_cpu(name, tensor)


def check_on_cpu(what, tensor):
    if tensor.device.type != "cpu":
        raise ExportError(f"{what} is on {tensor.device}: move the module and the batch to the CPU; stokerd runs "
                          "compiled models on the CPU only")


def run_once(traced):
    """Runs a step and a prediction in Python; finds most errors."""
    traced.module.train()
    try:
        loss, _, _ = traced.step(traced.parameters, traced.buffers, traced.inputs, traced.targets)
    except ExportError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        line = first_line(error)
        if "grad can be implicitly created only for scalar" in line:
            raise ExportError("the loss is not a scalar: reduce it, for example with .mean()") from error
        raise ExportError(f"module and loss fail on the example batch: {line}") from error
    if loss.dim() != 0:
        raise ExportError(f"the loss has the shape {list(loss.shape)}; it must be a scalar: reduce it, for example with "
                          ".mean()")
    if not torch.isfinite(loss):
        raise ExportError(f"the loss of the example batch is {loss.item()}; export with a batch that has a finite loss")
    traced.module.eval()
    with torch.no_grad():
        returned = traced.predict(traced.parameters, traced.buffers, traced.inputs)
        outputs = flat_outputs(returned)
        try:
            eval_loss = traced.loss(returned, *traced.targets)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise ExportError("the loss fails on the output in eval mode, which must have the form of that in training: "
                              f"{first_line(error)}") from error
    traced.module.train()
    batch = traced.inputs[0].size(0)
    for i, output in enumerate(outputs):
        if output.dim() == 0 or output.size(0) != batch:
            raise ExportError(f"output {i} has the shape {list(output.shape)}; the first dimension must be the batch of "
                              f"{batch}")
    return outputs, not isinstance(returned, torch.Tensor), eval_loss


# ---- Tracing

@contextlib.contextmanager
def without_onednn():
    """oneDNN's fused LSTM has no compiled form; without it, recurrent layers are unrolled."""
    was_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was_enabled)


def replace_bernoulli(graph_module):
    """bernoulli(p) as rand < p, which Inductor generates from a seed; on the CPU dropout is traced as bernoulli."""
    for node in list(graph_module.graph.nodes):
        if node.target is not torch.ops.aten.bernoulli.p:
            continue
        value = node.meta["val"]
        with graph_module.graph.inserting_before(node):
            def add(target, arguments, dtype):
                made = graph_module.graph.call_function(target, arguments)
                with value.fake_mode:
                    made.meta["val"] = torch.empty_like(value, dtype=dtype)
                return made
            # rand_like keeps a symbolic batch size without naming it.
            rand = add(torch.ops.aten.rand_like.default, (node.args[0],), torch.float32)
            rand.kwargs = {"dtype": torch.float32}
            chosen = add(torch.ops.aten.lt.Scalar, (rand, node.args[1]), torch.bool)
            cast = add(torch.ops.aten.to.dtype, (chosen, value.dtype), value.dtype)
        node.replace_all_uses_with(cast)
        graph_module.graph.erase_node(node)


def keep_updated_buffers(traced, graph):
    """Finds the buffers whose results are not themselves, and removes the results of the others. Versions of tensors do
    not tell: batch norm does not count its updates."""
    aten = torch.ops.aten

    def source(node):
        while node.target in (aten.alias.default, aten.clone.default, aten.detach.default):
            node = node.args[0]
        return node

    output = next(n for n in graph.graph.nodes if n.op == "output")
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"][len(traced.parameters):]
    first = len(output.args[0]) - len(traced.buffers)
    results, after = output.args[0][:first], output.args[0][first:]
    traced.updated = [i for i, (result, buffer) in enumerate(zip(after, placeholders)) if source(result) is not buffer]
    output.args = ([*results, *(after[i] for i in traced.updated)],)
    persistent = traced.module.state_dict().keys()
    for i in traced.updated:
        if traced.buffer_names[i] not in persistent:
            raise ExportError(f"training changes the buffer {traced.buffer_names[i]}, which is not in the state_dict: "
                              "register it with persistent=True")


def trace_step(traced):
    """The step as a graph over (*parameters, *buffers, *inputs, *targets, seeds), and the number of seeds. Its results
    are the loss, the gradients, and the buffers that it updates."""
    counts = [len(traced.parameters), len(traced.buffers), len(traced.inputs), len(traced.targets)]

    def split(flat):
        parts, at = [], 0
        for count in counts:
            parts.append(list(flat[at:at + count]))
            at += count
        return parts

    def flat_step(*flat):
        loss, gradients, after = traced.step(*split(flat))
        return [loss, *gradients, *after]

    arguments = [*traced.parameters, *traced.buffers, *traced.inputs, *traced.targets]
    with without_onednn():
        graph = make_fx(flat_step, tracing_mode="symbolic")(*arguments)
        # The second pass makes in-place random operators (bernoulli_) functional, so that they can be replaced.
        graph = make_fx(torch.func.functionalize(graph, remove="mutations"),
                        decomposition_table=select_decomp_table(), tracing_mode="symbolic")(*arguments)
    replace_bernoulli(graph)
    keep_updated_buffers(traced, graph)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    fake_mode = next(n.meta["val"].fake_mode for n in graph.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor))
    with V.set_fake_mode(fake_mode), fake_mode:
        replace_random_passes(graph)
    random = sorted({str(n.target) for n in graph.graph.nodes
                     if torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) and
                     not str(n.target).startswith("prims.inductor_")})
    if random:
        raise ExportError(f"the module draws random numbers by {', '.join(random)}, which have no seed in compiled code; "
                          "use dropout, torch.rand, torch.randn or torch.rand_like")
    created = [n for n in graph.graph.nodes
               if n.target in (inductor_prims.seeds, getattr(inductor_prims.seeds, "default", None))]
    count = created[0].args[0] if created else 0
    if created:
        last = [n for n in graph.graph.nodes if n.op == "placeholder"][-1]
        with graph.graph.inserting_after(last):
            seeds = graph.graph.placeholder("seeds")
        seeds.meta.update(created[0].meta)
        created[0].replace_all_uses_with(seeds)
        graph.graph.erase_node(created[0])
    graph.graph._codegen = torch.fx.graph.CodeGen()  # flat arguments
    graph.recompile()
    return graph, count


class Step(torch.nn.Module):
    """The graph of a step; writes the new values of the buffers into its arguments."""

    def __init__(self, graph, traced, seeds):
        super().__init__()
        self.graph, self.seeds, self.updated = graph, seeds, traced.updated
        self.results = 1 + sum(traced.trainable)

    def forward(self, parameters, buffers, inputs, targets, seeds):
        flat = [*parameters, *buffers, *inputs, *targets] + ([seeds] if self.seeds else [])
        results = self.graph(*flat)
        results = list(results.values()) if isinstance(results, dict) else list(results)
        for index, value in zip(self.updated, results[self.results:]):
            buffers[index].copy_(value)
        return results[:self.results]


class Predict(torch.nn.Module):
    def __init__(self, traced):
        super().__init__()
        self.traced = [traced]  # in a list: the module's own parameters must not become constants

    def forward(self, parameters, buffers, inputs):
        return flat_outputs(self.traced[0].predict(parameters, buffers, inputs))


class Loss(torch.nn.Module):
    def __init__(self, traced, is_tuple):
        super().__init__()
        self.traced, self.is_tuple = [traced], is_tuple

    def forward(self, outputs, targets):
        first = tuple(outputs) if self.is_tuple else outputs[0]
        return [self.traced[0].loss(first, *targets).to(torch.float32)]


def compiled(program, arguments, dynamic):
    with torch.no_grad():
        with without_onednn():
            exported = torch.export.export(program, arguments, dynamic_shapes=dynamic, strict=False)
        return torch._inductor.aot_compile(exported.module(), arguments, options=AOT_OPTIONS)


# ---- The folder

def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def cpu_flags():
    with open("/proc/cpuinfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("flags"):
                return sorted(f for f in line.split(":")[1].split() if f.startswith(CPU_FLAG_PREFIXES))
    return []


def spec(tensor, name, batch=True, **more):
    shape = [None, *tensor.shape[1:]] if batch else list(tensor.shape)
    return {"name": name, "dtype": DTYPES[tensor.dtype], "shape": shape, **more}


def tied_names(module):
    """Further names of parameters and buffers: name -> the first one."""
    tied = {}
    for named in (module.named_parameters, module.named_buffers):
        first = {id(tensor): name for name, tensor in named()}
        tied |= {name: first[id(tensor)] for name, tensor in named(remove_duplicate=False) if first[id(tensor)] != name}
    return tied


def norms(results):
    return [t.double().norm().item() for t in results]


def relative(a, b):
    return abs(a - b) / max(abs(a), abs(b), 1e-12)


class Package:
    """The compiled programs, loaded again, as a caller sees them."""

    def __init__(self, path):
        ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib/libtorch_cpu.so"), mode=ctypes.RTLD_GLOBAL)
        self.programs = {name: load_package(path, name) for name in ("train", "predict", "loss")}

    def step(self, traced, parameters, seeds):
        buffers = [b.clone() for b in traced.buffers]
        return self.programs["train"](list(parameters), buffers, traced.inputs, traced.targets, seeds), buffers


def worst_difference(gradients, expected):
    """The largest relative difference; of gradients that are small next to the others, relative to those."""
    largest = max(g.double().norm().item() for g in expected)
    return max((a.double() - b.double()).norm().item() / max(b.double().norm().item(), 1e-3 * largest, 1e-30)
               for a, b in zip(gradients, expected))


def rounding_sensitivity(traced):
    """The largest change of Python's gradients if each parameter changes by up to a millionth, which is what rounding in
    a deep network amounts to: it decides about inputs of ReLU near 0."""
    def gradients(parameters):
        torch.manual_seed(0)
        return traced.step(parameters, traced.buffers, traced.inputs, traced.targets)[1]

    with torch.random.fork_rng(devices=[]):
        expected = gradients(traced.parameters)
        generator = torch.Generator().manual_seed(0)
        changed = ([p * (1 + 1e-6 * (2 * torch.rand(p.shape, generator=generator) - 1)) for p in traced.parameters]
                   for _ in range(4))
        return max(worst_difference(gradients(parameters), expected) for parameters in changed)


def check_step(traced, step, expected, description, tolerance):
    """Compares the loss and the gradients; those of a sensitive network may differ by more than the tolerance."""
    loss, gradients = relative(step[0].item(), expected[0].item()), worst_difference(step[1:], expected[1:])
    if loss <= tolerance and gradients <= tolerance:
        return
    if not (loss <= tolerance and gradients <= min(2 * rounding_sensitivity(traced), MAX_SENSITIVITY)):
        raise ExportError(f"the compiled step differs {description} ({max(loss, gradients):.1e}): a defect of the compiler; "
                          "please report the module")


def check_package(package, traced, seeds, eval_loss, tolerance):
    """Runs the package with one thread and with several, and against Python. Returns what stokerd must get."""
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, max(2, threads)):
            torch.set_num_threads(count)
            step, buffers = package.step(traced, traced.parameters, seeds)
            results.append(step)
    finally:
        torch.set_num_threads(threads)
    single, several = results
    check_step(traced, several, single, "between one thread and several", tolerance)
    loss, gradients, after = traced.step(traced.parameters, traced.buffers, traced.inputs, traced.targets)
    if has_random(traced):
        check_directional(package, traced, single, seeds)
        for name, before, a, b in zip(traced.buffer_names, traced.buffers, after, buffers):
            if torch.equal(before, b) and not torch.equal(before, a):
                raise ExportError(f"the compiled step does not update the buffer {name}, as Python does")
    else:
        check_step(traced, single, [loss, *gradients], "from Python's", tolerance)
        for name, a, b in zip(traced.buffer_names, after, buffers):
            if not torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance):
                raise ExportError(f"the compiled step updates the buffer {name} to other values than Python does")
    outputs = package.programs["predict"](traced.parameters, traced.buffers, traced.inputs)
    traced.module.eval()
    with torch.no_grad():
        expected = flat_outputs(traced.predict(traced.parameters, traced.buffers, traced.inputs))
    traced.module.train()
    evaluated = package.programs["loss"](outputs, traced.targets)[0]
    different = any((a.double() - b.double()).norm() > 1e-3 * b.double().norm() for a, b in zip(outputs, expected))
    if different or relative(evaluated.item(), eval_loss.item()) > 1e-3:
        raise ExportError("the compiled outputs in eval mode, or their loss, differ from Python's: a defect of the "
                          "compiler; please report the module")
    return {"loss": single[0].item(), "gradient_norms": norms(single[1:]), "output_norms": norms(expected),
            "eval_loss": eval_loss.item(), "tolerance": tolerance}


def has_random(traced):
    """Whether two steps from different generator states differ."""
    losses = []
    with torch.random.fork_rng(devices=[]):
        for seed in (1, 2):
            torch.manual_seed(seed)
            losses.append(traced.step(traced.parameters, traced.buffers, traced.inputs, traced.targets)[0])
    return not torch.equal(*losses)


def check_directional(package, traced, results, seeds):
    """With dropout the masks are not those of Python: compares the gradient with finite differences instead."""
    loss, gradients = results[0].double().item(), results[1:]
    square = sum((g.double() ** 2).sum() for g in gradients).item()
    if square == 0:
        return
    trainable = [i for i, needs in enumerate(traced.trainable) if needs]
    size = sum((traced.parameters[i].double() ** 2).sum() for i in trainable).item() ** 0.5
    # A change of the loss of 1 %, far above its rounding, by a change of the parameters of at most 1 %.
    step = min(1e-2 * max(abs(loss), 1e-3) / square, 1e-2 * size / square ** 0.5)

    def loss_at(step):
        moved = list(traced.parameters)
        for i, gradient in zip(trainable, gradients):
            moved[i] = moved[i] + step * gradient
        return package.step(traced, moved, seeds)[0][0].double().item()

    change = loss_at(step) - loss_at(-step)
    if abs(change) < 1e-4 * abs(loss):
        return  # lost in rounding: nothing can be said
    ratio = change / (2 * step * square)
    if abs(ratio - 1) > 0.1:
        raise ExportError(f"the compiled gradient disagrees with finite differences (ratio {ratio:.3f}); if the loss "
                          "is smooth, this is a defect of the compiler: please report the module")


def export(module, loss, example_batch, path, *, max_batch=4096, precision="fp32",
           overwrite=False, max_operations=MAX_OPERATIONS, progress=None):
    """Writes the folder `path`, whose manifest.json is the path of `model: {name: compiled, path: …}`.

    module         a torch.nn.Module whose Python code does not depend on values of tensors
    loss           loss(output, *targets) -> a scalar, the mean over the batch
    example_batch  (input, *targets); input is a tensor, or (input, length) for padded sequences. Shapes except the
                   batch size and dtypes are those of the run. Stored in the folder for the self-test
    max_batch      largest batch size
    precision      train.precision of the run: "fp32" or "bf16" (autocast)
    max_operations limit of the operations of a step, because compiling more takes very long
    progress       called with a line about each phase

    Training uses module.train(), evaluation module.eval(). The folder appears complete or not at all. Raises ExportError with one line.
    """
    say = progress or (lambda text: None)
    began = time.monotonic()
    if precision not in ("fp32", "bf16"):
        raise ExportError(f"precision: {precision}; expected fp32 or bf16")
    check_can_write(path, {"manifest.json", *FILES}, overwrite)
    if shutil.which(os.environ.get("CXX", "g++").split()[0]) is None:
        raise ExportError("no C++ compiler: PyTorch compiles with g++ (apt install g++), or CXX names another")
    check_module(module)
    if not isinstance(example_batch, (tuple, list)) or len(example_batch) < 2:
        raise ExportError("the example batch must be (input, target, …)")
    inputs = [t.contiguous() for t in as_tensors(example_batch[0], "the input")]
    targets = [t.contiguous() for t in as_tensors(example_batch[1:], "the targets")]
    if not 1 <= len(inputs) <= 2:
        raise ExportError("the input must be a tensor, or (input, length)")
    for i, tensor in enumerate([*inputs, *targets]):
        check_on_cpu(f"tensor {i} of the example batch", tensor)
    check_batch(inputs, targets)
    if max_batch < inputs[0].size(0):
        raise ExportError(f"max_batch is {max_batch}, the example batch has {inputs[0].size(0)} samples")
    autocast = torch.bfloat16 if precision == "bf16" else None
    modes = [(each, each.training) for each in module.modules()]
    threads = torch.get_num_threads()
    folder = os.path.abspath(os.fspath(path))
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".stoker-export-", dir=os.path.dirname(folder))
    try:
        # With one thread Inductor omits the code that keeps the threads of dynamic_threads apart.
        torch.set_num_threads(max(2, threads))
        write(module, loss, inputs, targets, temporary, autocast, max_batch, precision, max_operations, say)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o755 & ~umask)
        for name in os.listdir(temporary):
            os.chmod(os.path.join(temporary, name), 0o644 & ~umask)
        replace(temporary, folder)
    except ExportError:
        raise
    except Exception as error:
        raise explained(error, "the export fails") from error
    finally:
        torch.set_num_threads(threads)
        for each, training in modes:
            each.training = training
        shutil.rmtree(temporary, ignore_errors=True)
    say(f"wrote {path} in {time.monotonic() - began:.0f} s")


def write(module, loss, inputs, targets, folder, autocast, max_batch, precision, max_operations, say):
    traced = Traced(module, loss, inputs, targets, autocast)
    outputs, is_tuple, eval_loss = run_once(traced)

    say("tracing")
    batch = torch.export.Dim("batch", min=1, max=max_batch)

    def dims(tensors):
        return [{0: batch} for _ in tensors]

    fixed = [None] * len(traced.parameters), [None] * len(traced.buffers)
    try:
        graph, count = trace_step(traced)
    except ExportError:
        raise
    except Exception as error:
        raise explained(error, "tracing the training step") from error
    operations = len(graph.graph.nodes)
    if operations > max_operations:
        raise ExportError(f"the training step has {operations:,} operations, which would take about "
                          f"{operations // 3000} minutes to compile: recurrent layers and loops are unrolled. Use shorter "
                          "sequences, stoker's own blstm or lstm_lm, or TorchScript; or allow it with max_operations "
                          "(--max-operations)")
    say(f"compiling {operations:,} operations")
    seeds = torch.arange(count, dtype=torch.int64)
    seed_argument = seeds if count else torch.zeros(1, dtype=torch.int64)
    programs = {
        "train": (Step(graph, traced, count), (traced.parameters, traced.buffers, inputs, targets, seed_argument),
                  (*fixed, dims(inputs), dims(targets), None)),
        "predict": (Predict(traced), (traced.parameters, traced.buffers, inputs), (*fixed, dims(inputs))),
        "loss": (Loss(traced, is_tuple), (outputs, targets), (dims(outputs), dims(targets))),
    }
    files = {}
    for name, (program, arguments, dynamic) in programs.items():
        say(f"compiling {name}")
        module.train(name == "train")
        try:
            files[name] = compiled(program, arguments, dynamic)
        except ExportError:
            raise
        except Exception as error:
            raise explained(error, f"compiling {name}") from error
    module.train()

    def place(name):
        return os.path.join(folder, name)

    package_aoti(place("model.pt2"), files)
    say("testing the package")
    tolerance = 1e-3 if autocast is None else 5e-2
    self_test = check_package(Package(place("model.pt2")), traced, seed_argument, eval_loss, tolerance)

    state = module.state_dict()
    weights = dict(zip(traced.parameter_names, traced.parameters)) | dict(zip(traced.buffer_names, traced.buffers))
    safetensors.torch.save_file({n: t.contiguous() for n, t in weights.items()}, place("model.safetensors"))
    example = {f"input.{i}": t for i, t in enumerate(inputs)} | {f"target.{i}": t for i, t in enumerate(targets)}
    safetensors.torch.save_file({n: t.contiguous().clone() for n, t in example.items()}, place("self_test.safetensors"))
    manifest = {
        "format": FORMAT,
        "torch": torch.__version__.split("+")[0],
        "device": "cpu",
        "cpu_flags": cpu_flags(),
        "precision": precision,
        "batch": {"min": 1, "max": max_batch},
        "seeds": count,
        "parameters": [spec(t, n, False, requires_grad=g) for n, t, g in
                       zip(traced.parameter_names, traced.parameters, traced.trainable)],
        "tied_parameters": tied_names(module),
        "buffers": [spec(t, n, False, persistent=n in state) for n, t in zip(traced.buffer_names, traced.buffers)],
        "inputs": [spec(t, f"input.{i}") for i, t in enumerate(inputs)],
        "targets": [spec(t, f"target.{i}") for i, t in enumerate(targets)],
        "outputs": [spec(t, f"output.{i}") for i, t in enumerate(outputs)],
        "self_test": self_test,
        "files": {name: sha256(place(name)) for name in FILES},
    }
    with open(place("manifest.json"), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
