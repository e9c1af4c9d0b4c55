"""Modules for the comparison of exported models with Python: NAMES, and make(name) -> (module, loss, example batch)."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import export_models

SAMPLES, CLASSES = 6, 4
MAKERS = {}


def zoo(name):
    def add(maker):
        assert name not in MAKERS, name
        MAKERS[name] = maker
        return maker
    return add


def labels():
    return torch.randint(0, CLASSES, (SAMPLES,))


class Around(nn.Module):
    """A layer between one with parameters and a head."""

    def __init__(self, before, layer, example):
        super().__init__()
        self.before, self.layer = before, layer
        with torch.no_grad():
            self.head = nn.Linear(self.middle(example[:2]).shape[1], CLASSES)

    def middle(self, x):
        y = self.layer(self.before(x))
        return (y[0] if isinstance(y, tuple) else y).flatten(1)

    def forward(self, x):
        return self.head(self.middle(x))


def around(kind, layer):
    """The input and the layer before `layer`, by the kind of its input."""
    def make():
        x = {"vector": (12,), "image": (3, 12, 12), "sequence": (7, 8), "signal": (3, 16), "volume": (2, 6, 6, 6)}[kind]
        before = {"vector": lambda: nn.Linear(12, 12), "image": lambda: nn.Conv2d(3, 4, 3, padding=1), "sequence": lambda: nn.Linear(8, 8),
                  "signal": lambda: nn.Conv1d(3, 4, 3, padding=1), "volume": lambda: nn.Conv3d(2, 4, 3, padding=1)}[kind]
        example = torch.randn(SAMPLES, *x)
        return Around(before(), layer(), example), F.cross_entropy, (example, labels())
    return make


LAYERS = {
    "vector": {
        "relu": nn.ReLU, "relu_inplace": lambda: nn.ReLU(inplace=True), "relu6": nn.ReLU6, "leaky_relu": lambda: nn.LeakyReLU(0.1), "prelu": nn.PReLU,
        "rrelu": nn.RReLU, "elu": nn.ELU, "selu": nn.SELU, "celu": lambda: nn.CELU(0.7), "gelu": nn.GELU, "gelu_tanh": lambda: nn.GELU("tanh"),
        "silu": nn.SiLU, "mish": nn.Mish, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "hardtanh": nn.Hardtanh, "hardswish": nn.Hardswish,
        "hardsigmoid": nn.Hardsigmoid, "hardshrink": nn.Hardshrink, "softshrink": nn.Softshrink, "tanhshrink": nn.Tanhshrink, "softplus": nn.Softplus,
        "softsign": nn.Softsign, "logsigmoid": nn.LogSigmoid, "threshold": lambda: nn.Threshold(0.1, 0.2), "softmax": lambda: nn.Softmax(1),
        "softmin": lambda: nn.Softmin(1), "log_softmax": lambda: nn.LogSoftmax(1), "glu": nn.GLU, "identity": nn.Identity, "dropout": lambda: nn.Dropout(0.3),
        "alpha_dropout": lambda: nn.AlphaDropout(0.3), "batch_norm1d": lambda: nn.BatchNorm1d(12),
        "layer_norm": lambda: nn.LayerNorm(12), "rms_norm": lambda: nn.RMSNorm(12), "group_norm1d": lambda: nn.GroupNorm(3, 12), "linear": lambda: nn.Linear(12, 5),
        "linear_no_bias": lambda: nn.Linear(12, 5, bias=False), "unflatten": lambda: nn.Unflatten(1, (3, 4)),
    },
    "image": {
        "conv2d": lambda: nn.Conv2d(4, 6, 3), "conv2d_groups": lambda: nn.Conv2d(4, 8, 3, groups=4, bias=False), "conv2d_dilated": lambda: nn.Conv2d(4, 4, 3, dilation=2, stride=2),
        "conv2d_reflect": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), "conv2d_circular": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        "conv2d_same": lambda: nn.Conv2d(4, 4, 4, padding="same"), "conv_transpose2d": lambda: nn.ConvTranspose2d(4, 3, 2, stride=2), "max_pool2d": lambda: nn.MaxPool2d(2),
        "avg_pool2d": lambda: nn.AvgPool2d(3, 2, padding=1), "lp_pool2d": lambda: nn.LPPool2d(2, 2), "adaptive_avg_pool2d": lambda: nn.AdaptiveAvgPool2d(5),
        "adaptive_max_pool2d": lambda: nn.AdaptiveMaxPool2d(3), "fractional_max_pool2d": lambda: nn.FractionalMaxPool2d(3, output_size=4), "batch_norm2d": lambda: nn.BatchNorm2d(4),
        "batch_norm2d_no_stats": lambda: nn.BatchNorm2d(4, track_running_stats=False), "group_norm": lambda: nn.GroupNorm(2, 4),
        "instance_norm2d": lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), "local_response_norm": lambda: nn.LocalResponseNorm(2),
        "dropout2d": lambda: nn.Dropout2d(0.3), "pixel_shuffle": lambda: nn.PixelShuffle(2), "pixel_unshuffle": lambda: nn.PixelUnshuffle(2), "channel_shuffle": lambda: nn.ChannelShuffle(2),
        "upsample_nearest": lambda: nn.Upsample(scale_factor=2), "upsample_bilinear": lambda: nn.Upsample(scale_factor=1.5, mode="bilinear"),
        "upsample_bicubic": lambda: nn.Upsample(size=7, mode="bicubic", align_corners=True), "zero_pad2d": lambda: nn.ZeroPad2d(1), "reflection_pad2d": lambda: nn.ReflectionPad2d(2),
        "replication_pad2d": lambda: nn.ReplicationPad2d(1), "circular_pad2d": lambda: nn.CircularPad2d(1), "constant_pad2d": lambda: nn.ConstantPad2d(1, 0.5),
        "unfold": lambda: nn.Unfold(3), "softmax2d": nn.Softmax2d, "upsampling_nearest2d": lambda: nn.UpsamplingNearest2d(size=7),
        "upsampling_bilinear2d": lambda: nn.UpsamplingBilinear2d(scale_factor=2), "feature_alpha_dropout": lambda: nn.FeatureAlphaDropout(0.2),
    },
    "signal": {
        "conv1d": lambda: nn.Conv1d(4, 5, 3, stride=2), "conv_transpose1d": lambda: nn.ConvTranspose1d(4, 3, 3), "max_pool1d": lambda: nn.MaxPool1d(2), "avg_pool1d": lambda: nn.AvgPool1d(2),
        "lp_pool1d": lambda: nn.LPPool1d(2, 2), "adaptive_avg_pool1d": lambda: nn.AdaptiveAvgPool1d(3), "adaptive_max_pool1d": lambda: nn.AdaptiveMaxPool1d(3),
        "dropout1d": lambda: nn.Dropout1d(0.3), "instance_norm1d": lambda: nn.InstanceNorm1d(4), "batch_norm1d_signal": lambda: nn.BatchNorm1d(4),
        "upsample_linear": lambda: nn.Upsample(scale_factor=2, mode="linear"), "reflection_pad1d": lambda: nn.ReflectionPad1d(2),
        "replication_pad1d": lambda: nn.ReplicationPad1d(2), "constant_pad1d": lambda: nn.ConstantPad1d(2, 0.5), "zero_pad1d": lambda: nn.ZeroPad1d(2),
        "circular_pad1d": lambda: nn.CircularPad1d(2),
    },
    "volume": {
        "conv3d": lambda: nn.Conv3d(4, 3, 3), "conv_transpose3d": lambda: nn.ConvTranspose3d(4, 2, 2), "max_pool3d": lambda: nn.MaxPool3d(2), "avg_pool3d": lambda: nn.AvgPool3d(2),
        "adaptive_avg_pool3d": lambda: nn.AdaptiveAvgPool3d(2), "batch_norm3d": lambda: nn.BatchNorm3d(4), "dropout3d": lambda: nn.Dropout3d(0.3),
        "upsample_trilinear": lambda: nn.Upsample(scale_factor=2, mode="trilinear"), "replication_pad3d": lambda: nn.ReplicationPad3d(1),
        "adaptive_max_pool3d": lambda: nn.AdaptiveMaxPool3d(2), "lp_pool3d": lambda: nn.Sequential(nn.Sigmoid(), nn.LPPool3d(2, 2)), "instance_norm3d": lambda: nn.InstanceNorm3d(4),
        "reflection_pad3d": lambda: nn.ReflectionPad3d(1), "constant_pad3d": lambda: nn.ConstantPad3d(1, 0.5), "zero_pad3d": lambda: nn.ZeroPad3d(1),
        "circular_pad3d": lambda: nn.CircularPad3d(1),
    },
    "sequence": {
        "rnn": lambda: nn.RNN(8, 6, batch_first=True), "rnn_relu": lambda: nn.RNN(8, 6, nonlinearity="relu", batch_first=True, bidirectional=True),
        "lstm": lambda: nn.LSTM(8, 6, batch_first=True), "lstm_stacked": lambda: nn.LSTM(8, 6, num_layers=2, dropout=0.2, bidirectional=True, batch_first=True),
        "lstm_projected": lambda: nn.LSTM(8, 6, proj_size=3, batch_first=True), "gru": lambda: nn.GRU(8, 6, num_layers=2, dropout=0.2, batch_first=True),
        "transformer_encoder_layer": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        "transformer_encoder_norm_first": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True, batch_first=True), 2),
    },
}
for _kind, _layers in LAYERS.items():
    for _name, _layer in _layers.items():
        zoo(_name)(around(_kind, _layer))


# ---- Layers with other inputs

class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.lstm, self.gru, self.out = nn.RNNCell(8, 6), nn.LSTMCell(6, 6), nn.GRUCell(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        h = g = x.new_zeros(x.shape[0], 6)
        state = (h, h)
        for t in range(x.shape[1]):
            h = self.rnn(x[:, t], h)
            state = self.lstm(h, state)
            g = self.gru(state[0], g)
        return self.out(g)


@zoo("cells")
def _():
    return Cells(), F.cross_entropy, (torch.randn(SAMPLES, 5, 8), labels())


class Attention(nn.Module):
    """Self-attention with a causal mask, cross-attention that returns its weights, and a decoder layer."""

    def __init__(self):
        super().__init__()
        self.own = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.cross = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True, kdim=8, vdim=8)
        self.decoder = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y = self.own(x, x, x, attn_mask=mask, need_weights=False, is_causal=True)[0]
        z, weights = self.cross(y, x, x)
        return self.out(self.decoder(z, y, tgt_mask=mask)[:, -1]) + weights.mean((1, 2))[:, None]


@zoo("attention")
def _():
    return Attention(), F.cross_entropy, (torch.randn(SAMPLES, 7, 8), labels())


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 20)
        self.net = nn.Transformer(8, 2, 1, 1, 16, dropout=0.1, batch_first=True)

    def forward(self, x):
        padding = x == 0
        y = self.embed(x)
        return self.out(self.net(y, y, src_key_padding_mask=padding, tgt_key_padding_mask=padding, tgt_mask=torch.triu(torch.ones(9, 9, dtype=torch.bool), 1)))


def token_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@zoo("transformer")
def _():
    x = torch.randint(1, 20, (SAMPLES, 9))
    x[:, 7:] = 0
    return Transformer(), token_loss, (x, torch.randint(0, 20, (SAMPLES, 9)))


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6, padding_idx=0)
        self.bags = nn.ModuleList(nn.EmbeddingBag(20, 6, mode=mode) for mode in ("sum", "mean", "max"))
        self.out = nn.Linear(24, CLASSES)

    def forward(self, x):
        return self.out(torch.cat([self.embed(x).mean(1), *(bag(x) for bag in self.bags)], 1))


@zoo("embedding_bags")
def _():
    return Bags(), F.cross_entropy, (torch.randint(0, 20, (SAMPLES, 5)), labels())


class Pairs(nn.Module):
    """Layers with two inputs."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(12, 6), nn.Linear(12, 6), nn.Bilinear(6, 6, CLASSES)
        self.cosine, self.distance = nn.CosineSimilarity(), nn.PairwiseDistance()
        self.fold, self.unpool = nn.Fold((4, 4), 2, stride=2), nn.MaxUnpool1d(2)

    def forward(self, x):
        a, b = self.a(x), self.b(x)
        folded = self.fold(torch.cat([x, x[:, :4]], 1).view(-1, 4, 4)).sum((1, 2, 3))
        pooled, indices = F.max_pool1d(a[:, None], 2, return_indices=True)
        return self.c(a, b) + (self.cosine(a, b) + self.distance(a, b) + folded)[:, None] + self.unpool(pooled, indices)[:, 0, :CLASSES]


