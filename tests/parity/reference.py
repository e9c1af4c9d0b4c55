"""The right values of a training case, and how far single precision may be from them on any processor.

reference() trains a case in double precision. Single precision differs from it by rounding, which depends on the order of
sums and therefore on the processor, the library and the number of threads. How much the network amplifies it is measured:
PyTorch trains REPEATS times in single precision, each time with initial weights that differ by up to PERTURBATION, so that
every intermediate value is rounded in another way. The tolerance of a tensor is SAFETY times the largest error seen: a sum of
n terms has an error of about log2(n) roundings in the best order and of sqrt(n) in the worst, and their ratio is below SAFETY
up to 4608 terms, the longest sum of a convolution here.

Three things would make that estimate invalid and are excluded:
- A ReLU, a maximum or a sign whose input is so close to its threshold that rounding decides. make_golden.py requires a
  distance of MARGIN standard deviations of the rounding error there; otherwise the case needs another data_seed or fewer steps.
- A division by nearly 0, of an optimizer with a small eps. The cases have an eps that is large compared with rounding.
- A value that is 0 in exact arithmetic, because its error cannot be compared with its size: a bias before a batch norm, which
  subtracts it again. cancelled_biases() finds them. Their gradient is a sum of n terms that cancel, so it is at most n + 8
  roundings of the sum of their absolute values, the 8 for the operations that compute a term.
"""
import copy
from dataclasses import dataclass, field

import torch
import torch.nn as nn
from torch.utils._python_dispatch import TorchDispatchMode

from case import SEED

ROUNDING = {torch.float32: 2**-24, torch.float64: 2**-53}  # the largest relative error of one operation
REPEATS = 4
PERTURBATION = 4 * ROUNDING[torch.float32]  # LibTorch's normal numbers differ by as much without AVX2
SAFETY = 16
MARGIN = 8


@dataclass
class Run:
    """What a training computes, in double precision; names have a prefix: logits, gradient/0.weight, final/0.weight…"""

    tensors: dict
    model: nn.Module
    decisions: list = field(default_factory=list)
    cancelled: dict = field(default_factory=dict)  # name of a bias -> bound of its gradient divided by the rounding error


class Decisions(TorchDispatchMode):
    """Records the distance from the threshold of each input of a ReLU, a maximum and a sign. Equal values in a window are
    zeros of a ReLU, which has passed no gradient to any of them."""

    def __init__(self):
        super().__init__()
        self.inputs = []

    def __torch_dispatch__(self, operation, types, arguments=(), kwargs=None):
        name = operation.overloadpacket.__name__
        if name in ("relu", "relu_", "sign"):
            self.inputs.append(arguments[0].detach().double().flatten().clone())
        elif name == "max_pool2d_with_indices":
            values, (size, _), stride, padding = (*arguments, [], [])[:4]
            padding, stride = padding[0] if padding else 0, stride[0] if stride else size
            padded = nn.functional.pad(values.detach().double(), (padding,) * 4, value=-1e30)
            windows = padded.unfold(2, size, stride).unfold(3, size, stride).flatten(4)
            first, second = windows.topk(2, dim=4).values.unbind(4)
            self.inputs.append((first - second).flatten())
        return operation(*arguments, **(kwargs or {}))


def cancelled_biases(model):
    """Names of the biases of convolutions that a batch norm follows, with the convolutions."""
    found = {}
    for prefix, module in model.named_modules():
        if isinstance(module, nn.Sequential):
            for (name, layer), following in zip(module.named_children(), [*module.children()][1:]):
                if isinstance(layer, nn.Conv2d) and layer.bias is not None and isinstance(following, nn.BatchNorm2d):
                    found[f"{prefix}.{name}.bias".lstrip(".")] = layer
    return found


def observe_cancelled(model, bounds):
    """Updates bounds with (n + 8) times the sum of absolute terms of the gradient of each cancelled bias."""

    def observe(name):
        def hook(_module, _inputs, outputs):
            terms = outputs[0].detach().abs().sum((0, 2, 3)).max().item()
            count = outputs[0].numel() // outputs[0].shape[1]
            bounds[name] = max(bounds.get(name, 0.0), (count + 8) * terms)

        return hook

    for name, layer in cancelled_biases(model).items():
        layer.register_full_backward_hook(observe(name))


def named_tensors(model):
    return [*model.named_parameters(), *model.named_buffers()]


def make_model(case):
    torch.manual_seed(SEED)
    return case.model()


def make_batches(case):
    torch.manual_seed(case.data_seed)
    return case.batches()


def in_precision(batch, dtype):
    return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in batch.items()}


