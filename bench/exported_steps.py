"""Steps of exported modules in stokerd beside eager PyTorch and torch.compile: exported_steps.py BIN [MODULE]… [options].

The same module, loss, batches, SGD with momentum and number of threads; float32 on the CPU, autocast to bfloat16 on a GPU. Each round
starts stokerd, which reads its batches from a file, and then trains in Python for the same time; rounds alternate. Times are per step, those of stokerd
from its records without the first, so with the feed but without the start. Prints a JSON object per module: medians and [lowest, highest] in
milliseconds, and the median over the rounds of stokerd / eager and stokerd / compiled; below 1 is faster.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tests" / "parity"), str(ROOT / "python"), str(ROOT.parents[2] / "share" / "stoker" / "python")]  # of a checkout, or installed
from models import Gpt, Lstm, Mlp, Resnet  # noqa: E402
from stoker_export import export  # noqa: E402
from vision_models import Vit  # noqa: E402

LR, MOMENTUM = 1e-4, 0.9
WARM_UP_STEPS = 8
BATCHES = 8  # in the file, which stokerd repeats


def labels(batch, classes=10):
    return torch.randint(classes, (BATCHES * batch,))


def images(batch, side):
    return torch.randn(BATCHES * batch, 3, side, side)


def token_loss(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


class Unet(nn.Module):
    """Two resolutions; a class for each pixel."""

    def __init__(self, width=32, classes=4):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU())
        self.deep = nn.Sequential(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.GroupNorm(8, 2 * width), nn.SiLU(), nn.ConvTranspose2d(2 * width, width, 2, 2))
        self.out = nn.Conv2d(2 * width, classes, 1)

    def forward(self, x):
        fine = self.down(x)
        return self.out(torch.cat([fine, self.deep(fine)], 1)).mean((2, 3))


class Encoder(nn.Module):
    """torch.nn's transformer over vectors."""

    def __init__(self, width=128):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.net, self.out = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(width, 10)

    def forward(self, x):
        return self.out(self.net(x).mean(1))


class Gru(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.gru, self.out = nn.GRU(32, width, 2, batch_first=True), nn.Linear(width, 10)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])