@zoo("pairs")
def _():
    return Pairs(), F.cross_entropy, (torch.randn(SAMPLES, 12), labels())


class Decoder(nn.Module):
    """A stack of decoder layers, pools that are undone in two and three dimensions."""

    def __init__(self):
        super().__init__()
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.1, batch_first=True), 2)
        self.pool2, self.unpool2, self.pool3, self.unpool3 = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2), nn.MaxPool3d(2, return_indices=True), nn.MaxUnpool3d(2)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x):
        y = self.decoder(x, x[:, :4])
        flat, cube = y.view(-1, 1, 8, 8), y.view(-1, 1, 4, 4, 4)
        return self.out((self.unpool2(*self.pool2(flat)).flatten(1) + self.unpool3(*self.pool3(cube)).flatten(1)).view(-1, 8, 8).mean(1))


@zoo("decoder")
def _():
    return Decoder(), F.cross_entropy, (torch.randn(SAMPLES, 8, 8), labels())


class Operators(nn.Module):
    """Operators that ask for values or for the batch size when they are traced, and rare ones."""

    def __init__(self):
        super().__init__()
        self.a, self.out = nn.Linear(12, 12), nn.Linear(12, CLASSES)

    def forward(self, x):
        a = self.a(x)
        kinds = x[:, :CLASSES].argmax(1)
        square = a[:, :9].view(-1, 3, 3)
        positive = square @ square.mT + torch.eye(3)
        root = torch.linalg.cholesky(positive)
        window = torch.hann_window(4)
        numbers = [
            torch.cdist(a, x).mean(1), torch.cdist(a, x, compute_mode="donot_use_mm_for_euclid_dist").mean(1), torch.quantile(a, 0.3, dim=1),
            torch.nanquantile(a, torch.tensor([0.2, 0.7]), dim=1, keepdim=True).sum((0, 2)), torch.corrcoef(a).abs().mean(1), torch.cov(a.T).mean() + a[:, 0],
            torch.take_along_dim(a, x.argsort(1)[:, :2], dim=1).sum(1), torch.kron(a, x[:1, :2]).mean(1), torch.linalg.multi_dot([a, x.T, a]).mean(1),
            torch.linalg.matrix_norm(positive, 2), torch.linalg.matrix_norm(square, "nuc"), torch.cholesky_solve(square, root).sum((1, 2)), torch.cholesky_inverse(root).mean((1, 2)),
            torch.svd(positive)[1].sum(1), torch.linalg.lu(positive)[2].sum((1, 2)),
            torch.istft(torch.stft(a, 4, 1, window=window, return_complex=True), 4, 1, window=window).mean(1),
            a.new_zeros(CLASSES, 12).index_reduce(0, kinds, a, "mean").sum(1)[kinds], torch.bincount(kinds, minlength=CLASSES).float()[kinds],
            torch.histc(x, 5, -1, 1).mean() + a[:, 1], torch.unique((x * 2).round().long(), return_inverse=True)[1].sum(1) * a[:, 2],
            torch.unique_consecutive(kinds).numel() * a[:, 3], torch.argwhere(x > 0).sum() * 1e-3 * a[:, 4], torch.msort(a)[0].sum() + a[:, 5],
            torch.special.gammaincc(torch.ones(()), a[:, 6].abs() + 1), a[:, 7].tanh().mul(0.5).asin_(), torch.fft.hfft2(torch.complex(square, square)).mean((1, 2))]
        return self.out(a) + torch.stack(numbers, 1).sum(1, keepdim=True) * 0.01


