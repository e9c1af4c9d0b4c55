"""export_zoo.py FOLDER [NAME]…: exports the modules of zoo.py to FOLDER/NAME, and writes what eager PyTorch computes with them at one thread to
FOLDER/NAME.safetensors: `batch.STEP.I`, of padded sequences also `batch.STEP.length`, `loss.STEP`, gradients of the first step, all tensors after
the last one, and the loss and the first output in eval mode. Without names: of the layers and losses every fourth, and all else; with STOKER_PARITY=all
every one (scripts/nightly.sh parity)."""
import importlib.util
import os
import sys
import time
import warnings

import safetensors.torch
import torch

import zoo
from stoker_export import ExportError, export

STEPS, LR = 3, 0.05


def split(example):
    """The inputs and the targets."""
    return list(example[0]) if isinstance(example[0], tuple) else [example[0]], list(example[1:])


def shorter(tensor, length, steps):
    """Sequences of `length` steps cut after `steps`, and lengths."""
    if length and tensor.dim() > 1 and tensor.shape[1] == length:
        tensor = tensor[:, :steps]
    return tensor.clamp(max=steps) if length and tensor.dim() == 1 and tensor.max() == length else tensor.contiguous()


def batches(example, is_dynamic=False):
    """As the example, of other sizes."""
    torch.manual_seed(77)
    rows, parts = [], split(example)
    for step in range(STEPS):
        samples = parts[0][0].shape[0]
        order = torch.randperm(samples)[:samples - (step == 2)]
        if step == 1 and parts[0][0][0].numel() <= 16:  # cheap: more than sizes at which operators choose another algorithm, such as cdist 25
            order = order.repeat(6)
        length = parts[0][0].shape[1] if is_dynamic else 0
        rows.append([[shorter(tensor[order], length, length - step) for tensor in part] for part in parts])
    return rows


def named(prefix, inputs, targets):
    tensors = {f"{prefix}.{i}": tensor.clone() for i, tensor in enumerate([inputs[0], *targets])}
    return tensors | {f"{prefix}.length": tensor.clone() for tensor in inputs[1:]}


def mean(loss):
    return loss[0] / loss[1].to(loss[0].dtype) if isinstance(loss, tuple) else loss


def first_output(outputs):
    if isinstance(outputs, dict):  # also of transformers
        return outputs["logits"] if "logits" in outputs else next(iter(outputs.values()))
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs


def reference(module, loss, example, is_dynamic):
    out = {}
    module.train()
    for step, (inputs, targets) in enumerate(batches(example, is_dynamic)):
        torch.manual_seed(1000 + step)
        module.zero_grad()
        value = mean(loss(module(*inputs), *targets))
        value.backward()
        out |= named(f"batch.{step}", inputs, targets) | {f"loss.{step}": value.detach().clone()}
        if step == 0:
            out |= {f"gradient.{n}": p.grad.contiguous().clone() for n, p in module.named_parameters() if p.grad is not None}
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.requires_grad and parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-LR)
    out |= {f"after.{n}": t.detach().contiguous().clone() for n, t in [*module.named_parameters(), *module.named_buffers()]}
    module.eval()
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        torch.manual_seed(2000)
        inputs, targets = split(example)
        outputs = module(*inputs)
        out |= {"eval.loss": mean(loss(outputs, *targets)).clone(), "eval.output": first_output(outputs).contiguous().clone()}
    return out | named("eval.batch", inputs, targets)


def chosen():
    if os.environ.get("STOKER_PARITY") == "all":
        return zoo.NAMES
    every = [name for name in zoo.NAMES if name not in zoo.ONLY_NIGHTLY]
    alike = [*(name for layers in zoo.LAYERS.values() for name in layers), *(name for name in every if name.startswith("loss_"))]
    # Tests use these alone.
    return [name for name in every if name not in alike or name in ("relu", "gelu", "batch_norm1d", "loss_ctc", "loss_gaussian_nll") or alike.index(name) % 4 == 0]


def main():
    folder, *names = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.makedirs(folder, exist_ok=True)
    began, failed, done = time.process_time(), [], []
    for name in names or chosen():
        if name in zoo.LIBRARIES and importlib.util.find_spec(name.split(".")[0]) is None:
            print(f"skipped: {name} is not installed")
            continue
        try:
            module, loss, example = zoo.make(name)
            is_dynamic = name in zoo.DYNAMIC_LENGTH
            export(module, loss, example, os.path.join(folder, name), dynamic_length=is_dynamic, overwrite=True)
            safetensors.torch.save_file(reference(module, loss, example, is_dynamic), os.path.join(folder, name + ".safetensors"))
            done.append(name)
        except ExportError as error:
            failed.append(f"{name}: {error}")
    with open(os.path.join(folder, "names"), "w", encoding="utf-8") as file:
        file.writelines(name + "\n" for name in done)
    print(*failed, f"{len(done)} modules exported in {time.process_time() - began:.0f} s of processor time", sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
