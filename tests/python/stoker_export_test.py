"""The errors of stoker_export --compile: each one line that says what to change, and no folder. Nothing is compiled, except
for the interrupted export, which is killed while compiling."""
import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

import stoker_export
from export_models import mlp
from stoker_export import ExportError, __main__ as command, compile_module as export, compiler


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        if x.sum() > 0:
            x = 2 * x
        return self.out(x)


class Counter(nn.Module):
    """Updates a buffer that is not in the state_dict."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(32, 4)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.calls += 1
        return self.out(x)


class ErrorsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "model")

    def error(self, module, loss, batch, **options):
        with self.assertRaises(ExportError) as caught:
            export(module, loss, batch, self.path, **options)
        self.assertEqual(os.listdir(self.folder.name), [], "an export that fails leaves nothing")
        text = str(caught.exception)
        self.assertNotIn("\n", text)
        return text

    def test_data_dependent_control_flow(self):
        _, loss, batch = mlp()
        self.assertIn("depends on values of its tensors", self.error(Branch(), loss, batch))

    def test_loss_that_is_no_scalar(self):
        module, _, batch = mlp()
        text = self.error(module, lambda o, y: F.cross_entropy(o, y, reduction="none"), batch)
        self.assertIn("not a scalar", text)

    def test_loss_that_is_not_finite(self):
        module, _, batch = mlp()
        self.assertIn("nan", self.error(module, lambda o, y: o.sum() * float("nan"), batch))

    def test_dtypes_of_the_batch(self):
        module, loss, (x, y) = mlp()
        self.assertIn("float64", self.error(module, loss, (x.double(), y)))
        self.assertIn("fail on the example batch", self.error(module, loss, (x, y.float())))

    def test_batch_on_another_device(self):
        module, loss, (x, y) = mlp()
        self.assertIn("move the module and the batch to the CPU", self.error(module, loss, (x.to("meta"), y)))

    def test_module_on_a_gpu(self):
        weight = types.SimpleNamespace(device=torch.device("cuda:0"))
        with self.assertRaises(ExportError) as caught:
            compiler.check_on_cpu("weight", weight)
        self.assertEqual(str(caught.exception), "weight is on cuda:0: move the module and the batch to the CPU; stokerd runs "
                                                "compiled models on the CPU only")

    def test_batch_of_one_sample(self):
        module, loss, (x, y) = mlp()
        self.assertIn("one sample", self.error(module, loss, (x[:1], y[:1])))

    def test_batch_sizes_differ(self):
        module, loss, (x, y) = mlp()
        self.assertIn("first dimension", self.error(module, loss, (x, y[:8])))

    def test_module_on_meta(self):
        module, loss, batch = mlp()
        self.assertIn("device meta", self.error(module.to("meta"), loss, batch))

    def test_parameters_of_lower_precision(self):
        module, loss, batch = mlp()
        self.assertIn("precision='bf16'", self.error(module.to(torch.bfloat16), loss, batch))

    def test_nothing_to_train(self):
        module, loss, batch = mlp()
        self.assertIn("requires_grad", self.error(module.requires_grad_(False), loss, batch))

    def test_buffer_outside_the_state_dict(self):
        _, loss, batch = mlp()
        self.assertIn("persistent=True", self.error(Counter(), loss, batch))

    def test_updated_buffers(self):
        module, loss, (inputs, targets) = mlp()
        traced = compiler.Traced(module, loss, [inputs], [targets], None)
        compiler.trace_step(traced)
        self.assertEqual([traced.buffer_names[i] for i in traced.updated],
                         ["average", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"])

    def test_step_that_would_compile_for_hours(self):
        module, loss, batch = mlp()
        self.assertIn("recurrent layers and loops are unrolled", self.error(module, loss, batch, max_operations=20))

    def test_gradients_that_rounding_decides(self):
        """Those of a ReLU at 0; all others must be equal."""
        for weights, is_sensitive in (([1.0, -1.0], True), ([1.0, -0.5], False)):
            module = nn.Sequential(nn.Linear(2, 64, bias=False), nn.ReLU(), nn.Linear(64, 1))
            module[0].weight.data[:] = torch.tensor(weights)
            traced = compiler.Traced(module, F.mse_loss, [torch.ones(4, 2)], [torch.ones(4, 1)], None)
            loss, gradients, _ = traced.step(traced.parameters, traced.buffers, traced.inputs, traced.targets)
            compiled = [loss, *(1.005 * g for g in gradients)]
            with self.subTest(is_sensitive):
                if is_sensitive:
                    compiler.check_step(traced, compiled, [loss, *gradients], "from Python's", 1e-3)
                    with self.assertRaisesRegex(ExportError, "differs from Python's"):
                        compiler.check_step(traced, [1.1 * loss, *compiled[1:]], [loss, *gradients], "from Python's", 1e-3)
                else:
                    with self.assertRaisesRegex(ExportError, "differs from Python's"):
                        compiler.check_step(traced, compiled, [loss, *gradients], "from Python's", 1e-3)

    def test_operations_of_a_recurrent_layer(self):
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm, self.out = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 4)

            def forward(self, x):
                return self.out(self.lstm(x)[0][:, -1])

        _, loss, (_, y) = mlp()

        def operations(steps):
            text = self.error(Recurrent(), loss, (torch.randn(16, steps, 8), y), max_operations=10)
            return int(re.search("has ([0-9,]+) operations", text)[1].replace(",", ""))

        self.assertAlmostEqual((operations(5) - operations(2)) / 3, 76, delta=8, msg="docs/models.md")

    def test_max_batch_below_the_example(self):
        module, loss, batch = mlp()
        for size in (-3, 0, 1, 15):
            self.assertIn(f"max_batch is {size}", self.error(module, loss, batch, max_batch=size))

    def test_output_without_batch(self):
        class Whole(nn.Linear):
            def forward(self, x):
                return super().forward(x).mean(0)

        _, _, batch = mlp()
        self.assertIn("output 0", self.error(Whole(32, 4), lambda o, y: o.sum(), batch))

    def test_output_of_another_form_in_eval_mode(self):
        class Both(nn.Linear):
            def forward(self, x):
                y = super().forward(x)
                return (y, y) if self.training else y

        _, _, batch = mlp()
        text = self.error(Both(32, 4), lambda o, y: F.cross_entropy(o[0], y), batch)
        self.assertIn("in eval mode", text)

    def test_random_operator_without_seed(self):
        class Sampled(nn.Linear):
            def forward(self, x):
                y = super().forward(x)
                return y + torch.multinomial(y.softmax(1), 4)

        _, loss, batch = mlp()
        self.assertIn("multinomial", self.error(Sampled(32, 4), loss, batch))

    def test_folder_of_other_files(self):
        os.mkdir(self.path)
        open(os.path.join(self.path, "thesis.tex"), "w", encoding="utf-8").close()
        module, loss, batch = mlp()
        with self.assertRaisesRegex(ExportError, "not a folder that stoker-export wrote"):
            export(module, loss, batch, self.path, overwrite=True)
        self.assertEqual(os.listdir(self.path), ["thesis.tex"])

    def test_leaves_the_modes_of_submodules(self):
        module, _, batch = mlp()
        module.train()
        module.norm.eval()
        self.error(module, lambda o, y: o, batch)
        self.assertTrue(module.training)
        self.assertFalse(module.norm.training)

    def test_no_compiler(self):
        module, loss, batch = mlp()
        with mock.patch.dict(os.environ, {"CXX": "/nonexistent/g++"}):
            self.assertIn("apt install g++", self.error(module, loss, batch))

    def test_existing_folder(self):
        os.mkdir(self.path)
        module, loss, batch = mlp()
        with self.assertRaisesRegex(ExportError, "exists"):
            export(module, loss, batch, self.path)
        self.assertEqual(os.listdir(self.path), [])

    def test_other_version_of_pytorch(self):
        module, loss, batch = mlp()
        with mock.patch.object(stoker_export, "TORCH_VERSION", "2.99.0"):
            self.assertIn("pip install torch==2.99.0", self.error(module, loss, batch))

    def test_pinned_version(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        for name in ("python/pyproject.toml", "scripts/libtorch-cpu.txt"):
            with open(os.path.join(root, name), encoding="utf-8") as file:
                self.assertIn(f"torch=={stoker_export.TORCH_VERSION}", file.read(), name)

    def interrupted(self, number):
        """The exit code of an export that gets this signal while it compiles."""
        process = subprocess.Popen(
            [sys.executable, "-m", "stoker_export", "--compile", "export_models:mlp", "--output", self.path],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        started = any(line.startswith("compiling train") for line in process.stdout)
        process.send_signal(number)
        process.wait(timeout=120)
        process.stdout.close()
        self.assertTrue(started)
        self.assertFalse(os.path.exists(self.path), "a folder appears complete or not at all")
        return process.returncode

    def test_interrupted_export(self):
        self.assertEqual(self.interrupted(signal.SIGINT), 130)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_killed_export(self):
        self.assertEqual(self.interrupted(signal.SIGKILL), -signal.SIGKILL)


class CommandTest(unittest.TestCase):
    def test_names(self):
        for name, expected in (("export_models", "MODULE:FUNCTION"), ("no_such_module:make", "no_such_module")):
            with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(command.main([name, "--output", "unused"]), 1)
            self.assertIn(expected, errors.getvalue())
            self.assertEqual(errors.getvalue().count("\n"), 1, errors.getvalue())

    def test_error_is_all_that_a_process_prints(self):
        ended = subprocess.run([sys.executable, "-m", "stoker_export", "export_models:nothing", "--output", "unused"],
                               capture_output=True, text=True)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("has no function", ended.stderr)
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)


if __name__ == "__main__":
    unittest.main()