@zoo("operators")
def _():
    return Operators(), F.cross_entropy, (torch.randn(SAMPLES, 12), labels())


# ---- Losses

def with_loss(name, loss, target, outputs=CLASSES, last=nn.Identity):
    zoo("loss_" + name)(lambda: (nn.Sequential(nn.Linear(12, outputs), last()), loss, (torch.randn(SAMPLES, 12), target())))


def real():
    return torch.randn(SAMPLES, CLASSES)


def binary():
    return torch.randint(0, 2, (SAMPLES, CLASSES)).float()


def signs():
    return torch.randint(0, 2, (SAMPLES, CLASSES)) * 2.0 - 1


with_loss("cross_entropy", nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 1.5]), label_smoothing=0.1), labels)
with_loss("soft_labels", F.cross_entropy, lambda: torch.rand(SAMPLES, CLASSES).softmax(1))
with_loss("nll", nn.NLLLoss(), labels, last=lambda: nn.LogSoftmax(1))
with_loss("mse", nn.MSELoss(), real)
with_loss("l1", nn.L1Loss(), real)
with_loss("smooth_l1", nn.SmoothL1Loss(beta=0.5), real)
with_loss("huber", nn.HuberLoss(), real)
with_loss("bce_with_logits", nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0, 4.0])), binary)
with_loss("bce", nn.BCELoss(), binary, last=nn.Sigmoid)
with_loss("kl_div", nn.KLDivLoss(reduction="batchmean"), lambda: torch.rand(SAMPLES, CLASSES).softmax(1), last=lambda: nn.LogSoftmax(1))
with_loss("poisson_nll", nn.PoissonNLLLoss(), lambda: torch.randint(0, 5, (SAMPLES, CLASSES)).float())
with_loss("hinge_embedding", nn.HingeEmbeddingLoss(), signs)
with_loss("soft_margin", nn.SoftMarginLoss(), signs)
with_loss("multi_margin", nn.MultiMarginLoss(), labels)
with_loss("multilabel_margin", nn.MultiLabelMarginLoss(), lambda: torch.tensor([[0, 2, -1, 1]] * SAMPLES))
with_loss("multilabel_soft_margin", nn.MultiLabelSoftMarginLoss(), binary)
with_loss("margin_ranking", lambda o, y: F.margin_ranking_loss(o[:, 0], o[:, 1], y, margin=0.1), lambda: signs()[:, 0])
with_loss("cosine_embedding", lambda o, y: F.cosine_embedding_loss(o[:, :4], o[:, 4:], y), lambda: signs()[:, 0], outputs=8)
with_loss("triplet_margin", lambda o, y: F.triplet_margin_loss(o[:, :4], o[:, 4:], y), real, outputs=8)
with_loss("triplet_distance", lambda o, y: nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs().sum(1))(o[:, :4], o[:, 4:], y), real, outputs=8)
with_loss("gaussian_nll", lambda o, y: F.gaussian_nll_loss(o[:, :4], y, o[:, 4:].exp()), real, outputs=8)
with_loss("quantiles", lambda o, y: torch.stack([torch.maximum(q * (y - o), (q - 1) * (y - o)).mean() for q in (0.1, 0.5, 0.9)]).sum(), real)


