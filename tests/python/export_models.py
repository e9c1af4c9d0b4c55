"""The modules of the tests of model.name: compiled."""
import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """32 inputs, 4 classes, as the synthetic data of the system tests; with dropout, buffers and a tied weight."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.hidden = nn.Linear(32, 32)
        self.norm = nn.BatchNorm1d(32)
        self.dropout = nn.Dropout(dropout)
        self.encode = nn.Linear(32, 16, bias=False)
        self.decode = nn.Linear(32, 16, bias=False)
        self.decode.weight = self.encode.weight
        self.out = nn.Linear(32, 4)
        self.register_buffer("scale", torch.full((32,), 0.5), persistent=False)

    def forward(self, x):
        hidden = self.dropout(self.norm(F.relu(self.hidden(x * self.scale))))
        return self.out(torch.cat([self.encode(hidden), self.decode(hidden)], 1))


def mlp():
    torch.manual_seed(5)
    return Mlp(), F.cross_entropy, (torch.randn(16, 32), torch.randint(0, 4, (16,)))