def train(case, model, batches):
    """Trains the model in its precision."""
    dtype = next(model.parameters()).dtype
    batches = [in_precision(batch, dtype) for batch in batches]
    result = Run({"initial/" + name: tensor.detach().clone() for name, tensor in named_tensors(model)}, model)
    tensors = result.tensors
    if dtype == torch.float64:
        observe_cancelled(model, result.cancelled)
    optimizer = case.optimizer(model.parameters())
    schedule = case.schedule(optimizer)
    losses, norms, rates = [], [], []
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    model.train()
    with Decisions() as decisions:
        for step in range(case.steps):
            optimizer.zero_grad()
            logits, loss = case.loss(model, batches[step % 2])
            loss.backward()
            if step == 0:
                tensors["logits"] = logits.detach().clone()
                tensors |= {"gradient/" + name: p.grad.clone() for name, p in model.named_parameters()}
            limit = case.clip_norm if case.clip_norm > 0 else float("inf")
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))
            losses.append(loss.detach())
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
    result.decisions = decisions.inputs
    tensors |= {"losses": torch.stack(losses), "norms": torch.stack(norms)}
    tensors["rates"] = torch.tensor(rates, dtype=torch.float64)
    for name, tensor in named_tensors(model):
        tensors["final/" + name] = tensor.detach().clone()
    for name, parameter in model.named_parameters():
        for kind, value in optimizer.state[parameter].items():
            if value is not None:
                tensors[f"state/{kind}.{name}"] = value.detach().clone()
    model.eval()
    with torch.no_grad():
        tensors["eval_loss"] = case.loss(model, batches[0])[1]
    torch.set_default_dtype(default)
    result.tensors = {name: tensor.double() for name, tensor in tensors.items()}
    return result


def perturbed(model, seed):
    generator = torch.Generator().manual_seed(seed)
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.rand(parameter.shape, generator=generator, dtype=torch.double) * 2 - 1
            parameter.copy_(parameter.double() * (1 + PERTURBATION * noise))
    return model


def undecided(exact, repeats):
    """Describes a decision that rounding could change; None without one."""
    for number, values in enumerate(exact.decisions):
        error = max((values - repeat.decisions[number]).square().mean().sqrt().item() for repeat in repeats)
        nearest = values[values != 0].abs().min().item() if values.any() else float("inf")
        if nearest < MARGIN * error:
            return (
                f"a ReLU, maximum or sign is decided by a difference of {nearest:.2g}, and rounding has a standard deviation"
                f" of {error:.2g} there; choose another data_seed or fewer steps")
    return None


def cancelled_tolerances(case, bound):
    """Of a bias whose gradients are at most `bound`: of each kind of value."""
    optimizer = case.optimizer([nn.Parameter(torch.zeros(1))])
    group = optimizer.param_groups[0]
    if isinstance(optimizer, torch.optim.SGD):
        sum_of_updates = case.steps * group["lr"] * bound / (1 - group["momentum"])
        return {"gradient": bound, "final": sum_of_updates, "state/momentum_buffer": bound / (1 - group["momentum"])}
    assert isinstance(optimizer, torch.optim.Adam), f"{case.name}: no bound for {type(optimizer).__name__}"
    # The moving average of the gradients is at most their bound, and is divided by eps at least.
    sum_of_updates = case.steps * group["lr"] * bound / group["eps"]
    return {"gradient": bound, "final": sum_of_updates, "state/exp_avg": bound, "state/exp_avg_sq": bound**2}


def kind_of(name):
    return name.split("." if name.startswith("state/") else "/")[0]


def tolerances_of(case, exact, repeats):
    cancelled = {}
    for bias, terms in exact.cancelled.items():
        assert exact.tensors["gradient/" + bias].abs().max() <= terms * ROUNDING[torch.float64], bias
        for kind, tolerance in cancelled_tolerances(case, terms * ROUNDING[torch.float32]).items():
            separator = "." if kind.startswith("state/") else "/"
            cancelled[f"{kind}{separator}{bias}"] = tolerance
    scales = {name: tensor.abs().max().item() for name, tensor in exact.tensors.items()}
    errors = {
        name: max((tensor - repeat.tensors[name]).abs().max().item() for repeat in repeats)
        for name, tensor in exact.tensors.items()
    }
    relative = {}
    for name in exact.tensors.keys() - cancelled.keys():
        if scales[name] > 0:
            relative.setdefault(kind_of(name), []).append(errors[name] / scales[name])
    tolerances = {}
    for name, scale in scales.items():
        # An error that happens to be small, as those of few elements can be, counts as that of the other tensors.
        typical = sorted(relative.get(kind_of(name), [0.0]))[len(relative.get(kind_of(name), [0.0])) // 2]
        tolerances[name] = SAFETY * max(errors[name], typical * scale, ROUNDING[torch.float32] * scale)
        if name in cancelled:
            tolerances[name] = cancelled[name] + SAFETY * ROUNDING[torch.float32] * scale
    return tolerances


def reference(case, batches):
    """The training in double precision, the tolerance of each of its tensors, and undecided()."""
    model = make_model(case)
    exact = train(case, copy.deepcopy(model).double(), batches)
    repeats = [train(case, perturbed(model, seed), batches) for seed in range(REPEATS)]
    return exact, tolerances_of(case, exact, repeats), undecided(exact, repeats)
