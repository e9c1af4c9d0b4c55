"""The peer of stoker-bench-train: the same model, batch and optimizer in eager PyTorch, as its users write them.

Prints the model's number of parameters; then, for each line with a number of seconds on standard input, trains for
that long and prints the steps a second. Ends with standard input.
"""
import argparse
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "twin"))
from models import Gpt, Lenet  # noqa: E402


def gpt(args):
    tokens = torch.randint(args.classes, (args.batch, args.context + 1), dtype=torch.uint8)
    model = Gpt(args.layers, args.width, args.heads, args.context, args.classes)

    def loss():
        inputs, targets = tokens[:, :-1].long(), tokens[:, 1:].long()
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    return model, loss


def lenet(args):
    pictures = torch.randint(256, (args.batch, 1, 28, 28), dtype=torch.uint8)
    labels = torch.randint(args.classes, (args.batch,))
    model = Lenet(1, 28, args.classes)

    def loss():
        return F.cross_entropy(model((pictures.float() / 255 - 0.5) / 0.5), labels)

    return model, loss


def steps_per_second(step, seconds):
    for _ in range(3):
        step()
    start, steps = time.monotonic(), 0
    while steps == 0 or time.monotonic() - start < seconds:
        step()
        steps += 1
    return steps / (time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=["gpt", "lenet"])
    for number in ("batch", "classes", "context", "heads", "layers", "threads", "width"):
        parser.add_argument("--" + number, type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, loss = {"gpt": gpt, "lenet": lenet}[args.model](args)
    # Fused: the fastest that PyTorch has, and the arithmetic that stoker uses.
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step():
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    print(sum(p.numel() for p in model.parameters()), flush=True)
    for line in sys.stdin:
        print(steps_per_second(step, float(line)), flush=True)


if __name__ == "__main__":
    main()