class Ctc(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.lstm(x)[0])


@zoo("loss_ctc")
def _():
    """With padding behind the labels."""
    def loss(logits, targets):
        steps = torch.full((logits.shape[0],), logits.shape[1])
        return F.ctc_loss(logits.log_softmax(2).transpose(0, 1), targets, steps, targets.gt(0).sum(1), zero_infinity=True)
    return Ctc(), loss, (torch.randn(SAMPLES, 9, 8), torch.tensor([[1, 2, -1], [3, -1, -1], [4, 4, 1]] * 2))


@zoo("sum_and_count")
def _():
    """The mean over tokens that are not padding, as (sum, count)."""
    def loss(logits, targets):
        kept = targets != -100
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum"), kept.sum()
    targets = torch.randint(0, CLASSES, (SAMPLES, 7))
    targets[:3, 4:] = -100
    return nn.Sequential(nn.Linear(8, CLASSES)), loss, (torch.randn(SAMPLES, 7, 8), targets)


# ---- Whole models

class Residual(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.down = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if stride > 1 else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + self.down(x))


@zoo("resnet")
def _():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), Residual(8, 8, 1), Residual(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(16, CLASSES))
    return net, F.cross_entropy, (torch.randn(SAMPLES, 3, 16, 16), labels())


class Block(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(p))
        self.p = p

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (part.view(batch, time, 2, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.p if self.training else 0.0)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """With a head tied to the embedding, a buffer that is not saved, and several outputs."""

    def __init__(self, recomputes=False, width=32, context=16):
        super().__init__()
        self.tok, self.pos = nn.Embedding(64, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, 0.1) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 64, bias=False)
        self.head.weight = self.tok.weight
        self.register_buffer("positions", torch.arange(context), persistent=False)
        self.recomputes = recomputes

    def forward(self, tokens):
        x = F.dropout(self.tok(tokens) + self.pos(self.positions[:tokens.shape[1]]), 0.1, self.training)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recomputes else block(x)
        x = self.norm(x)
        return {"features": x, "logits": self.head(x)}


