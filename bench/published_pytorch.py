"""The published experiments in PyTorch: published_pytorch.py mlp|blstm loop|DataLoader.

loop: the batch is made in each step. DataLoader: a worker process makes batches, for a GPU in page-locked memory.
Prints a JSON object (published_experiments.py).
"""
from published_experiments import EXPERIMENTS, Row, parse_arguments

import torch
import torch.nn.functional as F
from torch.nn import init
from torch.utils.data import DataLoader, IterableDataset

from case import initialized
from models import Blstm, Mlp


def make_batch(experiment):
    x = torch.randn(experiment.batch, *experiment.shape)
    return x, (x.flatten(1).sum(1) > 0).float()


class Batches(IterableDataset):
    def __init__(self, experiment):
        self.experiment = experiment

    def __iter__(self):
        while True:
            yield make_batch(self.experiment)


def make_model(name, experiment):
    """With the initial values of the TensorFlow models."""
    if name == "mlp":
        rules = {"weight": lambda p: init.normal_(p, std=0.1), "bias": lambda p: init.constant_(p, 0.1)}
        return initialized(Mlp(experiment.shape[0], [experiment.units], 1), rules)
    features, units = experiment.shape[1], experiment.units
    bound = (6 / (features + units + 4 * units)) ** 0.5
    rules = {"lstm.weight_*": lambda p: init.uniform_(p, -bound, bound), "fc.weight": init.xavier_uniform_, "*bias*": init.zeros_}
    model = initialized(Blstm(features, units, 1, states="mean"), rules)
    for suffix in ("l0", "l0_reverse"):
        getattr(model.lstm, f"bias_ih_{suffix}").data[units : 2 * units] += 1
        getattr(model.lstm, f"bias_hh_{suffix}").requires_grad_(False)
    return model


def main():
    args = parse_arguments(__doc__, ["loop", "DataLoader"])
    experiment, device = EXPERIMENTS[args.experiment], torch.device(args.device)
    is_cuda = device.type == "cuda"
    torch.backends.cudnn.allow_tf32 = False  # fp32 is fp32 in stoker
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # imports modules, which is not part of the total

    row = Row(f"PyTorch, {args.mode}", args)
    torch.manual_seed(1)
    model = make_model(args.experiment, experiment).to(device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=experiment.lr, fused=True)

    def to_device(batch):
        return [tensor.to(device, non_blocking=True) for tensor in batch]

    @torch.no_grad()
    def accuracy():
        batches = [to_device(make_batch(experiment)) for _ in range(experiment.evaluation_batches)]
        correct = [((model(x).squeeze(1) > 0) == (y > 0.5)).float().mean() for x, y in batches]
        return float(sum(correct)) / len(correct)

    def step(batch):
        x, y = to_device(batch)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(x).squeeze(1), y).backward()
        optimizer.step()

    synchronize = torch.cuda.synchronize if is_cuda else lambda: None
    row.evaluate("before", accuracy)
    if args.mode == "DataLoader":
        loader = DataLoader(Batches(experiment), batch_size=None, num_workers=1, prefetch_factor=experiment.capacity, pin_memory=is_cuda)
        batches = iter(loader)
        row.run(lambda: next(batches), step, synchronize)
        del batches  # ends the worker process
    else:
        row.run(lambda: make_batch(experiment), step, synchronize)
    row.evaluate("after", accuracy)
    row.print()


if __name__ == "__main__":
    main()
