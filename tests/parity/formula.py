"""Numbers that stoker and its PyTorch counterpart both compute, so that they need not be stored in
a file. formula.cc has the same; formula.h explains them."""
import math

import torch

MASK = 2**31 - 1
BLOCK = 2**15  # numbers that fit into the cache


def noise(first, count):
    values = torch.empty(count, dtype=torch.double)
    for begin in range(0, count, BLOCK):
        block = values[begin : begin + BLOCK]
        bits = (torch.arange(len(block)) + first + begin) & MASK
        for _ in range(2):
            bits = bits.bitwise_xor_(bits >> 16).mul_(0x45D9F3B).bitwise_and_(MASK)
        block.copy_(bits.bitwise_xor_(bits >> 16)).div_(2**30).sub_(1)
    return values


def name_hash(name):
    """FNV-1a."""
    hash_value = 2166136261
    for byte in name.encode():
        hash_value = (hash_value ^ byte) * 16777619 % 2**32
    return hash_value


@torch.no_grad()
def set_weights(model):
    set_tensors(model.named_parameters())


@torch.no_grad()
def set_tensors(named):
    for name, weight in named:
        values = noise(name_hash(name), weight.numel()).view_as(weight)
        if weight.dim() > 1:
            weight.copy_(values * math.sqrt(6 / (weight.numel() / len(weight))))
        else:
            weight.copy_(values * 0.1 + (0 if name.endswith(("bias", "mean")) else 1))


def stored_values(tensor):
    flat = tensor.detach().flatten().double()
    return torch.stack([flat.norm(), flat.dot(noise(0, flat.numel()))])