def make_gpt(recomputes):
    tokens = torch.randint(0, 64, (SAMPLES, 17))
    return (Gpt(recomputes), lambda o, y: token_loss(o["logits"], y) + 1e-3 * o["features"].square().mean(), (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()))


zoo("gpt")(lambda: make_gpt(False))
zoo("gpt_recomputed")(lambda: make_gpt(True))


class LstmLm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.out = nn.Embedding(64, 16), nn.LSTM(16, 16, 2, batch_first=True, dropout=0.1), nn.Linear(16, 64)

    def forward(self, x):
        return self.out(self.lstm(self.embed(x))[0])


@zoo("lstm_lm")
def _():
    tokens = torch.randint(0, 64, (SAMPLES, 13))
    return LstmLm(), token_loss, (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


class PaddedGru(nn.Module):
    """The mean over the steps of sequences that are not padding."""

    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(3, 8, batch_first=True, bidirectional=True), nn.Linear(16, CLASSES)

    def forward(self, x, length):
        kept = (torch.arange(x.shape[1]) < length[:, None]).unsqueeze(2)
        return self.out((self.gru(x)[0] * kept).sum(1) / length[:, None])


zoo("gpt_of_any_length")(lambda: make_gpt(False))
zoo("gru_of_any_length")(lambda: (PaddedGru(), F.cross_entropy, ((torch.randn(SAMPLES, 9, 3), torch.tensor([9, 3, 4, 1, 9, 2])), labels())))
DYNAMIC_LENGTH = {"gpt_of_any_length", "gru_of_any_length"}


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(24, 16), nn.Linear(8, 24)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp() if self.training else mean
        return self.decoder(z), mean, log_variance


@zoo("vae")
def _():
    def loss(outputs, x):
        y, mean, log_variance = outputs
        return F.mse_loss(y, x) - 0.5 * (1 + log_variance - mean**2 - log_variance.exp()).mean()
    x = torch.rand(SAMPLES, 24)
    return Vae(), loss, (x, x.clone())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(True))
        self.down, self.middle, self.up, self.last = block(3, 8), block(8, 8), nn.ConvTranspose2d(8, 8, 2, stride=2), nn.Conv2d(16, 5, 1)

    def forward(self, x):
        a = self.down(x)
        b = F.interpolate(self.middle(F.max_pool2d(a, 2)), size=(4, 4), mode="bilinear", align_corners=False)
        return self.last(torch.cat([a, self.up(b)], 1))


