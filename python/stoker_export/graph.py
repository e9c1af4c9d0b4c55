"""graph.json: the operators of a torch.export program, from its FX nodes.

An argument is JSON's own value, or an object with one key:
  {"v": 7}  value 7 of the program        {"t": 3}  tensor 3 of the table
  {"f": "0.1"}  a float                   {"dtype": "float32"}, {"device": …}, {"layout": …}, {"memory_format": …}
A node is an operator {"op", "args", "kwargs"}, a function of sizes {"size", "args"}, or a construct with subgraphs {"call"}; "results" are the
numbers of its values, each of which is defined once in a program.
"""
import operator
import os
import re

import sympy
import torch
from torch.export.graph_signature import InputKind, OutputKind

from . import ExportError
from .files import DTYPES

# Python's functions of sizes.
SIZE_FUNCTIONS = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.floordiv: "floordiv", operator.mod: "mod",
    operator.truediv: "truediv", operator.neg: "neg", operator.eq: "eq", operator.ne: "ne", operator.lt: "lt",
    operator.le: "le", operator.gt: "gt", operator.ge: "ge", operator.and_: "and", operator.or_: "or",
    operator.pow: "pow", torch.sym_max: "max", torch.sym_min: "min", torch.sym_int: "int", torch.sym_float: "float",
    torch.sym_not: "not", torch.sym_ite: "ite",
}
NAMED_SIZE_FUNCTIONS = ("ceil", "floor", "trunc", "sqrt")  # of torch.sym_… and torch._sym_…
# Assertions about what was traced: dtypes change under autocast, devices with train.device, and sizes are checked at the inputs.
DROPPED = {"aten::_assert_tensor_metadata", "aten::sym_constrain_range", "aten::sym_constrain_range_for_size",
           "aten::_assert_scalar", "aten::_functional_assert_scalar"}
with open(os.path.join(os.path.dirname(__file__), "operators.txt"), encoding="utf-8") as _file:
    ALLOWED = frozenset(line.strip() for line in _file if line.startswith("aten::"))
# As PyTorch traces conj(), and torch.tensor([…]) in forward(): a new tensor in each call, which Python detaches in place.
REPLACED = {"aten::_conj": "aten::conj", "aten::lift_fresh": "aten::lift_fresh_copy", "aten::detach_": "aten::detach"}
# out= would resize its tensor: computed, then copied.
WITHOUT_OUT = {"aten::div.out": "aten::div.Tensor"}
MAY_RETURN_ARGUMENT = {f"aten::{name}" for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "broadcast_tensors",
                                                  "meshgrid", "pad", "constant_pad_nd", "atleast_1d", "atleast_2d", "atleast_3d", "type_as")}
PACKAGES = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep)


def user_line(frames):
    """The innermost of traceback's frames that is not PyTorch's or ours: "net.py:12 (forward)", or None."""
    for frame in reversed(list(frames)):
        name = os.path.abspath(frame.filename)
        if not name.startswith(PACKAGES) and not frame.filename.startswith("<"):
            return f"{os.path.basename(frame.filename)}:{frame.lineno} ({frame.name})"
    return None


def line_of(node):
    """The user's line of an FX node."""
    for line in reversed((node.meta.get("stack_trace") or "").splitlines()):
        line = line.strip()
        if line.startswith('File "') and not line[6:].startswith(PACKAGES):
            name, rest = line[6:].split('", line ', 1)
            number, _, function = rest.partition(", in ")
            return f"{os.path.basename(name)}:{number} ({function})"
    return str(node)


def operator_named(name):
    base, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")._schema


def autocast_error(device):
    return (f"torch.autocast(\"{device}\") is switched off in an export, which is on the CPU, and would be in the run, too; write "
            "torch.autocast(x.device.type, …), or leave it to train.precision of the run")


