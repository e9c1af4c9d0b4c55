"""What stoker-export rejects, each with one line that says what to change, and no folder; and what it writes."""
import contextlib
import dataclasses
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy
import torch
from torch import nn
from torch.nn import functional as F

import stoker_export
from stoker_export import ExportError, __main__ as command, export, exporter, graph, run_data

BATCH = 6


class Net(nn.Module):
    """A linear layer, after which a test does something."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)


def batch():
    return torch.randn(BATCH, 8), torch.randint(0, 4, (BATCH,))


def line_of(function, text):
    """This file and the line of `function` that has `text`, as in a message."""
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    first = function.__code__.co_firstlineno
    number = next(i for i in range(first, len(lines) + 1) if text in lines[i - 1])
    return f"{os.path.basename(__file__)}:{number} ({function.__name__})"


class ExportTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "model")

    def error(self, module, loss=F.cross_entropy, example=None):
        with self.assertRaises(ExportError) as caught:
            export(module, loss, example or batch(), self.path)
        self.assertEqual(os.listdir(self.folder.name), [], "an export that fails leaves nothing")
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    def written(self, module, loss=F.cross_entropy, example=None):
        export(module, loss, example or batch(), self.path, overwrite=True)
        with open(os.path.join(self.path, "graph.json"), encoding="utf-8") as file:
            return json.load(file)


class ForwardTest(ExportTest):
    def test_branch_on_values(self):
        class Branch(Net):
            def forward(self, x):
                y = self.linear(x)
                return y * 2 if y.sum() > 0 else y

        text = self.error(Branch())
        self.assertIn(line_of(Branch.forward, "if y.sum()"), text)
        self.assertIn("torch.where or torch.cond", text)

    def test_item(self):
        class Item(Net):
            def forward(self, x):
                return self.linear(x) * x.mean().item()

        text = self.error(Item())
        self.assertIn(line_of(Item.forward, ".item()"), text)
        self.assertIn(".item()", text)

    def test_autograd_function(self):
        class Reverse(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)

            @staticmethod
            def backward(ctx, g):
                return -0.5 * g

        class Reversed(Net):
            def forward(self, x):
                return self.linear(Reverse.apply(torch.tanh(self.linear.weight.sum() + x)))

        text = self.error(Reversed())
        self.assertIn(line_of(Reversed.forward, "Reverse.apply"), text)
        self.assertIn("Reverse is a torch.autograd.Function, whose backward() an exported graph does not hold", text)
        # Without that guard, the comparison with Python finds the wrong gradient.
        with mock.patch.object(exporter.TracingGuards, "active", lambda self: contextlib.nullcontext()):
            self.assertIn("computes another gradient of linear.weight than Python", self.error(Reversed()))

    def test_numbers_that_change(self):
        class Warmup(Net):
            def __init__(self):
                super().__init__()
                self.calls = 0

            def forward(self, x):
                self.calls += 1
                return self.linear(x) * min(1, self.calls / 100)

        self.assertIn("forward() changes calls of Warmup", self.error(Warmup()))
        self.assertIn("forward() changes calls of 0 (Warmup)", self.error(nn.Sequential(Warmup())))

    def test_random_numbers_of_the_host(self):
        class Skip(Net):
            def __init__(self, draw):
                super().__init__()
                self.draw = draw

            def forward(self, x):
                return self.linear(x) * self.draw()

        for draw in (random.random, numpy.random.rand):
            self.assertIn("draw them with torch.rand", self.error(Skip(draw)))

    def test_buffers(self):
        class Counter(Net):
            def __init__(self, persistent):
                super().__init__()
                self.register_buffer("calls", torch.zeros(()), persistent=persistent)

            def forward(self, x):
                self.calls += 1
                return self.linear(x)

        self.assertIn("the buffer calls is changed in training", self.error(Counter(False)))
        self.assertEqual([t["name"] for t in self.written(Counter(True))["tensors"]], ["linear.weight", "linear.bias", "calls"])

    def test_buffer_of_another_shape(self):
        class Grows(Net):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(1))

            def forward(self, x):
                self.seen = torch.cat([self.seen, self.seen])
                return self.linear(x)

        self.assertIn("the buffer seen gets another shape", self.error(Grows()))

    def test_tensors_in_attributes(self):
        class Keeps(Net):
            def __init__(self, reads):
                super().__init__()
                self.reads, self.last = reads, None

            def forward(self, x):
                before = self.last
                self.last = self.linear(x)
                return self.last if before is None or not self.reads else self.last + before.detach()

        self.assertIn("forward() reads a tensor that the call before it kept in last of Keeps", self.error(Keeps(True)))
        module = Keeps(False)
        self.written(module)
        self.assertIsNone(module.last, "as before the export")

    def test_shared_memory(self):
        module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
        module[1].weight = nn.Parameter(module[0].weight[:4])
        self.assertIn("1.weight shares the memory of 0.weight", self.error(module))
        square = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        square[1].weight = square[0].weight
        self.assertEqual(self.written(square)["tied"], {"1.weight": "0.weight"}, "one tensor with two names is allowed")

    def test_fixed_batch_size(self):
        class Fixed(Net):
            def forward(self, x):
                return self.linear(x.view(BATCH, 8))

        self.assertIn("the batch size", self.error(Fixed()))

    def test_loss_that_changes_outputs(self):
        for change in (lambda o, y: o.div_(10.0), lambda o, y: o.masked_fill_(F.one_hot(y, 4) > 0, -1.0)):
            def loss(o, y):
                return F.cross_entropy(change(o, y), y)
            self.assertIn("the loss changes an output of the module in place", self.error(nn.Linear(8, 4), loss))

    def test_state_of_the_loss(self):
        class Loss(nn.Module):
            def __init__(self, change):
                super().__init__()
                self.register_buffer("seen", torch.zeros(()))
                self.change, self.dropout = change, nn.Dropout(0.5)

            def forward(self, o, y):
                self.change(self)
                return F.cross_entropy(self.dropout(o), y)

        def replace(loss):
            loss.seen = loss.seen + 1

        for change in (lambda loss: loss.seen.add_(1), replace):
            loss = Loss(change)
            self.assertIn("the loss changes its buffer seen", self.error(nn.Linear(8, 4), loss))
            self.assertEqual(loss.seen, 0, "as before the export")
        calls = {"n": 0}

        def counting(o, y):
            calls["n"] += 1
            return F.cross_entropy(o, y) * min(1, calls["n"] / 100)

        self.assertIn("changes calls['n'] of", self.error(nn.Linear(8, 4), counting))
        # In eval mode its dropout does nothing: the loss is that of eager PyTorch.
        module, example = nn.Linear(8, 4), batch()
        norm = self.written(module, Loss(lambda loss: None).eval(), example)["self_test"]["loss"]["norm"]
        self.assertAlmostEqual(norm, F.cross_entropy(module(example[0]), example[1]).item(), places=6)

    def test_numbers_in_dictionaries(self):
        class Counts(Net):
            def __init__(self):
                super().__init__()
                self.state, self.fill = {"calls": [0]}, float("nan")

            def forward(self, x):
                self.state["calls"][0] += 1
                return self.linear(x) * min(1, self.state["calls"][0] / 100)

        self.assertIn("forward() changes state['calls'][0] of Counts", self.error(Counts()))

    def test_attribute_that_is_not_a_number(self):
        class Filled(Net):
            def __init__(self):
                super().__init__()
                self.fill = float("nan")

            def forward(self, x):
                return torch.nan_to_num(self.linear(x), nan=0.0 if self.fill != self.fill else 1.0)

        self.written(Filled())

    def test_exchanged_buffers(self):
        """The self-test has what eager PyTorch computes."""
        class Exchanged(Net):
            def __init__(self):
                super().__init__()
                for i, name in enumerate(("previous", "current", "left", "right")):
                    self.register_buffer(name, torch.full((4,), float(i + 1)))

            def forward(self, x):
                y = self.linear(x)
                self.previous, self.current = self.current, y.detach().mean(0)
                self.left, self.right = self.right, self.left
                return y

        module, example = Exchanged(), batch()
        buffers = self.written(module, example=example)["self_test"]["buffers"]
        module(example[0])
        for name, buffer in module.named_buffers():
            self.assertAlmostEqual(buffers[name]["norm"], buffer.double().norm().item(), places=5, msg=name)

    def test_loss_that_has_the_module(self):
        """Its gradients are found in the comparison with F64, too: the bound is rounding, and a hook that reverses them is refused."""
        class Reversed(Net):
            def forward(self, x):
                h = self.linear(x).tanh()
                if h.requires_grad:
                    h.register_hook(lambda g: -g)
                return h * 2

        for cls in (Reversed, Net):
            module = cls() if cls is Reversed else nn.Linear(8, 4)

            def loss(o, y):
                return F.cross_entropy(o, y) + sum(p.square().sum() for p in module.parameters())

            if cls is Reversed:
                self.assertIn("a graph has no hooks", self.error(module, loss))
                continue
            for name, gradient in self.written(module, loss)["self_test"]["gradients"].items():
                self.assertLess(gradient["bound"], 1e-3 * gradient["norm"], name)

    def test_branches_on_the_batch_size(self):
        """The branch of the example would be that of all batches; eager PyTorch takes the other one for odd sizes."""
        class Even(Net):
            def forward(self, x):
                return self.linear(x) * 2 if x.shape[0] % 2 == 0 else self.linear(x)

        class Hole(Net):
            def forward(self, x):
                return self.linear(x) * 2 if x.shape[0] != 16 else self.linear(x)

        class Pairs(Net):
            def forward(self, x):
                return self.linear(x).view(-1, 2, 4).sum(1).repeat(2, 1)

        module = Even()
        x = torch.randn(7, 8)
        self.assertFalse(torch.equal(module(x)[:6], module(x[:6])), "eager PyTorch")
        for each, text in ((Even, "% 2"), (Hole, "!= 16"), (Pairs, "view(-1, 2")):
            error = self.error(each())
            self.assertIn("depends on the batch size", error)
            self.assertIn(line_of(each.forward, text), error)

    def test_ranges_of_the_batch_size(self):
        class Few(Net):
            def __init__(self, few):
                super().__init__()
                self.few = few

            def forward(self, x):
                return self.linear(x) * 2 if self.few(x.shape[0]) else self.linear(x)

        self.assertEqual(self.written(Few(lambda size: size <= 20))["batch"]["max"], 20)
        self.assertEqual(self.written(Few(lambda size: size > 3))["batch"], {"min": 4, "max": None})
        self.assertEqual(self.written(Few(lambda size: 2 * size < 31))["batch"]["max"], 15)

    def test_changed_constants(self):
        class Plain(Net):
            def __init__(self, change):
                super().__init__()
                self.run, self.change = torch.zeros(4), change

            def forward(self, x):
                self.change(self.run)
                return self.linear(x)

        def change(run):
            run.mul_(0.9).add_(0.1)

        def change_view(run):
            with torch.no_grad():
                run.view(2, 2)[0].add_(1)

        for each in (change, change_view):
            text = self.error(Plain(each))
            self.assertIn("register_buffer", text)
        kept = torch.zeros(4)

        class Closure(Net):
            def forward(self, x):
                with torch.no_grad():
                    kept.view(2, 2)[0].add_(1)
                return self.linear(x)

        text = self.error(Closure())
        self.assertIn(line_of(Closure.forward, "kept.view"), text)
        self.assertIn("changed in place", text)

    def test_parameter_of_a_closure(self):
        scale = nn.Parameter(torch.ones(4))
        text = self.error(nn.Linear(8, 4), lambda o, y: F.cross_entropy(o * scale, y))
        self.assertIn("a tensor [4] has requires_grad, but it is no parameter of the module", text)
        self.assertIn("exporter_test.py:", text)

        class Scaled(Net):
            def forward(self, x):
                return self.linear(x) * scale

        self.assertIn(line_of(Scaled.forward, "* scale"), self.error(Scaled()))

    def test_hooks_of_parameters(self):
        for register in ("register_hook", "register_post_accumulate_grad_hook"):
            module = nn.Linear(8, 4)
            getattr(module.weight, register)(lambda g: None)
            self.assertIn("weight has a hook on its gradient", self.error(module))

    def test_autocast_of_another_device(self):
        class Cuda(Net):
            def forward(self, x):
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    return self.linear(x)

        text = self.error(Cuda())
        self.assertIn(line_of(Cuda.forward, "torch.autocast"), text)
        self.assertIn("x.device.type", text)

    def test_operators_that_are_not_on_the_list(self):
        class Spectrum(Net):
            def forward(self, x):
                return self.linear(x.clone().unsqueeze_(1).squeeze(1))

        text = self.error(Spectrum())
        self.assertIn("aten::unsqueeze_ is not on the list of operators that stokerd runs; write unsqueeze,", text)
        self.assertIn(line_of(Spectrum.forward, "unsqueeze_"), text)

    def test_operators_of_extensions(self):
        library = torch.library.Library("stoker_test", "DEF")
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x * 2, "CompositeExplicitAutograd")
        library.impl("double", lambda x: torch.empty_like(x), "Meta")

        class Extended(Net):
            def forward(self, x):
                return self.linear(torch.ops.stoker_test.double(x))

        text = self.error(Extended())
        self.assertIn("stoker_test::double is not an operator of PyTorch itself", text)
        self.assertIn(line_of(Extended.forward, "torch.ops"), text)

    def test_error_of_the_module(self):
        class Wrong(Net):
            def forward(self, x):
                return self.linear(x[:, :7])

        text = self.error(Wrong())
        self.assertIn(line_of(Wrong.forward, "x[:, :7]"), text)
        self.assertIn("mat1 and mat2", text)


class ArgumentsTest(ExportTest):
    def test_losses(self):
        self.assertIn("must be a scalar", self.error(nn.Linear(8, 4), lambda o, y: F.cross_entropy(o, y, reduction="none")))
        self.assertIn("nan", self.error(nn.Linear(8, 4), lambda o, y: o.sum() * float("nan")))
        self.assertIn("depend on a parameter", self.error(nn.Linear(8, 4), lambda o, y: o.detach().sum()))
        self.assertIn("(sum, count)", self.error(nn.Linear(8, 4), lambda o, y: (o.sum(), 1, 2)))
        self.assertIn("the loss has parameters", self.error(nn.Linear(8, 4), nn.Linear(4, 1)))

    def test_batches(self):
        x, y = batch()
        for example, expected in (((x.double(), y), "float64"), ((x[:1], y[:1]), "one sample"), ((x, y[:3]), "first dimension"),
                                  ((x.to("meta"), y), "move the module and the batch to the CPU"), ((x,), "(input, target, …)"),
                                  ((x, [1, 2]), "must be a tensor")):
            self.assertIn(expected, self.error(nn.Linear(8, 4), example=example))

    def test_parameters(self):
        self.assertIn("device meta", self.error(nn.Linear(8, 4, device="meta")))
        self.assertIn("train.precision", self.error(nn.Linear(8, 4).to(torch.bfloat16)))
        self.assertIn("nothing would be trained", self.error(nn.Linear(8, 4).requires_grad_(False)))
        self.assertIn("has no shape yet", self.error(nn.LazyLinear(4)))

    def test_torchscript(self):
        script = torch.jit.script(nn.Linear(8, 4))
        for module, loss in ((script, F.cross_entropy), (nn.Sequential(script), F.cross_entropy), (nn.Linear(8, 4), torch.jit.script(nn.CrossEntropyLoss()))):
            self.assertIn("is TorchScript: export the Python module", self.error(module, loss))
        path = os.path.join(self.folder.name, "net.pt")
        script.save(path)
        module = nn.Linear(8, 4)
        module.load_state_dict(torch.jit.load(path).state_dict())  # as the message says
        self.assertTrue(torch.equal(module.weight, script.weight))

    def test_version_of_pytorch(self):
        with mock.patch.object(stoker_export, "TORCH_VERSION", "2.99.0"):
            self.assertIn("pip install torch==2.99.0", self.error(nn.Linear(8, 4)))
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        for name in ("python/pyproject.toml", "scripts/libtorch-cpu.txt"):
            with open(os.path.join(root, name), encoding="utf-8") as file:
                self.assertIn(f"torch=={stoker_export.TORCH_VERSION}", file.read(), name)

    def test_folders(self):
        export(nn.Linear(8, 4), F.cross_entropy, batch(), self.path)
        with self.assertRaisesRegex(ExportError, "exists; choose another folder"):
            export(nn.Linear(8, 4), F.cross_entropy, batch(), self.path)
        with open(os.path.join(self.path, "notes.txt"), "w", encoding="utf-8"):
            pass
        with self.assertRaisesRegex(ExportError, "is not a folder that stoker-export wrote"):
            export(nn.Linear(8, 4), F.cross_entropy, batch(), self.path, overwrite=True)


class FileTest(ExportTest):
    def test_module_is_unchanged(self):
        module = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        module[2].eval()
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        example, state = batch(), torch.get_rng_state()
        self.written(module, example=example)
        self.assertTrue(torch.equal(state, torch.get_rng_state()))
        self.assertTrue(all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items()))
        self.assertEqual([m.training for m in module], [True, True, False])
        self.assertTrue(all(p.grad is None for p in module.parameters()))

    def test_gradients_that_do_not_exist(self):
        class Unused(Net):
            def __init__(self):
                super().__init__()
                self.other = nn.Linear(2, 2)

            def forward(self, x):
                return self.linear(x)

        # PyTorch's optimizers do not decay a parameter without a gradient; stokerd trains what requires one.
        document = self.written(Unused())
        self.assertEqual(set(document["self_test"]["gradients"]), {"linear.weight", "linear.bias"})
        self.assertEqual({tensor["name"]: tensor["requires_grad"] for tensor in document["tensors"]},
                         {"linear.weight": True, "linear.bias": True, "other.weight": False, "other.bias": False})

    def test_constants_conjugates_and_distributions(self):
        class Operators(Net):
            def forward(self, x):
                weights = torch.tensor([1.0, 2.0, 0.5, 1.5]) * x.new_tensor(2.0)
                spectrum = torch.fft.rfft(self.linear(x))
                power = torch.fft.irfft(spectrum * spectrum.conj(), n=4)
                scale = nn.functional.softplus(power) + 1e-3
                return torch.distributions.Normal(power, scale).log_prob(x[:, :4]) * weights

        operators = {operator.split("(")[0] for operator in self.written(Operators())["operators"]}
        self.assertIn("aten::lift_fresh_copy", operators)
        self.assertIn("aten::conj", operators)

    def test_data_of_tensors(self):
        """The average of another network, as MoCo and BYOL write it."""
        class Teacher(Net):
            def __init__(self):
                super().__init__()
                self.teacher = nn.Linear(8, 4).requires_grad_(False)

            def forward(self, x):
                for mine, other in zip(self.linear.parameters(), self.teacher.parameters()):
                    other.data = other.data * 0.9 + mine.data * 0.1
                return self.linear(x) - self.teacher(x)

        document = self.written(Teacher())
        self.assertEqual({t["name"] for t in document["tensors"] if not t["requires_grad"]}, {"teacher.weight", "teacher.bias"})

    def test_state_outside_of_modules(self):
        class Schedule:
            def __init__(self):
                self.calls = 0

        schedule = Schedule()

        class Annealed(Net):
            calls = 0

            def __init__(self, where):
                super().__init__()
                self.where, self.schedule, self.count = where, schedule, 0

            def forward(self, x):
                if self.where == "object":
                    self.schedule.calls += 1
                elif self.where == "class":
                    type(self).calls += 1
                elif not self.training:
                    self.count += 1
                late = self.schedule.calls > 100 or self.calls > 100  # not in the calls that the exporter compares
                return self.linear(x) * (2 if late else 1)

        self.assertIn("calls", self.error(Annealed("object")))
        self.assertIn("calls", self.error(Annealed("class")))
        self.assertIn("count", self.error(Annealed("evaluation")))

    def test_hooks_of_tensors(self):
        class Hooked(Net):
            def forward(self, x):
                y = self.linear(x)
                if y.requires_grad:
                    y.register_hook(lambda gradient: gradient.clamp(-100, 100))
                return y

        text = self.error(Hooked())
        self.assertIn(line_of(Hooked.forward, "register_hook"), text)
        self.assertIn("a graph has no hooks", text)

    def test_bound_of_a_gradient_that_is_zero(self):
        """The bias before batch norm: its gradient is rounding alone, so its bound must not be relative to it."""
        module = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
        gradients = self.written(module)["self_test"]["gradients"]
        self.assertLess(gradients["0.bias"]["norm"], 1e-6)
        self.assertGreater(gradients["0.bias"]["bound"], gradients["0.bias"]["norm"])
        self.assertLess(gradients["0.weight"]["bound"], 1e-2 * gradients["0.weight"]["norm"])

    def test_checkpointed_modules(self):
        class Recomputed(Net):
            def forward(self, x):
                return torch.utils.checkpoint.checkpoint(self.linear, x, use_reentrant=False)

        self.assertEqual(self.written(Recomputed())["checkpointed"], ["linear"])

    def test_predict_without_targets(self):
        written = self.written(nn.Linear(8, 4))["programs"]
        self.assertEqual([len(written[name]["inputs"]) for name in ("train", "eval", "predict")], [2, 2, 1])
        self.assertEqual([node["op"] for node in written["predict"]["nodes"]], ["aten::linear"])

    def test_outputs(self):
        @dataclasses.dataclass
        class Outputs:
            features: torch.Tensor
            logits: torch.Tensor

        class Several(Net):
            def __init__(self, returns):
                super().__init__()
                self.returns = returns

            def forward(self, x):
                return self.returns(features=x * 1, logits=self.linear(x))

        def loss(outputs, y):
            return F.cross_entropy(outputs["logits"] if isinstance(outputs, dict) else outputs.logits, y)

        for returns in (dict, Outputs):
            self.assertEqual(self.written(Several(returns), loss)["outputs"], ["['logits']", "['features']"], "the scored one is first")

    def test_outputs_per_step(self):
        """As many classes as steps: only what gets shorter with its input is cut."""
        class Steps(Net):
            def forward(self, x):
                y = self.linear(x)
                return {"logits": y.mean(1), "features": y, "pairs": y.transpose(1, 2), "sums": y.sum(2)}

        written = self.written(Steps(), lambda o, y: F.cross_entropy(o["logits"], y), (torch.randn(BATCH, 4, 8), torch.randint(0, 4, (BATCH,))))
        self.assertEqual(written["outputs"], ["['logits']", "['features']", "['pairs']", "['sums']"])
        self.assertEqual(written["per_step"], [False, True, False, True])

    def test_names_of_constants(self):
        """Are none of the module's."""
        for taken in ("constant", "constant.3"):
            class Named(Net):
                def __init__(self):
                    super().__init__()
                    if "." in taken:
                        self.constant = nn.ParameterDict({"3": torch.ones(4)})
                    else:
                        self.constant = nn.Parameter(torch.ones(4))
                    self.plain = torch.full((4,), 0.5)

                def forward(self, x):
                    return self.linear(x) + self.plain + (self.constant["3"] if "." in taken else self.constant)

            names = [t["name"] for t in self.written(Named())["tensors"]]
            self.assertEqual(sorted(names), sorted(["linear.weight", "linear.bias", taken, "_constant.3"]))

    def test_batch_range(self):
        class Halves(Net):
            def forward(self, x):
                return self.linear(x) + x[:x.shape[0] // 2].sum()

        self.assertEqual(self.written(nn.Linear(8, 4))["batch"], {"min": 1, "max": None})
        self.assertLessEqual(self.written(Halves())["batch"]["min"], 2)

    def test_batches_of_any_size(self):
        """PyTorch computes distances otherwise from 25 rows on, which would limit the batch to that of the example."""
        class Distances(Net):
            def forward(self, x):
                return self.linear(x) + torch.cdist(x, x).mean() + torch.quantile(x, 0.5, dim=1, keepdim=True) + torch.take_along_dim(x, x.argsort(1)[:, :1], 1)

        self.assertEqual(self.written(Distances())["batch"], {"min": 1, "max": None})

    def test_hooks_of_the_first_call(self):
        """transformers registers its hooks in the first call, and remembers it in an attribute."""
        class Captured(Net):
            def forward(self, x):
                if not getattr(self, "has_hook", False):
                    self.has_hook = True
                    self.linear.register_forward_hook(lambda module, arguments, output: self.captured.append(output))
                captured = self.captured = []
                y = self.linear(x)
                del self.captured
                return y * len(captured)

        module = Captured()
        self.assertEqual([node["op"] for node in self.written(module)["programs"]["predict"]["nodes"]], ["aten::linear", "aten::mul.Tensor"])
        self.assertEqual(len(module.linear._forward_hooks), 0)

    def test_view_of_input_with_gradient(self):
        class View(Net):
            def forward(self, x):
                x = x[:, :]
                if self.training:
                    x.requires_grad = True
                return self.linear(x)

        self.written(View())

    def test_dynamic_length(self):
        tokens = torch.randint(0, 20, (BATCH, 9))
        embed = nn.Embedding(20, 8)

        def exported(forward, loss=F.cross_entropy):
            class Sequences(Net):
                def __init__(self):
                    super().__init__()
                    self.embed, self.position, self.rnn = embed, nn.Embedding(9, 8), nn.LSTM(8, 8, batch_first=True)

            Sequences.forward = forward
            export(Sequences(), loss, (tokens, torch.zeros_like(tokens)), self.path, dynamic_length=True, overwrite=True)
            with open(os.path.join(self.path, "graph.json"), encoding="utf-8") as file:
                return json.load(file)

        def per_token(logits, targets):
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

        def any_length(self, x):
            return self.linear(self.rnn(self.embed(x) + self.position(torch.arange(x.shape[1])))[0])

        written = exported(any_length, per_token)
        self.assertEqual(written["min_steps"], [1, 1])
        self.assertEqual([value["shape"] for value in written["programs"]["train"]["inputs"]], [[None, 9], [None, 9]])
        self.assertEqual(written["batch"], {"min": 1, "max": None})

        def fixed_length(self, x):
            return self.linear(self.embed(x) + self.position(torch.arange(9)))

        def multiple_above_8(self, x):  # below the example's 9 there is none
            return self.linear(self.embed(x[:, :8].view(x.shape[0], -1, 2)).sum(2)) if x.shape[1] % 3 == 0 else self.linear(self.embed(x))

        def multiple(self, x):
            return self.linear(self.embed(x) * 2) if x.shape[1] % 3 == 0 else self.linear(self.embed(x))

        for forward, expected in ((fixed_length, "fixes the length of sequences at that of the example (9); write x.shape[1]"),
                                  (multiple_above_8, "fixes the length of sequences at that of the example (9)"),
                                  (multiple, "depends on the length of sequences (")):
            with self.subTest(expected), self.assertRaises(ExportError) as caught:
                exported(forward, lambda logits, targets: logits.mean())
            self.assertIn(expected, str(caught.exception))
            self.assertIn("exporter_test.py:", str(caught.exception))
        with self.assertRaisesRegex(ExportError, "dynamic_length: the example batch has no sequence"):
            export(nn.Linear(1, 4), F.cross_entropy, (torch.randn(BATCH, 1), torch.zeros(BATCH, dtype=torch.int64)), self.path, dynamic_length=True, overwrite=True)

    def test_names_of_dropped_operators(self):
        """Assertions of the export fix dtypes and sizes."""
        self.assertTrue(all(name.startswith("aten::") for name in graph.DROPPED))


def make():
    return nn.Linear(8, 4), F.cross_entropy, batch()


def make_branch():
    class Branch(Net):
        def forward(self, x):
            return self.linear(x) if x.sum() > 0 else self.linear(-x)

    return Branch(), F.cross_entropy, batch()


def make_waiting():
    class Waiting(Net):
        def forward(self, x):
            print("called", flush=True)
            sys.stdin.readline()
            return self.linear(x)

    return Waiting(), F.cross_entropy, batch()


class CommandTest(ExportTest):
    def run_command(self, name):
        with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()):
            return command.main([name if ":" in name else f"exporter_test:{name}", "--output", self.path]), errors.getvalue()

    def test_writes_a_folder(self):
        self.assertEqual(self.run_command("make"), (0, ""))
        self.assertEqual(sorted(os.listdir(self.path)), ["graph.json", "model.safetensors", "self_test.safetensors"])

    def test_error_is_one_line(self):
        code, errors = self.run_command("make_branch")
        self.assertEqual(code, 1)
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertIn("stoker-export: train: exporter_test.py:", errors)
        for name, expected in (("exporter_test:", "MODULE:FUNCTION"), ("no_such_module:make", "no_such_module"), ("exporter_test:nothing", "has no function")):
            code, errors = self.run_command(name)
            self.assertEqual(code, 1)
            self.assertIn(expected, errors)
            self.assertEqual(errors.count("\n"), 1, errors)

    def process(self, name):
        return subprocess.Popen([sys.executable, "-m", "stoker_export", f"exporter_test:{name}", "--output", self.path], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_error_is_all_that_a_process_prints(self):
        with self.process("nothing") as process:
            _, errors = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertEqual(errors, "stoker-export: exporter_test:nothing: exporter_test has no function nothing\n")

    def test_interrupted_export(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
            with self.subTest(number), self.process("make_waiting") as process:
                self.assertEqual(process.stdout.readline(), "called\n")
                process.send_signal(number)
                process.communicate()
                self.assertEqual(process.returncode, code)
                self.assertFalse(os.path.exists(self.path), "a folder appears complete or not at all")
            if number == signal.SIGINT:
                self.assertEqual(os.listdir(self.folder.name), [])


class ScoredNet(Net):
    """A step; `change` changes what it returns."""

    def __init__(self, change=lambda returned: None):
        super().__init__()
        self.change = change

    def forward(self, input, label):
        logits = self.linear(input)
        returned = {"loss": (F.cross_entropy(logits, label, reduction="sum"), label.numel()), "losses": {"norm": logits.norm()},
                    "metrics": {"accuracy": ((logits.argmax(1) == label).sum(), label.numel())}, "logits": logits, "hidden": None}
        changed = self.change(returned)
        return returned if changed is None else changed


DIRECTIONS = {"accuracy": "maximize"}


def fields():
    return dict(zip(("input", "label"), batch()))


class StepTest(ExportTest):
    def step_error(self, module, example=None, metrics=None):
        with self.assertRaises(ExportError) as caught:
            export(module, None, example or fields(), self.path, metrics=DIRECTIONS if metrics is None else metrics)
        self.assertEqual(os.listdir(self.folder.name), [], "an export that fails leaves nothing")
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    def test_graph_has_fields_metrics_and_outputs(self):
        export(ScoredNet(), None, fields(), self.path, metrics={"accuracy": {"direction": "maximize", "unit": "fraction", "help": "of samples"}})
        with open(os.path.join(self.path, "graph.json"), encoding="utf-8") as file:
            document = json.load(file)
        self.assertEqual(document["fields"], ["input", "label"])
        self.assertEqual(document["outputs"], ["['logits']"])
        self.assertEqual([(row["name"], row["direction"], row["unit"]) for row in document["metrics"]],
                         [("norm", "minimize", ""), ("accuracy", "maximize", "fraction")])
        programs = document["programs"]
        self.assertEqual([len(programs[name]["outputs"]) for name in ("train", "eval", "predict")], [6, 6, 1])
        self.assertEqual(len(programs["predict"]["inputs"]), 1, "predictions need no label")

    def test_fields_that_predictions_need_are_the_first(self):
        class Mixed(Net):
            def forward(self, input, label, scale):
                logits = self.linear(input)
                logits[:, 0] *= scale
                return {"loss": F.cross_entropy(logits, label), "logits": logits}
        export(Mixed(), None, fields() | {"scale": torch.ones(BATCH)}, self.path)
        with open(os.path.join(self.path, "graph.json"), encoding="utf-8") as file:
            document = json.load(file)
        self.assertEqual((document["fields"], document["num_inputs"]), (["input", "scale", "label"], 2))

    def test_values(self):
        line = line_of(ScoredNet.forward, "def forward")
        for change, expected in (
                (lambda r: r["metrics"].update(accuracy=r["logits"].argmax(1)), "accuracy has the shape [6]; it must be a scalar"),
                (lambda r: r["losses"].update(norm=1.5), "norm must be a scalar, the mean over the batch, or (sum, count)"),
                (lambda r: r.update(losses=[1]), '"losses" must be a dictionary, {name: (sum, count)}'),
                (lambda r: r["losses"].update(accuracy=r["losses"]["norm"]), "accuracy is the name of a loss and of a metric; rename one"),
                (lambda r: r["losses"].update(lr=r["losses"]["norm"]), f"{line}: 'lr' cannot be the name of a loss or a metric"),
                (lambda r: r["losses"].update({"L2 norm": r["losses"]["norm"]}), f"{line}: 'L2 norm' cannot be the name"),
                (lambda r: r["metrics"].clear(), f"{line}: the metric accuracy has a direction, but forward() does not return it; its metrics: none"),
                (lambda r: r["metrics"].update(f1=r["metrics"]["accuracy"]), f"{line}: say which values of the metric f1 are better"),
                (lambda r: {"logits": r["logits"]}, "forward() must return a dictionary with the loss"),
                (lambda r: r["logits"], "forward() must return a dictionary with the loss")):
            with self.subTest(expected):
                self.assertIn(expected, self.step_error(ScoredNet(change)))
        self.assertIn("maximize", self.step_error(ScoredNet(), metrics={"accuracy": "up"}))

    def test_fields(self):
        line = line_of(ScoredNet.forward, "def forward")
        example = fields()
        self.assertIn(f"{line}: forward() takes input, label, the example batch has input: label is missing", self.step_error(ScoredNet(), {"input": example["input"]}))
        self.assertIn(f"{line}: forward() takes input, label, the example batch has input, label, mask: mask is no parameter",
                      self.step_error(ScoredNet(), example | {"mask": example["label"]}))
        self.assertIn("label of the example batch has the shape [2]", self.step_error(ScoredNet(), example | {"label": example["label"][:2]}))
        self.assertIn(f"must be a dictionary, {{\"input\": tensor, \"label\": tensor, …}}, with a tensor for each parameter of its forward() ({line})",
                      self.step_error(ScoredNet(), batch()))

    def test_error_of_forward_has_its_line(self):
        class Wrong(Net):
            def forward(self, input, label):
                return {"loss": F.cross_entropy(self.linear(input)[:, :2].view(3, 8), label), "logits": input}
        self.assertIn(f"{line_of(Wrong.forward, 'view(3, 8)')}: forward() fails on the example batch: ", self.step_error(Wrong(), metrics={}))

    def test_values_only_in_training(self):
        class Sometimes(Net):
            def forward(self, input, label):
                loss = F.cross_entropy(self.linear(input), label)
                return {"loss": loss, "losses": {"extra": loss.detach()} if self.training else {}}
        self.assertIn("forward() must return the same losses and metrics in training and in evaluation", self.step_error(Sometimes(), metrics={}))

    def test_what_a_factory_returns(self):
        for made in ((ScoredNet(), None, fields()), (ScoredNet(),), ScoredNet(), (ScoredNet(), fields(), {}, 1)):
            with self.assertRaisesRegex(ExportError, "must return the module, the loss and an example batch; or"):
                command.parts_of("net:make", made)
        self.assertEqual(len(command.parts_of("net:make", (ScoredNet(), fields(), DIRECTIONS))), 4)


class RunDataTest(ExportTest):
    """--config, with what stokerd prints."""

    def error_with(self, printed, module, loss, example):
        program = os.path.join(self.folder.name, "stokerd")
        with open(program, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho '{printed}'\necho 'run.yaml:1:1: wrong' >&2\nexit 1\n")
        os.chmod(program, 0o755)
        try:
            run_data.check_data(module, loss, example, "run.yaml", program)
        except ExportError as error:
            return str(error)
        return "no error"

    def test_fields(self):
        line = line_of(ScoredNet.forward, "def forward")

        def error(printed):
            return self.error_with(printed, ScoredNet(), None, fields())
        self.assertEqual(error("data.train: 9 samples of input F32 [8], label I64 []; 4 classes"), "no error")
        self.assertEqual(error("data.train: 9 samples of input U8 [2, 2, 2], other F32 [], label I64 []; 4 classes: a, b [1]"), "no error")
        self.assertEqual(error("data.train: 9 samples of input F32 [8], target F32 [1]"),
                         f"{line}: forward() takes input F32 [8], label I64 []; data.train of run.yaml has input F32 [8], target F32 [1]: label is missing; "
                         "name parameters as the tensors of the dataset")
        self.assertIn("data.train of run.yaml has input F32 [7], label I64 []: input differs", error("data.train: 9 samples of input F32 [7], label I64 []"))
        self.assertEqual(error("nothing"), "run.yaml: the data cannot be compared: run.yaml:1:1: wrong")

    def test_order(self):
        def error(printed, example=None):
            return self.error_with(printed, Net(), F.cross_entropy, example or batch())
        self.assertEqual(error("data.train: 9 samples of input F32 [8], label I64 []; 4 classes"), "no error")
        self.assertIn("has the input F32 [8] per sample; data.train of run.yaml gives input F32 [9]", error("data.train: 9 samples of input U8 [9], label I64 []"))
        self.assertIn("has the targets I64 [] per sample; data.train of run.yaml gives target F32 [1]", error("data.train: 9 samples of input F32 [8], target F32 [1]"))
        tokens = torch.zeros(4, 5, dtype=torch.int64)
        self.assertEqual(error("data.train: 9 samples of tokens U8 [6]; 256 classes", (tokens, tokens)), "no error")


if __name__ == "__main__":
    unittest.main()