@zoo("unet")
def _():
    return UNet(), F.cross_entropy, (torch.randn(SAMPLES, 3, 8, 8), torch.randint(0, 5, (SAMPLES, 8, 8)))


LAYERS_REPARAMETRIZED = {
    "weight_norm": lambda: parametrizations.weight_norm(nn.Conv2d(3, 6, 3)),
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Conv2d(3, 6, 3)),
    "orthogonal": lambda: nn.Sequential(nn.Conv2d(3, 1, 3), nn.Flatten(), parametrizations.orthogonal(nn.Linear(36, 8), orthogonal_map="cayley")),
}
for _name, _layer in LAYERS_REPARAMETRIZED.items():
    zoo(_name)(lambda layer=_layer: (nn.Sequential(layer(), nn.Flatten(), nn.LazyLinear(CLASSES)), F.cross_entropy, (torch.randn(SAMPLES, 3, 8, 8), labels())))


# ---- What torch.export has traps for

class Buffers(nn.Module):
    """In a submodule: buffers that are written to and replaced, on the way a branch on a shape and writes to slices."""

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(12, CLASSES)
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))
            self.register_buffer("mean", torch.zeros(CLASSES))

        def forward(self, x):
            if x.shape[1] > 8:
                x = x.reshape(x.shape[0], 2, -1).transpose(1, 2).reshape(x.shape[0], -1)
            y = self.linear(x)
            if self.training:
                self.steps += 1
                self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)  # replaces the buffer
            y = y - self.mean
            y[:, 0] += 1
            y[y > 1] = 1.0
            first, *rest = torch.split(y, [1, 2, 1], dim=1)
            return torch.cat([first, *rest], 1) * math.sqrt(x.shape[1]) + x.shape[0] / 100 + torch.zeros(x.shape[0], 1)

    def __init__(self):
        super().__init__()
        self.inner = Buffers.Inner()

    def forward(self, x):
        return self.inner(x)


@zoo("buffers")
def _():
    return Buffers(), F.cross_entropy, (torch.randn(SAMPLES, 12), labels())


class Teacher(nn.Module):
    """A momentum teacher without gradient, autocast switched off in a part, a parameter that gets no gradient."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher, self.unused = nn.Linear(12, CLASSES), nn.Linear(12, CLASSES), nn.Linear(2, 2)
        self.teacher.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            if self.training:
                for t, s in zip(self.teacher.parameters(), self.student.parameters()):
                    t.mul_(0.99).add_(s, alpha=0.01)
            target = self.teacher(x)
        with torch.autocast("cpu", enabled=False):
            y = self.student(x.float())
        return y + (y.detach() - target).abs()


@zoo("teacher")
def _():
    return Teacher(), F.cross_entropy, (torch.randn(SAMPLES, 12), labels())


class Cond(nn.Module):
    """Of each branch a parameter, of which one gets no gradient from the other."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, CLASSES), nn.Linear(12, CLASSES)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.a(x), lambda x: self.b(x).tanh(), (x,))


@zoo("cond")
def _():
    return Cond(), F.cross_entropy, (torch.randn(SAMPLES, 12), labels())


class Noisy(nn.Module):
    """Draws random numbers in eval mode, too."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.b(F.gumbel_softmax(self.a(x), tau=0.5, hard=True))


@zoo("noisy")
def _():
    return Noisy(), F.cross_entropy, (torch.randn(SAMPLES, 12), labels())


class Found(nn.Module):
    """Sizes that depend on values."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, CLASSES)

    def forward(self, x):
        y = self.a(x)
        return y[torch.nonzero(x[:, 0] > 0)[:, 0]].sum() + y


@zoo("found")
def _():
    return Found(), F.cross_entropy, (torch.randn(SAMPLES, 12), labels())


class Exchanged(nn.Module):
    """Buffers that get each other's tensors."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, CLASSES)
        for i, name in enumerate(("previous", "current", "left", "right")):
            self.register_buffer(name, torch.full((CLASSES,), float(i)))

    def forward(self, x):
        y = self.linear(x)
        if self.training:
            self.previous = self.current
            self.current = y.detach().mean(0)
            self.left, self.right = self.right, self.left
        return y + 0.1 * self.left


@zoo("exchanged_buffers")
def _():
    return Exchanged(), F.cross_entropy, (torch.randn(SAMPLES, 12), labels())


class Renormed(nn.Module):
    """forward() writes to a parameter. As many classes as steps."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(20, 8, max_norm=1.0), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.out(self.embed(x).mean(1))


