"""PyTorch counterparts of stoker's torchvision models, reimplemented so that the golden files do
not require torchvision. check_torchvision.py compares them, and stoker, with torchvision itself."""
import math
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F


def classifier(inputs, width, outputs, dropout, dropout_first):
    """Three fully connected layers; AlexNet and VGG differ only in the position of the dropout."""
    drop, first, second = nn.Dropout(dropout), nn.Linear(inputs, width), nn.Linear(width, width)
    last = nn.Linear(width, outputs)
    if dropout_first:
        return nn.Sequential(drop, first, nn.ReLU(), drop, second, nn.ReLU(), last)
    return nn.Sequential(first, nn.ReLU(), drop, second, nn.ReLU(), drop, last)


class Alexnet(nn.Module):
    def __init__(self, channels, outputs, width=4096, dropout=0.5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 64, 11, stride=4, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = classifier(256 * 36, width, outputs, dropout, dropout_first=True)

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


class Vgg(nn.Module):
    convolutions = {11: [1, 1, 2, 2, 2], 13: [2, 2, 2, 2, 2], 16: [2, 2, 3, 3, 3], 19: [2, 2, 4, 4, 4]}

    def __init__(self, depth, channels, outputs, batch_norm=False, width=4096, dropout=0.5):
        super().__init__()
        layers, inputs = [], channels
        for wide, count in zip([64, 128, 256, 512, 512], self.convolutions[depth]):
            for _ in range(count):
                layers.append(nn.Conv2d(inputs, wide, 3, padding=1))
                if batch_norm:
                    layers.append(nn.BatchNorm2d(wide))
                layers.append(nn.ReLU())
                inputs = wide
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = classifier(512 * 49, width, outputs, dropout, dropout_first=False)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


class VitBlock(nn.Module):
    def __init__(self, width, heads, mlp_width, dropout):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        up, down = nn.Linear(width, mlp_width), nn.Linear(mlp_width, width)
        self.mlp = nn.Sequential(up, nn.GELU(), nn.Dropout(dropout), down, nn.Dropout(dropout))
        for linear in (up, down):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.normal_(linear.bias, std=1e-6)

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.dropout(self.self_attention(y, y, y, need_weights=False)[0])
        return x + self.mlp(self.ln_2(x))


class Vit(nn.Module):
    def __init__(self, channels, side, patch, layers, heads, width, mlp_width, outputs, dropout=0.0):
        super().__init__()
        self.conv_proj = nn.Conv2d(channels, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.encoder = nn.Module()
        self.encoder.pos_embedding = nn.Parameter(torch.empty(1, (side // patch) ** 2 + 1, width).normal_(std=0.02))
        blocks = {f"encoder_layer_{i}": VitBlock(width, heads, mlp_width, dropout) for i in range(layers)}
        self.encoder.layers = nn.Sequential(OrderedDict(blocks))
        self.encoder.ln = nn.LayerNorm(width, eps=1e-6)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(width, outputs)))
        self.dropout = nn.Dropout(dropout)
        nn.init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / (channels * patch * patch)))
        for zero in (self.conv_proj.bias, self.heads.head.weight, self.heads.head.bias):
            nn.init.zeros_(zero)

    def features(self, x):
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), patches], dim=1) + self.encoder.pos_embedding
        return self.encoder.ln(self.encoder.layers(self.dropout(x)))

    def forward(self, x):
        return self.heads(self.features(x)[:, 0])


class Conv(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, inputs, outputs, kernel, stride=1, padding=0):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


def wide(inputs, outputs):
    return Conv(inputs, outputs, (1, 7), padding=(0, 3))


def tall(inputs, outputs):
    return Conv(inputs, outputs, (7, 1), padding=(3, 0))


class InceptionBlock(nn.Module):
    """Branches, each a list of named convolutions. A branch named "branch_pool" is preceded by
    `pool`. Without such a branch, the pooled input itself is one."""

    def __init__(self, pool, *branches):
        super().__init__()
        self.pool, self.branches = pool, [[name for name, _ in branch] for branch in branches]
        for name, conv in (pair for branch in branches for pair in branch):
            setattr(self, name, conv)

    def forward(self, x):
        outputs = []
        for branch in self.branches:
            y = self.pool(x) if branch == ["branch_pool"] else x
            for name in branch:
                if name.endswith(("2a", "3a")):  # has the same input as the next one
                    outputs.append(getattr(self, name)(y))
                else:
                    y = getattr(self, name)(y)
            outputs.append(y)
        if not hasattr(self, "branch_pool"):
            outputs.append(self.pool(x))
        return torch.cat(outputs, 1)


def average(x):
    return F.avg_pool2d(x, 3, stride=1, padding=1)


def largest(x):
    return F.max_pool2d(x, 3, stride=2)


