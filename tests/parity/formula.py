"""Numbers that stoker and its PyTorch counterpart both compute, so that they need not be stored in
a file. formula.cc has the same; formula.h explains them."""
import math

import torch

MASK = 2**31 - 1


def noise(first, count):
    bits = (torch.arange(count) + first) & MASK
    bits = ((bits ^ (bits >> 16)) * 0x45D9F3B) & MASK
    bits = ((bits ^ (bits >> 16)) * 0x45D9F3B) & MASK
    return (bits ^ (bits >> 16)).double() / 2**30 - 1


def name_hash(name):
    """FNV-1a."""
    hash_value = 2166136261
    for byte in name.encode():
        hash_value = (hash_value ^ byte) * 16777619 % 2**32
    return hash_value


@torch.no_grad()
def set_weights(model):
    for name, weight in model.named_parameters():
        values = noise(name_hash(name), weight.numel()).view_as(weight)
        if weight.dim() > 1:
            weight.copy_(values * math.sqrt(6 / (weight.numel() / len(weight))))
        else:
            weight.copy_(values * 0.1 + (0 if name.endswith("bias") else 1))


def stored_values(tensor):
    flat = tensor.detach().flatten().double()
    return torch.stack([flat.norm(), flat.dot(noise(0, flat.numel()))])