def advice(schema):
    base = schema.name.removeprefix("aten::")
    if any(argument.is_out for argument in schema.arguments):
        return "write it without out="
    if base.endswith("_") and any(name.removeprefix("aten::").split(".")[0] == base[:-1] for name in ALLOWED):
        return f"write {base[:-1]}, which does not change its tensor"
    return "write it with other operators, or as a plugin"


class Table:
    """The parameters and buffers of a module, then the constants of its programs. `values` are as they are now."""

    def __init__(self, module):
        self.entries, self.values, self.tied, self.by_name = [], [], {}, {}
        first = {}
        state = module.state_dict(keep_vars=True)
        names = [name for named in (module.named_parameters, module.named_buffers) for name, _ in named(remove_duplicate=False)]
        self.constants = "constant"  # the start of their names, which no name of the module has
        while any(name.split(".")[0] == self.constants for name in names):
            self.constants = "_" + self.constants
        for kind, named in (("parameter", module.named_parameters), ("buffer", module.named_buffers)):
            for name, tensor in named(remove_duplicate=False):
                if id(tensor) in first:
                    self.tied[name] = first[id(tensor)]
                    continue
                first[id(tensor)] = name
                self.add(name, kind, tensor, name in state)

    def add(self, name, kind, tensor, is_persistent):
        self.by_name[name] = len(self.entries)
        # Contiguous, as stokerd's tensors are.
        if tensor.dtype not in DTYPES:
            raise ExportError(f"{name} is {tensor.dtype}, which checkpoints do not hold")
        value = tensor.detach().clone(memory_format=torch.contiguous_format)
        self.values.append(value)
        self.entries.append({
            "name": name, "kind": kind, "dtype": DTYPES[value.dtype], "shape": list(value.shape),
            "requires_grad": bool(kind == "parameter" and tensor.requires_grad), "persistent": is_persistent})
        return self.by_name[name]

    def index(self, target, prefix, constant):
        """The entry of a name of a program, or of a constant, which the programs share if it is equal."""
        name = target[len(prefix):] if target.startswith(prefix) else None
        name = self.tied.get(name, name)
        if name in self.by_name:
            return self.by_name[name]
        for i, (entry, value) in enumerate(zip(self.entries, self.values)):
            if entry["kind"] == "constant" and value.dtype == constant.dtype and torch.equal(value, constant):
                return i
        return self.add(f"{self.constants}.{len(self.entries)}", "constant", constant, False)

    def is_constant(self, index):
        return self.entries[index]["kind"] == "constant"


