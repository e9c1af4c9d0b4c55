"""The Python modules of docs/models.md's table of compiled models; each function is a factory for stoker-export."""
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (part.view(batch, time, self.heads, -1).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, -1))
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        x = x + F.dropout(self.proj(mixed.transpose(1, 2).reshape(batch, time, width)), dropout)
        return x + F.dropout(self.down(F.gelu(self.up(self.ln2(x)))), dropout)


class Gpt(nn.Module):
    """stoker's gpt: pre-norm blocks, learned positions, untied weights."""

    def __init__(self, layers=4, width=128, heads=4, context=128, vocab=256, dropout=0.1):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.register_buffer("positions", torch.arange(context), persistent=False)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos(self.positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class Recurrent(nn.Module):
    """stoker's lstm_lm, without dropout."""

    def __init__(self, hidden=128, vocab=256):
        super().__init__()
        self.tok, self.lstm = nn.Embedding(vocab, hidden), nn.LSTM(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        return self.head(self.lstm(self.tok(tokens))[0])


class GatedMixer(nn.Module):
    """A network of no model library: patches mixed by gated linear layers over positions and channels."""

    def __init__(self, patches=64, channels=64, layers=4):
        super().__init__()
        self.positions = nn.ModuleList(nn.Linear(patches, 2 * patches) for _ in range(layers))
        self.channels = nn.ModuleList(nn.Linear(channels, 2 * channels) for _ in range(layers))
        self.scale = nn.Parameter(torch.ones(layers, channels))
        self.norm, self.out = nn.GroupNorm(4, patches), nn.Linear(channels, 10)

    def forward(self, x):
        for positions, channels, scale in zip(self.positions, self.channels, self.scale):
            gate, value = positions(x.transpose(1, 2)).chunk(2, -1)
            x = x + (torch.sigmoid(gate) * torch.tanh(value)).transpose(1, 2)
            gate, value = channels(x).chunk(2, -1)
            x = x + scale * F.silu(gate) * value
        return self.out(self.norm(x).mean(1))


def token_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def classes(batch):
    return torch.randint(0, 10, (batch,))


def gpt():
    torch.manual_seed(1)
    return Gpt(), token_loss, (torch.randint(0, 256, (16, 128)), torch.randint(0, 256, (16, 128)))


def resnet18():
    import torchvision
    torch.manual_seed(1)
    return torchvision.models.resnet18(num_classes=10), F.cross_entropy, (torch.randn(32, 3, 64, 64), classes(32))


def lstm():
    torch.manual_seed(1)
    return Recurrent(), token_loss, (torch.randint(0, 256, (32, 50)), torch.randint(0, 256, (32, 50)))


def mixer():
    torch.manual_seed(1)
    return GatedMixer(), F.cross_entropy, (torch.randn(64, 64, 64), classes(64))
