"""PyTorch counterpart of model captioner, whose decoders are torch's own modules: nn.LSTM, and nn.TransformerDecoder with
pre-norm layers. our_tensors() gives its tensors the names that stoker uses."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from models import Resnet
from vision_models import InceptionV3, Vit


def encoder_of(name, channels, side):
    """A classifier without its head."""
    if name.startswith("resnet"):
        encoder = Resnet(int(name[6:]), channels, 1)
        del encoder.fc
    elif name == "vit_b_32":
        encoder = Vit(channels, side, 32, layers=12, heads=12, width=768, mlp_width=3072, outputs=1)
        del encoder.heads
    else:
        encoder = InceptionV3(channels, 1, aux_logits=False)
        del encoder.fc
    return encoder


class LstmDecoder(nn.Module):
    def __init__(self, channels, width, layers, vocab, dropout):
        super().__init__()
        self.image = nn.Linear(channels, width)
        self.tok = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.head = nn.Linear(width, vocab)
        self.drop = nn.Dropout(dropout)

    def encode(self, features, pooled):
        return self.image(pooled)

    def forward(self, encoded, tokens):
        """The image is the input before the first word."""
        inputs = torch.cat([encoded[:, None], self.tok(tokens)], 1)
        return self.head(self.drop(self.lstm(self.drop(inputs))[0][:, 1:]))


class TransformerDecoder(nn.Module):
    def __init__(self, channels, positions, width, layers, heads, vocab, length, dropout):
        super().__init__()
        self.image = nn.Linear(channels, width)
        self.image_pos = nn.Embedding(positions, width)
        self.image_ln = nn.LayerNorm(width)
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(length, width)
        layer = nn.TransformerDecoderLayer(
            width, heads, 4 * width, dropout, activation=F.gelu, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerDecoder(layer, layers, norm=nn.LayerNorm(width))
        self.head = nn.Linear(width, vocab)
        self.drop = nn.Dropout(dropout)

    def encode(self, features, pooled):
        return self.image_ln(self.image(features) + self.image_pos.weight)

    def forward(self, encoded, tokens):
        time = tokens.shape[1]
        x = self.drop(self.tok(tokens) + self.pos.weight[:time])
        mask = nn.Transformer.generate_square_subsequent_mask(time, x.device, x.dtype)
        return self.head(self.blocks(x, encoded, tgt_mask=mask, tgt_is_causal=True))


class Captioner(nn.Module):
    """`image`: the shape of an image. forward() is for training: from images and the captions of each, [batch, captions,
    tokens], padded with -100, to the logits of each of their tokens."""

    def __init__(self, encoder, decoder, image, width, layers, heads, vocab, length, dropout=0.0):
        super().__init__()
        self.encoder = encoder_of(encoder, image[0], image[1])
        self.encoder.eval()
        with torch.no_grad():
            _, positions, channels = self.features(torch.zeros(1, *image)).shape
        self.encoder.train()
        if decoder == "lstm":
            self.decoder = LstmDecoder(channels, width, layers, vocab, dropout)
        else:
            self.decoder = TransformerDecoder(channels, positions, width, layers, heads, vocab, length, dropout)

    def features(self, images):
        if isinstance(self.encoder, Vit):
            return self.encoder.features(images)
        return self.encoder.feature_map(images).flatten(2).transpose(1, 2)

    def encode(self, images):
        features = self.features(images)
        return self.decoder.encode(features, features[:, 0] if isinstance(self.encoder, Vit) else features.mean(1))

    def forward(self, images, labels):
        words = labels.flatten(0, 1)[:, :-1]
        tokens = F.pad(words.masked_fill(words == -100, 1), (1, 0))  # 1: the end, 0: the start
        return self.decoder(self.encode(images).repeat_interleave(labels.shape[1], 0), tokens)


RENAMED = (  # in a layer of nn.TransformerDecoder
    ("decoder.blocks.layers.", "decoder.blocks."),
    ("decoder.blocks.norm.", "decoder.ln."),
    (".self_attn.in_proj_", ".qkv."),
    (".self_attn.out_proj.", ".proj."),
    (".multihead_attn.out_proj.", ".cross_proj."),
    (".norm1.", ".ln1."),
    (".norm2.", ".ln_cross."),
    (".norm3.", ".ln2."),
    (".linear1.", ".up."),
    (".linear2.", ".down."),
)


def our_tensors(tensors):
    """Pairs of names and tensors of the model, or of their gradients, with stoker's names; views of them where stoker has
    two tensors instead of one."""
    ours = {}
    for name, tensor in tensors:
        if name.startswith("decoder."):
            for theirs, new in RENAMED:
                name = name.replace(theirs, new)
        if ".multihead_attn.in_proj_" in name:
            width = len(tensor) // 3
            ours[name.replace(".multihead_attn.in_proj_", ".q.")] = tensor[:width]
            ours[name.replace(".multihead_attn.in_proj_", ".kv.")] = tensor[width:]
        else:
            ours[name] = tensor
    return ours
