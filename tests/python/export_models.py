"""The modules of the tests of model.name: compiled."""
import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """32 inputs, 4 classes, as the synthetic data of the system tests; with dropout, a tied weight, two weights with
    the same gradient, and buffers that are constant, written to and replaced."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.hidden = nn.Linear(32, 32)
        self.delta = nn.Parameter(torch.zeros(32, 32))
        self.norm = nn.BatchNorm1d(32)
        self.dropout = nn.Dropout(dropout)
        self.encode = nn.Linear(32, 16, bias=False)
        self.decode = nn.Linear(32, 16, bias=False)
        self.decode.weight = self.encode.weight
        self.out = nn.Linear(32, 4)
        self.register_buffer("scale", torch.full((32,), 0.5), persistent=False)
        self.register_buffer("average", torch.zeros(32))

    def forward(self, x):
        hidden = F.linear(x * self.scale, self.hidden.weight + self.delta, self.hidden.bias)
        if self.training:
            self.average = 0.9 * self.average + 0.1 * hidden.detach().mean(0)
        hidden = self.dropout(self.norm(F.relu(hidden)))
        return self.out(torch.cat([self.encode(hidden), self.decode(hidden)], 1))


def mlp():
    torch.manual_seed(5)
    return Mlp(), F.cross_entropy, (torch.randn(16, 32), torch.randint(0, 4, (16,)))