class Writer:
    def __init__(self, table, prefix, free=()):
        self.table, self.prefix, self.free = table, prefix, free
        self.num_values = 0
        self.inputs = []  # the user's
        self.schemas = {}
        self.memory = {}  # of values: the constants whose memory they may share

    def new_value(self):
        self.num_values += 1
        return self.num_values - 1

    def argument(self, value, env):
        if isinstance(value, torch.fx.Node):
            return env[value]
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return {"f": repr(value)}
        if isinstance(value, (list, tuple)):
            return [self.argument(each, env) for each in value]
        for kind in ("dtype", "device", "layout", "memory_format"):
            if isinstance(value, getattr(torch, kind)):
                return {kind: str(value).removeprefix("torch.")}
        raise ExportError(f"an operator gets a {type(value).__name__}")

    def graph(self, module, env):
        """Nodes and outputs of an FX graph; `env` has the values of its placeholders."""
        nodes = []
        for node in module.graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "output":
                outputs = node.args[0] if isinstance(node.args[0], (list, tuple)) else [node.args[0]]
                return nodes, [self.argument(each, env) for each in outputs]
            if node.op == "get_attr":
                value = operator.attrgetter(node.target)(module)
                is_graph = isinstance(value, torch.fx.GraphModule)
                env[node] = {"graph": value} if is_graph else {"t": self.table.index(node.target, self.prefix, value)}
                continue
            try:
                encoded = self.node(node, env)
            except ExportError as error:
                if "py:" in str(error).split(" ")[0]:  # of a part
                    raise
                raise ExportError(f"{line_of(node)}: {error}") from None
            for each in encoded if isinstance(encoded, list) else [encoded] if encoded else []:
                nodes.append(each | self.module_of(node))
        raise ExportError("a graph has no outputs")

    def module_of(self, node):
        stack = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
        path = stack[-1] if stack else ""
        return {"module": path[len(self.prefix):]} if path.startswith(self.prefix) else {}

    def node(self, node, env):
        target = node.target
        if target is operator.getitem:
            source = env[node.args[0]]
            if "parts" in source:
                env[node] = source["parts"][node.args[1]]
                return None
            if "results" in source:  # of a node with several
                env[node] = {"v": source["results"][node.args[1]]}
                return None
            encoded = self.size("getitem", node, env)
            self.memory[env[node]["v"]] = self.constants_in(source)
            return encoded
        name = getattr(target, "__name__", "").removeprefix("_sym_").removeprefix("sym_")
        if target in SIZE_FUNCTIONS or name in NAMED_SIZE_FUNCTIONS:
            return self.size(SIZE_FUNCTIONS.get(target, name), node, env)
        if isinstance(target, torch._ops.OpOverload):
            return self.operator(node, env)
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self.construct(node, env)
        raise ExportError(f"{getattr(target, '__name__', target)} cannot be exported")

    def size(self, name, node, env):
        args = [self.argument(each, env) for each in node.args]
        env[node] = {"v": self.new_value()}
        return {"size": name, "args": args, "results": [env[node]["v"]]}

    def operator(self, node, env):
        schema = node.target._schema
        name = schema.name + ("." + schema.overload_name if schema.overload_name else "")
        if schema.name in DROPPED:
            return None
        if schema.name in ("aten::item", "aten::_local_scalar_dense"):
            raise ExportError("Python reads the value of a tensor (.item()); keep it a tensor")
        if not schema.name.startswith("aten::"):
            raise ExportError(f"{name} is not an operator of PyTorch itself")
        if name in WITHOUT_OUT:
            return self.without_out(WITHOUT_OUT[name], node, env)
        if name in REPLACED:
            name = REPLACED[name]
            schema = operator_named(name)
        if name not in ALLOWED:
            raise ExportError(f"{name} is not on the list of operators that stokerd runs; {advice(schema)}")
        if name == "aten::broadcast_tensors" and len({str(tuple(each.meta["val"].shape)) for each in node.args[0]}) == 1:
            # Of one shape these are the tensors themselves, so that an output does not depend on the target that it is compared with.
            env[node] = {"parts": [self.argument(each, env) for each in node.args[0]]}
            return None
        self.schemas[name] = str(schema)
        args = [self.argument(each, env) for each in node.args]
        shared = self.shared_memory(schema, args, node, env)
        if name == "aten::sym_size.int" and args[1] == 0 and args[0] in self.inputs:
            args[0] = self.inputs[0]  # the batch, of which each input has the size; predict has no targets
        if name == "aten::sym_size.int" and args[1] == 1 and args[0] in [self.inputs[i] for i in self.free if i < len(self.inputs)]:
            args[0] = self.inputs[self.free[0]]
        node_json = {"op": name, "args": args}
        if node.kwargs:
            node_json["kwargs"] = {key: self.argument(value, env) for key, value in node.kwargs.items()}
        node_json["results"] = [self.new_value() for _ in schema.returns]
        self.memory |= {value: shared for value in node_json["results"]}
        env[node] = {"v": node_json["results"][0]} if len(schema.returns) == 1 else {"results": node_json["results"]}
        return node_json

    def constants_in(self, argument):
        """Constants whose memory an argument may share."""
        if isinstance(argument, list):
            return set().union(*map(self.constants_in, argument))
        if not isinstance(argument, dict):
            return set()
        if "t" in argument:
            return {argument["t"]} if self.table.is_constant(argument["t"]) else set()
        return self.memory.get(argument.get("v"), set())

    def shared_memory(self, schema, args, node, env):
        """Constants whose memory the results may share. A constant is part of no checkpoint, so nothing may write to it."""
        shared = set()
        named = {each.name: each for each in schema.arguments}
        given = [*zip(schema.arguments, args), *((named[key], self.argument(value, env)) for key, value in node.kwargs.items())]
        for argument, value in given:
            constants = self.constants_in(value)
            if constants and argument.alias_info is not None and argument.alias_info.is_write:
                raise ExportError("a tensor that is neither a parameter nor a buffer of the module is changed in place, which no checkpoint would have; "
                                  "make it a buffer (register_buffer())")
            # Some return their argument itself without saying so, such as dropout in eval mode.
            if argument.alias_info is not None or schema.name in MAY_RETURN_ARGUMENT:
                shared |= constants
        return shared

    def without_out(self, name, node, env):
        """The operator, and a copy of its result to out=."""
        computed, copy = operator_named(name), operator_named("aten::copy_")
        self.shared_memory(node.target._schema, [], node, env)
        value, out = self.new_value(), self.argument(node.kwargs["out"], env)
        self.schemas |= {name: str(computed), "aten::copy_": str(copy)}
        env[node] = {"v": self.new_value()}
        return [{"op": name, "args": [self.argument(each, env) for each in node.args], "results": [value]},
                {"op": "aten::copy_", "args": [out, {"v": value}], "results": [env[node]["v"]]}]

    def construct(self, node, env):
        name, args = node.target._name, list(node.args)
        if name == "cond":
            settings, graphs, operands = {"predicate": self.argument(args[0], env)}, args[1:3], args[3]
        elif name == "wrap_with_set_grad_enabled":
            settings, graphs, operands = {"enabled": args[0]}, args[1:2], args[2:]
        elif name == "wrap_with_autocast":
            settings = {"dtype": self.argument(args[1], env), "enabled": args[2]}
            if args[0] != "cpu":
                raise ExportError(autocast_error(args[0]))
            graphs, operands = args[4:5], args[5:]
        else:
            raise ExportError(f"{name} cannot be exported")
        names = {"wrap_with_set_grad_enabled": "set_grad_enabled", "wrap_with_autocast": "autocast"}
        encoded = {"call": names.get(name, name), **settings, "operands": [self.argument(each, env) for each in operands],
                   "graphs": []}
        shared = set()
        for each in graphs:
            encoded["graphs"].append(self.subgraph(env[each]["graph"], encoded["operands"]))
            shared |= self.constants_in(encoded["graphs"][-1]["outputs"])
        encoded["results"] = [self.new_value() for _ in encoded["graphs"][0]["outputs"]]
        self.memory |= {value: shared for value in encoded["results"]}
        env[node] = {"results": encoded["results"]}
        return encoded

    def subgraph(self, module, operands):
        env, inputs = {}, []
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        for placeholder, operand in zip(placeholders, operands, strict=True):
            inputs.append(self.new_value())
            self.memory[inputs[-1]] = self.constants_in(operand)
            env[placeholder] = {"v": inputs[-1]}
        nodes, outputs = self.graph(module, env)
        return {"inputs": inputs, "nodes": nodes, "outputs": outputs}