@zoo("embedding_max_norm")
def _():
    return Renormed(), F.cross_entropy, (torch.randint(0, 20, (SAMPLES, CLASSES)), labels())


class Features(nn.Module):
    """A recomputed part of three tensors, of which each is computed from the one before."""

    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, CLASSES)

        def forward(self, a, b, c):
            return self.linear(a * b + c)

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.mix = nn.Linear(12, 8), nn.Linear(8, 8), nn.Linear(8, 8), Features.Mix()

    def forward(self, x):
        a = self.a(x)
        b = self.b(a).tanh()
        return checkpoint(self.mix, a, b, self.c(b), use_reentrant=False).tanh()


@zoo("recomputed_features")
def _():
    return Features(), F.cross_entropy, (torch.randn(SAMPLES, 12), labels())


# ---- Of the system tests: for their data

zoo("mlp")(export_models.mlp)
zoo("byte_gpt")(export_models.gpt)
zoo("tagger")(export_models.tagger)


@zoo("plain_mlp")
def _():
    """stoker's own mlp with hidden_sizes [32] and dropout 0.1, and its names."""
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, CLASSES)), F.cross_entropy, (torch.randn(SAMPLES, 32), labels())


# ---- Libraries, if they are installed

def library(name, make):
    module = name.split(".")[0]

    def made():
        __import__(module)
        return make()
    zoo(name)(made)
    LIBRARIES.add(name)


LIBRARIES = set()


def torchvision_model(name, size=32, **arguments):
    def loss(outputs, y):  # of googlenet with auxiliary outputs
        if isinstance(outputs, torch.Tensor):
            return F.cross_entropy(outputs, y)
        return F.cross_entropy(outputs[0], y) + 0.3 * sum(F.cross_entropy(each, y) for each in outputs[1:] if each is not None)

    def make():
        import torchvision
        return (getattr(torchvision.models, name)(num_classes=CLASSES, **arguments), loss, (torch.randn(SAMPLES, 3, size, size), labels()))
    library("torchvision." + name, make)


def timm_model(name, size=32, **arguments):
    def make():
        import timm
        return timm.create_model(name, num_classes=CLASSES, **arguments), F.cross_entropy, (torch.randn(SAMPLES, 3, size, size), labels())
    library("timm." + name, make)


class HuggingFace(nn.Module):
    """A model of transformers, which is called with keyword arguments."""

    def __init__(self, model, config, arguments):
        super().__init__()
        import transformers
        self.net = getattr(transformers, model)(getattr(transformers, config)(**arguments))
        self.is_decoder = model.endswith("ForCausalLM") or model == "GPT2LMHeadModel"
        self.has_both = model.endswith("ForConditionalGeneration")

    def forward(self, x):
        if x.is_floating_point():
            return self.net(x)
        mask = (x > 0).long()
        if self.has_both:
            return self.net(input_ids=x, attention_mask=mask, decoder_input_ids=x, use_cache=False)
        return self.net(input_ids=x, use_cache=False) if self.is_decoder else self.net(input_ids=x, attention_mask=mask)


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TEXT = SIZES | {"vocab_size": 64, "max_position_embeddings": 32, "pad_token_id": 0}
DECODER = TEXT | {"bos_token_id": 1, "eos_token_id": 1}
GROUPED = DECODER | {"num_key_value_heads": 1}
BOTH = {"vocab_size": 64, "d_model": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 0}


def hugging_face(name, model, config, arguments, size=32):
    """Classes of a sequence or an image, or tokens, by the name of the model."""
    is_image = "Image" in model or "Semantic" in model
    per_token = not is_image and "SequenceClassification" not in model

    def loss(outputs, y):
        return F.cross_entropy(outputs.logits.flatten(0, 1), y.flatten()) if per_token else F.cross_entropy(outputs.logits, y)

    def make():
        x = torch.randn(SAMPLES, 3, size, size) if is_image else torch.randint(0 if "SequenceClassification" in model else 2, 64, (SAMPLES, 12))
        y = torch.randint(0, 64, (SAMPLES, 12)) if per_token else torch.randint(0, CLASSES, (SAMPLES, 16, 16)) if "Semantic" in model else labels()
        return HuggingFace(model, config, arguments if per_token else arguments | {"num_labels": CLASSES}), loss, (x, y)
    library("transformers." + name, make)