def block_a(inputs, pooled):
    return InceptionBlock(
        average,
        [("branch1x1", Conv(inputs, 64, 1))],
        [("branch5x5_1", Conv(inputs, 48, 1)), ("branch5x5_2", Conv(48, 64, 5, padding=2))],
        [
            ("branch3x3dbl_1", Conv(inputs, 64, 1)),
            ("branch3x3dbl_2", Conv(64, 96, 3, padding=1)),
            ("branch3x3dbl_3", Conv(96, 96, 3, padding=1)),
        ],
        [("branch_pool", Conv(inputs, pooled, 1))],
    )


def block_b(inputs):
    return InceptionBlock(
        largest,
        [("branch3x3", Conv(inputs, 384, 3, stride=2))],
        [
            ("branch3x3dbl_1", Conv(inputs, 64, 1)),
            ("branch3x3dbl_2", Conv(64, 96, 3, padding=1)),
            ("branch3x3dbl_3", Conv(96, 96, 3, stride=2)),
        ],
    )


def block_c(inputs, inner):
    return InceptionBlock(
        average,
        [("branch1x1", Conv(inputs, 192, 1))],
        [("branch7x7_1", Conv(inputs, inner, 1)), ("branch7x7_2", wide(inner, inner)), ("branch7x7_3", tall(inner, 192))],
        [
            ("branch7x7dbl_1", Conv(inputs, inner, 1)),
            ("branch7x7dbl_2", tall(inner, inner)),
            ("branch7x7dbl_3", wide(inner, inner)),
            ("branch7x7dbl_4", tall(inner, inner)),
            ("branch7x7dbl_5", wide(inner, 192)),
        ],
        [("branch_pool", Conv(inputs, 192, 1))],
    )


def block_d(inputs):
    return InceptionBlock(
        largest,
        [("branch3x3_1", Conv(inputs, 192, 1)), ("branch3x3_2", Conv(192, 320, 3, stride=2))],
        [
            ("branch7x7x3_1", Conv(inputs, 192, 1)),
            ("branch7x7x3_2", wide(192, 192)),
            ("branch7x7x3_3", tall(192, 192)),
            ("branch7x7x3_4", Conv(192, 192, 3, stride=2)),
        ],
    )


def block_e(inputs):
    return InceptionBlock(
        average,
        [("branch1x1", Conv(inputs, 320, 1))],
        [
            ("branch3x3_1", Conv(inputs, 384, 1)),
            ("branch3x3_2a", Conv(384, 384, (1, 3), padding=(0, 1))),
            ("branch3x3_2b", Conv(384, 384, (3, 1), padding=(1, 0))),
        ],
        [
            ("branch3x3dbl_1", Conv(inputs, 448, 1)),
            ("branch3x3dbl_2", Conv(448, 384, 3, padding=1)),
            ("branch3x3dbl_3a", Conv(384, 384, (1, 3), padding=(0, 1))),
            ("branch3x3dbl_3b", Conv(384, 384, (3, 1), padding=(1, 0))),
        ],
        [("branch_pool", Conv(inputs, 192, 1))],
    )


class AuxiliaryHead(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.conv0, self.conv1, self.fc = Conv(768, 128, 1), Conv(128, 768, 5), nn.Linear(768, outputs)

    def forward(self, x):
        x = self.conv1(self.conv0(F.avg_pool2d(x, 5, stride=3)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class InceptionV3(nn.Module):
    """In training mode returns main and auxiliary logits if it has the auxiliary head."""

    def __init__(self, channels, outputs, aux_logits=True, dropout=0.5):
        super().__init__()
        self.Conv2d_1a_3x3 = Conv(channels, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = Conv(32, 32, 3)
        self.Conv2d_2b_3x3 = Conv(32, 64, 3, padding=1)
        self.Conv2d_3b_1x1 = Conv(64, 80, 1)
        self.Conv2d_4a_3x3 = Conv(80, 192, 3)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = block_a(192, 32), block_a(256, 64), block_a(288, 64)
        self.Mixed_6a, self.Mixed_6b, self.Mixed_6c = block_b(288), block_c(768, 128), block_c(768, 160)
        self.Mixed_6d, self.Mixed_6e = block_c(768, 160), block_c(768, 192)
        self.AuxLogits = AuxiliaryHead(outputs) if aux_logits else None
        self.Mixed_7a, self.Mixed_7b, self.Mixed_7c = block_d(768), block_e(1280), block_e(2048)
        self.dropout, self.fc = nn.Dropout(dropout), nn.Linear(2048, outputs)
        for name, module in self.named_modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.001 if name == "AuxLogits.fc" else 0.1)

    def trunk(self, x):
        x = largest(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))))
        x = self.Mixed_5b(largest(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x))))
        x = self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(self.Mixed_5d(self.Mixed_5c(x)))))
        return self.Mixed_6e(self.Mixed_6d(x))

    def rest(self, x):
        return self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))

    def feature_map(self, x):
        return self.rest(self.trunk(x))

    def forward(self, x):
        x = self.trunk(x)
        auxiliary = self.AuxLogits(x) if self.training and self.AuxLogits is not None else None
        logits = self.fc(self.dropout(F.adaptive_avg_pool2d(self.rest(x), 1)).flatten(1))
        return logits if auxiliary is None else (logits, auxiliary)