def batch_range(program, lines=None):
    """The sizes of a batch for which the program is valid: [1, None]. None if it has a fixed one. ExportError if they are no range: `lines` has
    the user's lines of conditions on sizes."""
    for name, value in user_inputs(program):
        size = value.shape[0]
        if isinstance(size, int) or size.node.expr.is_number:
            return None
        found = program.range_constraints.get(size.node.expr)
        is_bounded = found is not None and bool(found.upper < 2**62)
        batch = [1, None] if found is None else [max(1, int(found.lower)), int(found.upper) if is_bounded else None]
        env = size.node.shape_env
        steps = set().union(*(each.shape[1].node.expr.free_symbols for _, each in user_inputs(program)
                              if each.dim() > 1 and isinstance(each.shape[1], torch.SymInt)))
        for guard in env.guards:
            if not is_about_strides(guard) and not env.replace(guard.expr).free_symbols & steps:
                batch = restricted(batch, guard.expr, (lines or {}).get(str(guard.expr)))
        return batch
    raise ExportError("the program has no inputs")


def steps_range(program, free, steps, lines):
    """The least length of sequences for which the program is valid, up to `steps`. None if the length of one of the inputs `free` is fixed."""
    symbols, lower = set(), 1
    values = [value for _, value in user_inputs(program)]
    for i in free:
        size = values[i].shape[1]
        if isinstance(size, int) or size.node.expr.is_number:
            return None
        symbols |= size.node.expr.free_symbols
        found = program.range_constraints.get(size.node.expr)
        lower = max(lower, 1 if found is None else int(found.lower))
    limits = [lower, steps]
    env = values[free[0]].shape[1].node.shape_env
    for guard in env.guards:
        condition = env.replace(guard.expr)
        if not condition.free_symbols & symbols or is_about_strides(guard):
            continue
        line = lines.get(str(guard.expr))
        if condition.free_symbols <= symbols:
            limits = restricted(limits, condition, line, "the length of sequences", "steps")
        elif not all(condition.xreplace({each: sympy.Integer(t if each in symbols else n) for each in condition.free_symbols}) == sympy.true
                     for n in (2, 3, 5, 8, 33, 64, 100, 1000) for t in {*range(limits[0], min(limits[1], 33) + 1), limits[1]}):
            raise ExportError(f"{line + ': ' if line else ''}the module's Python code depends on the batch size and the length of sequences ({guard.expr}), and the "
                              "graph would have what it does for the example; write it so that it is right for each of them, or export without dynamic_length")
    if limits[1] < steps:
        raise AssertionError("the example is out of the range")
    return limits[0]


