"""What gpu_check.py compares stoker-bench-device with: the same model, batch, precision and optimizer in idiomatic PyTorch.

torch.compile compiles model and loss, on a GPU with CUDA graphs. Clipping and AdamW are measured compiled, too, and with
PyTorch's fused kernel; the faster counts. They are no CUDA graph, because the gradients have other addresses after each
backward pass, so that a graph would copy them first. The batch is copied asynchronously from pinned memory in each step, as
an efficient data loader does. Prints the number of elements in the model's parameters and buffers. Then, for each line on
standard input, which is a number of seconds, trains for that long and prints the steps per second: at first in each of these
ways, then in the fastest. Exits at the end of standard input; without a line, it has compiled everything and measured nothing.
"""
import argparse
import json
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "parity"))
from models import Blstm, Gpt, Mlp, Resnet  # noqa: E402

WARM_UP_STEPS = 8


def model_of(setup):
    if setup["model"] == "mlp":
        return Mlp(setup["input"][0], setup["hidden"], 1)
    if setup["model"] == "gpt2":
        return Gpt(setup["layers"], setup["width"], setup["heads"], setup["context"], setup["classes"])
    if setup["model"] == "blstm":
        return Blstm(setup["input"][1], setup["width"], setup["classes"])
    return Resnet(setup["layers"], setup["input"][0], setup["classes"])


def batch_of(setup):
    """A batch in host memory, as it comes from a queue."""
    batch, shape, classes = setup["batch"], setup["input"], setup["classes"]
    if setup["model"] == "gpt2":
        return (torch.randint(min(classes, 256), (batch, *shape), dtype=torch.int32),)
    if classes == 0:
        return torch.rand(batch, *shape) * 2 - 1, torch.rand(batch, 1) * 2 - 1
    if setup["model"] == "blstm":
        return torch.rand(batch, *shape) * 2 - 1, torch.randint(classes, (batch,))
    return torch.randint(256, (batch, *shape), dtype=torch.uint8), torch.randint(classes, (batch,))


def loss_of(setup, model, batch):
    if setup["model"] == "gpt2":
        tokens = batch[0].long()
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())
    if setup["classes"] == 0:
        return F.mse_loss(model(batch[0]), batch[1])
    if setup["model"] == "blstm":
        return F.cross_entropy(model(batch[0]).float(), batch[1])
    images = (batch[0].float() / 255 - 0.5) / 0.5
    if setup["channels_last"]:
        images = images.contiguous(memory_format=torch.channels_last)
    return F.cross_entropy(model(images).float(), batch[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=["eager", "compiled"])
    parser.add_argument("--backend", default="inductor", help="of torch.compile; aot_eager captures the same graphs and compiles nothing")
    parser.add_argument("setup", type=json.loads)
    args = parser.parse_args()
    setup, device = args.setup, torch.device(args.setup["device"])
    is_cuda = device.type == "cuda"
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False  # fp32 is fp32 in stoker
    model = model_of(setup).to(device)
    if setup["channels_last"]:
        model = model.to(memory_format=torch.channels_last)
    size = sum(t.numel() for t in [*model.parameters(), *model.buffers()])
    is_compiled = args.how == "compiled"

    def loss_function(batch):
        return loss_of(setup, model, batch)

    def update_with(**kernels):
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, **kernels)

        def update():
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        return update

    updates = [update_with(fused=True)]
    if is_compiled:
        loss_function = torch.compile(loss_function, mode="reduce-overhead" if is_cuda else None, backend=args.backend)
        # Capturable: the counts of steps are on the device, too.
        updates.append(torch.compile(update_with(foreach=True, capturable=is_cuda), backend=args.backend))
    batch = [t.pin_memory() if is_cuda else t for t in batch_of(setup)]
    bf16 = setup["precision"] == "bf16"

    def step(update):
        torch.compiler.cudagraph_mark_step_begin()
        on_device = [t.to(device, non_blocking=True) for t in batch]
        model.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            loss = loss_function(on_device)
        loss.backward()
        update()

    def steps_per_second(update, seconds):
        for _ in range(WARM_UP_STEPS):
            step(update)
        if is_cuda:
            torch.cuda.synchronize()
            previous, latest = torch.cuda.Event(), torch.cuda.Event()
        start, steps = time.monotonic(), 0
        while steps == 0 or time.monotonic() - start < seconds:
            step(update)
            steps += 1
            if is_cuda and steps % 16 == 0:  # bounds how far the host runs ahead; the device never waits
                previous, latest = latest, previous
                latest.record()
                previous.synchronize()
        if is_cuda:
            torch.cuda.synchronize()
        return steps / (time.monotonic() - start)

    def compiles(update):
        """Whether it runs: without the compiled update, the fused one is measured."""
        try:
            step(update)
            step(update)  # compiles again: the first update creates the state of the optimizer
        except Exception:
            if update is updates[0]:
                raise
            traceback.print_exc()
            return False
        return True

    updates = [update for update in updates if compiles(update)]
    print(size, flush=True)
    for line in sys.stdin:
        measured = [(steps_per_second(update, float(line)), update) for update in updates]
        fastest = max(measured, key=lambda each: each[0])
        updates = [fastest[1]]
        print(fastest[0], flush=True)


if __name__ == "__main__":
    main()