torchvision_model("resnet18")
torchvision_model("mobilenet_v3_small")
torchvision_model("shufflenet_v2_x0_5")
torchvision_model("squeezenet1_1", 64)
timm_model("vit_tiny_patch16_224", img_size=32, depth=2, drop_path_rate=0.2, drop_rate=0.1)
timm_model("convnext_atto", drop_path_rate=0.2)
hugging_face("gpt2", "GPT2LMHeadModel", "GPT2Config", {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2})
hugging_face("bert", "BertForSequenceClassification", "BertConfig", TEXT)
hugging_face("llama", "LlamaForCausalLM", "LlamaConfig", GROUPED)

IN_EVERY_CHANGE = set(LIBRARIES)
torchvision_model("densenet121")
torchvision_model("mobilenet_v2")
torchvision_model("efficientnet_b0")
torchvision_model("regnet_y_400mf")
torchvision_model("mnasnet0_5")
torchvision_model("convnext_tiny")
torchvision_model("swin_t")
torchvision_model("resnext50_32x4d")
torchvision_model("googlenet", 96, aux_logits=True, init_weights=False)
timm_model("deit_tiny_patch16_224", img_size=32, depth=2)
timm_model("beit_base_patch16_224", img_size=32, depth=2, embed_dim=64, num_heads=2)
timm_model("eva02_tiny_patch14_224", 28, img_size=28, depth=2)
timm_model("cait_xxs24_224", img_size=32, depth=2)
timm_model("xcit_nano_12_p16_224", img_size=32, depth=2)
timm_model("swin_tiny_patch4_window7_224", 56, img_size=56, embed_dim=24, depths=(1, 1), num_heads=(2, 2))
timm_model("mixer_s32_224", img_size=32)
timm_model("regnetx_002")
timm_model("convnextv2_atto")
timm_model("efficientnet_lite0")
timm_model("mobilenetv4_conv_small")
timm_model("repvgg_a0")
timm_model("ghostnet_100")
timm_model("edgenext_xx_small", 64, drop_path_rate=0.1)
timm_model("mobilevit_xxs", 64)
timm_model("pvt_v2_b0", 64)
timm_model("poolformer_s12", 64)
for _name, _model in {"roberta": "Roberta", "electra": "Electra", "albert": "Albert", "deberta": "Deberta", "mpnet": "MPNet", "camembert": "Camembert"}.items():
    hugging_face(_name, _model + "ForSequenceClassification", _model + "Config", TEXT)
hugging_face("distilbert", "DistilBertForSequenceClassification", "DistilBertConfig",
             {"vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 32, "pad_token_id": 0})
hugging_face("deberta_v2", "DebertaV2ForSequenceClassification", "DebertaV2Config",
             TEXT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8, "share_att_key": True})
hugging_face("bert_masked", "BertForMaskedLM", "BertConfig", TEXT)
for _name, _model in {"mistral": "Mistral", "qwen2": "Qwen2", "stablelm": "StableLm", "olmo2": "Olmo2", "phi3": "Phi3"}.items():
    hugging_face(_name, _model + "ForCausalLM", _model + "Config", GROUPED)
hugging_face("gemma", "GemmaForCausalLM", "GemmaConfig", GROUPED | {"head_dim": 16})
hugging_face("phi", "PhiForCausalLM", "PhiConfig", DECODER)
hugging_face("gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXConfig", DECODER)
hugging_face("gpt_neo", "GPTNeoForCausalLM", "GPTNeoConfig", {"vocab_size": 64, "hidden_size": 32, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]],
                                                             "max_position_embeddings": 32, "window_size": 4, "bos_token_id": 1, "eos_token_id": 1})
hugging_face("opt", "OPTForCausalLM", "OPTConfig", {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 64,
                                                   "max_position_embeddings": 32, "word_embed_proj_dim": 32, "pad_token_id": 0})
hugging_face("mamba", "MambaForCausalLM", "MambaConfig", {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4})
hugging_face("t5", "T5ForConditionalGeneration", "T5Config", BOTH | {"d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2})
hugging_face("bart", "BartForConditionalGeneration", "BartConfig", BOTH | {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
                                                                          "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 32})
hugging_face("vit", "ViTForImageClassification", "ViTConfig", SIZES | {"image_size": 32, "patch_size": 8})
hugging_face("swin", "SwinForImageClassification", "SwinConfig", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4})
# Has hooks that it registers in the first call.
hugging_face("segformer", "SegformerForSemanticSegmentation", "SegformerConfig", {
    "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2], "decoder_hidden_size": 16}, 64)
ONLY_NIGHTLY = LIBRARIES - IN_EVERY_CHANGE

NAMES = list(MAKERS)


def make(name):
    torch.manual_seed(NAMES.index(name))
    module, loss, example = MAKERS[name]()
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
        module(example[0])
    for tensor in [*module.parameters(), *module.buffers()]:
        tensor.data = tensor.data.contiguous()  # as stoker's; products of a transposed buffer have other last bits
    return module, loss, example