def is_about_strides(guard):
    """Of PyTorch's own description of strides, which has no part in what is computed."""
    location = guard.sloc.framework_loc
    return location is not None and location.name in ("check_contiguous_sizes_strides", "is_contiguous", "is_channels_last_contiguous_2d")


def restricted(batch, condition, line, what="the batch size", name="batch"):
    """The sizes of `batch` that fulfill the condition under which PyTorch traced the program. ExportError if they are no range."""
    lower, upper = batch
    symbols = condition.free_symbols
    last = upper or 2**20 + 1
    steps = {int(n) for n in condition.atoms(sympy.Integer) if 1 < abs(int(n)) < 2**20}
    near = {abs(n) * k + d for n in steps for k in (1, 2, 3) for d in (-1, 0, 1)}
    sizes = sorted(n for n in {*range(1, 65), 97, 100, 128, 255, 256, 257, 1000, 1024, 4093, 4096, 65536, 65537, 2**20 + 1, *near} if lower <= n <= last)
    holds = [bool(condition.xreplace({symbol: sympy.Integer(n) for symbol in symbols})) for n in sizes]
    if all(holds):
        return batch
    first = holds.index(True) if True in holds else len(holds)
    end = len(holds) - holds[::-1].index(True) if True in holds else 0
    if first == len(holds) or not all(holds[first:end]) or end < len(holds) and sizes[end - 1] + 1 != sizes[end]:
        shown = re.sub(r"\bs\d+\b", name, str(condition))
        raise ExportError(f"{line + ': ' if line else ''}the module's Python code depends on {what} ({shown}), and the graph would have what it does "
                          f"for the example; write it so that it is right for each {what.removeprefix('the ')}")
    return [max(lower, sizes[first]), upper if end == len(holds) else sizes[end - 1]]


def user_inputs(program):
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    return [(node.name, node.meta["val"]) for node in program.graph.nodes
            if node.op == "placeholder" and kinds[node.name] == InputKind.USER_INPUT]


