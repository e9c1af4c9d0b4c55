"""PyTorch counterparts of stoker's models: same names, arithmetic and order of random numbers.

They are written as a PyTorch user would write them, and are the reference that stoker must match.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import rnn


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of "Symbolic Discovery of Optimization Algorithms" (Chen et al., 2023)."""

    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                c = beta1 * m + (1 - beta1) * p.grad
                p -= group["lr"] * (c.sign() + group["weight_decay"] * p)
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


class MuonAndAdamW(torch.optim.Optimizer):
    """torch.optim.Muon for some parameters and AdamW for the others, as one optimizer."""

    def __init__(self, muon, adamw):
        super().__init__([p for each in (muon, adamw) for group in each.param_groups for p in group["params"]], {})
        self.both = (muon, adamw)
        self.param_groups = muon.param_groups + adamw.param_groups

    def step(self):
        for each in self.both:
            each.step()
            self.state.update(each.state)


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, time, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, time, width))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context, vocab):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.pos = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        residual = 0.02 / math.sqrt(2 * layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                to_stream = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(parameter, std=residual if to_stream else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class Blstm(nn.Module):
    def __init__(self, features, width, outputs, layers=1, dropout=0.0, states="last", vocab=0):
        super().__init__()
        lstm_dropout = dropout if layers > 1 else 0.0
        self.tok = nn.Embedding(vocab, features) if vocab > 0 else None
        self.lstm = nn.LSTM(features, width, layers, dropout=lstm_dropout, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * width, outputs)
        self.drop = nn.Dropout(dropout)
        self.width, self.states = width, states

    def forward(self, x, length=None):
        if self.tok is not None:
            x = self.drop(self.tok(x.long()))
        if length is not None:
            return self.fc(self.drop(self.packed_states(x, length)))
        y, _ = self.lstm(x)
        if self.states == "each":
            return self.fc(self.drop(y))
        if self.states == "mean":
            return self.fc(self.drop(y.mean(1)))
        return self.fc(self.drop(torch.cat([y[:, -1, : self.width], y[:, 0, self.width :]], 1)))

    def packed_states(self, x, length):
        packed = rnn.pack_padded_sequence(x, length, batch_first=True, enforce_sorted=False)
        y, (last, _) = self.lstm(packed)
        if self.states == "last":
            return torch.cat([last[-2], last[-1]], 1)
        y, _ = rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
        return y if self.states == "each" else y.sum(1) / length[:, None]


class Lstm(nn.Module):
    def __init__(self, layers, width, vocab, dropout=0.0, tied=False):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout if layers > 1 else 0.0, batch_first=True)
        self.drop = nn.Dropout(dropout)
        nn.init.uniform_(self.tok.weight, -0.1, 0.1)
        if not tied:
            self.head = nn.Linear(width, vocab, bias=False)
            nn.init.uniform_(self.head.weight, -0.1, 0.1)
        self.tied = tied

    def forward(self, tokens):
        y, _ = self.lstm(self.drop(self.tok(tokens)))
        return F.linear(self.drop(y), self.tok.weight if self.tied else self.head.weight)


class Mlp(nn.Sequential):
    def __init__(self, inputs, hidden, outputs, dropout=0.0):
        layers, width = [], inputs
        for next_width in hidden:
            layers += [nn.Linear(width, next_width), nn.ReLU()]
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
            width = next_width
        super().__init__(*layers, nn.Linear(width, outputs))

    def forward(self, x):
        return super().forward(x.flatten(1))


class Lenet(nn.Module):
    def __init__(self, channels, side, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        side_after_pooling = (side // 2 - 4) // 2
        self.fc1 = nn.Linear(16 * side_after_pooling * side_after_pooling, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, outputs)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class Residual(nn.Module):
    def __init__(self, body, shortcut=()):
        super().__init__()
        self.body, self.shortcut = nn.Sequential(*body), nn.Sequential(*shortcut)

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


class LstmLayer(nn.LSTM):
    """For nn.Sequential: returns only the output sequence."""

    def forward(self, x):
        return super().forward(x)[0]


def conv3x3(inputs, outputs, stride=1):
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


def conv1x1(inputs, outputs, stride=1):
    return nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs, width, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(inputs, width, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv3x3(width, width), nn.BatchNorm2d(width)
        self.downsample = downsample

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, width, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = conv1x1(inputs, width), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv3x3(width, width, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv1x1(width, width * 4), nn.BatchNorm2d(width * 4)
        self.downsample = downsample

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet(nn.Module):
    """Names, shapes and initialization as in torchvision.models.resnet."""

    imagenet = {
        18: (BasicBlock, [2, 2, 2, 2]),
        34: (BasicBlock, [3, 4, 6, 3]),
        50: (Bottleneck, [3, 4, 6, 3]),
        101: (Bottleneck, [3, 4, 23, 3]),
        152: (Bottleneck, [3, 8, 36, 3]),
    }

    def __init__(self, depth, channels, outputs):
        super().__init__()
        self.is_imagenet = depth in self.imagenet
        block, stages = self.imagenet.get(depth, (BasicBlock, [(depth - 2) // 6] * 3))
        self.inputs = width = 64 if self.is_imagenet else 16
        if self.is_imagenet:
            self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        else:
            self.conv1 = conv3x3(channels, width)
        self.bn1 = nn.BatchNorm2d(width)
        for number, blocks in enumerate(stages):
            layer = self._layer(block, width * 2**number, blocks, 1 if number == 0 else 2)
            setattr(self, f"layer{number + 1}", layer)
        self.fc = nn.Linear(self.inputs, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def _layer(self, block, width, blocks, stride):
        layers = []
        for number in range(blocks):
            step, downsample = (stride if number == 0 else 1), None
            if step != 1 or self.inputs != width * block.expansion:
                outputs = width * block.expansion
                downsample = nn.Sequential(conv1x1(self.inputs, outputs, step), nn.BatchNorm2d(outputs))
            layers.append(block(self.inputs, width, step, downsample))
            self.inputs = width * block.expansion
        return nn.Sequential(*layers)

    def feature_map(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if self.is_imagenet:
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        for layer in [self.layer1, self.layer2, self.layer3] + ([self.layer4] if self.is_imagenet else []):
            x = layer(x)
        return x

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.feature_map(x), 1).flatten(1))