class Vae(nn.Module):
    """A step of its own: a loss of two parts, with random numbers."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 40))
        self.decode = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784))

    def forward(self, input):
        mean, log_variance = self.encode(input).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        rebuilt = F.mse_loss(self.decode(z), input, reduction="sum")
        return {"loss": (rebuilt - 0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(), input.shape[0]), "z": z}


# name: module, loss or None, samples per batch, tensors of a sample; tokens are predicted from the ones before.
MODULES = {
    "mlp": lambda: (Mlp(128, [512, 512], 10), F.cross_entropy, 128, (torch.randn(BATCHES * 128, 128), labels(128))),
    "resnet18": lambda: (Resnet(18, 3, 10), F.cross_entropy, 16, (images(16, 64), labels(16))),
    "unet": lambda: (Unet(), F.cross_entropy, 8, (images(8, 64), labels(8, 4))),
    "vit": lambda: (Vit(3, 64, 8, 4, 4, 128, 512, 10), F.cross_entropy, 16, (images(16, 64), labels(16))),
    "encoder": lambda: (Encoder(), F.cross_entropy, 16, (torch.randn(BATCHES * 16, 64, 128), labels(16))),
    "gru": lambda: (Gru(), F.cross_entropy, 32, (torch.randn(BATCHES * 32, 50, 32), labels(32))),
    "vae": lambda: (Vae(), None, 128, (torch.rand(BATCHES * 128, 784),)),
    "gpt": lambda: (Gpt(4, 128, 4, 128, 512), token_loss, 8, (torch.randint(512, (BATCHES * 8, 129)),)),
    "lstm": lambda: (Lstm(2, 200, 1000), token_loss, 20, (torch.randint(1000, (BATCHES * 20, 36)),)),
}


def prepare(name, folder):
    """Exports the module and writes its data; returns module, loss, batches and the configuration of a run."""
    torch.manual_seed(1)
    module, loss, batch, tensors = MODULES[name]()
    data = {"format": "numpy", "path": str(folder / "data.npz"), "fields": {"input": "input"}}
    if len(tensors) == 1 and tensors[0].dtype == torch.int64:
        length = tensors[0].shape[1] - 1
        tensors[0].numpy().astype(numpy.uint16).tofile(folder / "tokens.bin")
        data = {"format": "tokens", "path": str(folder / "tokens.bin"), "dtype": "uint16", "sequence": {"block_size": length}}
        tensors = (tensors[0][:, :-1].contiguous(), tensors[0][:, 1:].contiguous())
    elif len(tensors) == 2:
        data["fields"]["label"] = "label"
        numpy.savez(folder / "data.npz", input=tensors[0].numpy(), label=tensors[1].numpy())
    else:
        numpy.savez(folder / "data.npz", input=tensors[0].numpy())
    example = tuple(tensor[:batch] for tensor in tensors)
    export(module, loss, {"input": example[0]} if loss is None else example, str(folder / "module"))
    batches = [tuple(tensor[i * batch:(i + 1) * batch] for tensor in tensors) for i in range(BATCHES)]
    config = {"data": {"train": data}, "model": {"name": "exported", "path": str(folder / "module")}, "task": {"name": "custom"},
              "optimizer": {"name": "sgd", "lr": LR, "momentum": MOMENTUM}, "scheduler": {"name": "constant", "warmup_steps": 0},
              "run": {"rng": "per_ticket"}, "train": {"micro_batch_size": batch}, "control": {"socket": None},
              "checkpoint": {"save_every_steps": None, "save_every_seconds": None}, "metrics": {"tensorboard": False}}
    return module, loss, batches, config


def loss_of(module, loss, batch):
    if loss is not None:
        return loss(module(batch[0]), *batch[1:])
    total, count = module(*batch)["loss"]
    return total / count


class Peer:
    """A loop of training in Python."""

    def __init__(self, module, loss, batches, options, is_compiled):
        self.device = torch.device(options.device)
        self.module = module.to(self.device)
        self.batches = [tuple(tensor.pin_memory() if options.device != "cpu" else tensor for tensor in batch) for batch in batches]
        self.optimizer = torch.optim.SGD(self.module.parameters(), LR, MOMENTUM)
        compute = lambda batch: loss_of(self.module, loss, batch)  # noqa: E731
        self.compute = torch.compile(compute, mode="default" if options.device == "cpu" else "reduce-overhead") if is_compiled else compute
        self.steps = 0
        self.train(WARM_UP_STEPS)

    def train(self, steps):
        for _ in range(steps):
            batch = tuple(tensor.to(self.device, non_blocking=True) for tensor in self.batches[self.steps % BATCHES])
            with torch.autocast(self.device.type, torch.bfloat16, self.device.type != "cpu"):
                loss = self.compute(batch)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.steps += 1
        if self.device.type != "cpu":
            torch.cuda.synchronize()

    def measure(self, seconds):
        """Milliseconds per step."""
        steps, began = 0, time.monotonic()
        while time.monotonic() - began < seconds:
            self.train(4)
            steps += 4
        return 1000 * (time.monotonic() - began) / steps


def measure_stokerd(options, config, folder, steps):
    every = max(1, steps // 12)
    config["train"] |= {"max_steps": steps, "device": options.device, "num_threads": options.threads,
                        "precision": "fp32" if options.device == "cpu" else "bf16"}
    config["metrics"]["log_every_steps"] = every
    (folder / "run.yaml").write_text(json.dumps(config))
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    result = subprocess.run([options.bin / "stokerd", "--config", folder / "run.yaml", "--run-dir", run], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"stokerd: exit {result.returncode}: {result.stderr.strip().splitlines()[-1]}")
    records = [json.loads(line) for line in (run / "metrics/train.jsonl").read_text().splitlines()][1:]
    return statistics.median(record["step_time_ms"] for record in records)


def measure(name, options, folder):
    module, loss, batches, config = prepare(name, folder)
    eager = Peer(module, loss, batches, options, False)
    compiled = Peer(module, loss, batches, options, True) if options.compile else None
    steps = max(24, int(1000 * options.seconds / eager.measure(0.2)))
    times = {"stokerd": [], "eager": [], "compiled": []}
    for _ in range(options.rounds):
        times["stokerd"].append(measure_stokerd(options, config, folder, steps))
        times["eager"].append(eager.measure(options.seconds))
        if compiled is not None:
            times["compiled"].append(compiled.measure(options.seconds))
    result = {"module": name, "device": options.device, "threads": options.threads}
    for key, values in times.items():
        if values:
            result[f"{key}_ms"] = round(statistics.median(values), 4)
            result[f"{key}_spread_ms"] = [round(min(values), 4), round(max(values), 4)]
        if values and key != "stokerd":
            result[f"stokerd_per_{key}"] = round(statistics.median(a / b for a, b in zip(times["stokerd"], values)), 3)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path, help="folder of stokerd")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"{', '.join(MODULES)}; default: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--compile", action="store_true", help="measure torch.compile, too")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    torch.set_num_threads(options.threads)
    for name in options.modules or MODULES:
        if name not in MODULES:
            parser.error(f"{name}: is not one of {', '.join(MODULES)}")
        with tempfile.TemporaryDirectory(prefix="stoker-exported-") as folder:
            print(json.dumps(measure(name, options, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