def program_json(program, table, prefix, shapes, free=()):
    """(program, schemas of its operators): `outputs` as forward() returned them. `shapes`: of the inputs per sample, of which those of `free` have a free
    first dimension."""
    writer = Writer(table, prefix, free)
    env, inputs = {}, []
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in (each for each in program.graph.nodes if each.op == "placeholder"):
        spec = specs[node.name]
        if spec.kind == InputKind.USER_INPUT:
            value = node.meta["val"]
            env[node] = {"v": writer.new_value()}
            writer.inputs.append(env[node])
            inputs.append({"v": env[node]["v"], "dtype": DTYPES[value.dtype],
                           "shape": [None, *shapes[len(inputs)]]})
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            constant = program.state_dict.get(spec.target, program.constants.get(spec.target))
            env[node] = {"t": table.index(spec.target, prefix, constant)}
        else:
            raise ExportError(f"an input of the kind {spec.kind} cannot be exported")
    nodes, outputs = writer.graph(program.graph_module, env)
    updates, kept = [], []
    for spec, output in zip(program.graph_signature.output_specs, outputs):
        if spec.kind == OutputKind.USER_OUTPUT:
            kept.append(output)
        elif spec.kind == OutputKind.BUFFER_MUTATION:  # a buffer that is replaced
            updates.append({"tensor": table.index(spec.target, prefix, None), "value": output})
        else:
            raise ExportError(f"an output of the kind {spec.kind} cannot be exported")
    return {"inputs": inputs, "num_values": writer.num_values, "nodes": nodes, "outputs": kept,
            "updates": updates}, writer.schemas


class Taint:
    """The values of a program that depend on some of its inputs, node by node."""

    def __init__(self, program, inputs):
        self.values = {program["inputs"][i]["v"] for i in inputs}
        self.owner = {}  # of a view: the value whose memory it has

    def depends(self, value):
        if isinstance(value, list):
            return any(map(self.depends, value))
        if not isinstance(value, dict):
            return False
        if "v" in value:
            return value["v"] in self.values or self.owner.get(value["v"]) in self.values
        return any(self.depends(each) for each in value.values() if isinstance(each, (list, dict)))

    def takes(self, node):
        """Whether the node depends on them; then its results do, and what it changes in place."""
        schema = operator_named(node["op"]) if "op" in node else None
        given = list(zip(schema.arguments, node["args"])) if schema else []
        is_view = schema and (schema.name in MAY_RETURN_ARGUMENT or any(each.alias_info for each in schema.returns))
        if is_view and given and isinstance(given[0][1], dict) and "v" in given[0][1]:
            source = given[0][1]["v"]
            self.owner |= {result: self.owner.get(source, source) for result in node["results"]}
        arguments = [node.get("args"), list(node.get("kwargs", {}).values()), node.get("operands"), node.get("predicate")]
        if not self.depends(arguments):
            return False
        self.values.update(node["results"])
        for argument, value in given:
            if argument.alias_info and argument.alias_info.is_write and isinstance(value, dict) and "v" in value:
                self.values |= {value["v"], self.owner.get(value["v"], value["v"])}
        return True


def kept_inputs(program, outputs):
    """Of which inputs the outputs depend: their indices. The first is one of them, because it has the batch size."""
    kept = [0]
    for i in range(1, len(program["inputs"])):
        taint = Taint(program, [i])
        for node in program["nodes"]:
            taint.takes(node)
        if taint.depends(outputs):
            kept.append(i)
    return kept


def without_inputs(program, kept, outputs):
    """The program with the inputs `kept` and without all that depends on others, which returns `outputs`. None: these depend on others."""
    taint = Taint(program, [i for i in range(len(program["inputs"])) if i not in kept])
    nodes = [node for node in program["nodes"] if not taint.takes(node)] if outputs else []
    if taint.depends(outputs):
        return None
    updates = [each for each in program["updates"] if not taint.depends(each["value"])] if outputs else []
    return program | {"inputs": [program["inputs"][i] for i in kept], "nodes": nodes, "outputs": outputs, "updates": updates}
