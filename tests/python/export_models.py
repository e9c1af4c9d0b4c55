"""Modules of the tests of runs: for their data."""
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


class Gpt(nn.Module):
    """A language model of bytes, 32 tokens; with dropout inside its attention, a head tied to the embedding, and two
    outputs."""

    def __init__(self, width=32, context=32):
        super().__init__()
        self.tok, self.pos = nn.Embedding(256, width), nn.Embedding(context, width)
        self.norm1, self.norm2, self.last = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, 256, bias=False)
        self.head.weight = self.tok.weight
        self.register_buffer("positions", torch.arange(context), persistent=False)
        nn.init.normal_(self.tok.weight, std=0.02)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos(self.positions)
        batch, time, width = x.shape
        q, k, v = (part.view(batch, time, 2, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, time, width))
        x = self.last(x + self.mlp(self.norm2(x)))
        return self.head(x), x


def gpt():
    def loss(outputs, targets):
        logits, features = outputs
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) + 1e-4 * features.square().mean()

    torch.manual_seed(5)
    tokens = torch.randint(0, 256, (4, 33))
    return Gpt(), loss, (tokens[:, :-1], tokens[:, 1:])


class Tagger(nn.Module):
    """Two tags for each of at most 12 words, from a word and its neighbors; padding after `length` words."""

    def __init__(self):
        super().__init__()
        self.embed, self.conv, self.out = nn.Embedding(8, 16), nn.Conv1d(16, 32, 3, padding=1), nn.Linear(32, 2)

    def forward(self, words, length):
        valid = torch.arange(words.size(1)) < length[:, None]
        x = self.embed(words) * valid[..., None]
        return self.out(F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2))


def tagger():
    torch.manual_seed(5)
    length = torch.tensor([12, 4, 7, 1])
    tags = torch.randint(0, 2, (4, 12)).masked_fill(torch.arange(12) >= length[:, None], -100)
    return (Tagger(), lambda logits, tags: F.cross_entropy(logits.flatten(0, 1), tags.flatten()),
            ((torch.randint(0, 8, (4, 12)), length), tags))
