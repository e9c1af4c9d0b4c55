"""Training cases of image models. image_cases.cc has the same in C++."""
import torch
import torch.nn as nn

from case import Case, classification_loss, constant, halved, make_image_batches
from models import Lenet, Residual, Resnet
from vision_models import Alexnet, Vgg, Vit


def layers():
    """Every kind of image layer, as in model.layers."""
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        Residual(
            [
                nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=2),
                nn.BatchNorm2d(12),
                nn.GELU(),
                nn.Conv2d(12, 12, 3, padding=1),
            ],
            [nn.AvgPool2d(2), nn.Conv2d(8, 12, 1)],
        ),
        Residual([nn.ReLU(), nn.BatchNorm2d(12)]),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(48, 16),
        nn.LayerNorm(16),
        nn.Tanh(),
        nn.Dropout(0.0),
        nn.Linear(16, 3, bias=False),
    )


CASES = [
    Case(
        name="lenet_adam_step",
        model=lambda: Lenet(1, 12, 7),
        batches=make_image_batches(5, (1, 12, 12), 7),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=2e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, fused=True),
        schedule=halved,
        clip_norm=1.0,
    ),
    Case(
        name="resnet8_sgd_constant",
        steps=3,
        data_seed=9,
        model=lambda: Resnet(8, 3, 4),
        batches=make_image_batches(8, (3, 16, 16), 4),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.05, fused=True),
        schedule=constant,
        clip_norm=0.25,
    ),
    Case(
        name="alexnet_sgd_momentum_constant",
        steps=3,
        data_seed=16,
        model=lambda: Alexnet(1, 4, width=24, dropout=0.0),
        batches=make_image_batches(4, (1, 63, 63), 4),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, fused=True),
        schedule=constant,
        clip_norm=1.0,
        num_stored=48,
    ),
    Case(
        name="vgg11_bn_sgd_constant",
        steps=1,  # a second one would amplify rounding twentyfold; parity_double_test.cc has more
        data_seed=11,
        model=lambda: Vgg(11, 1, 3, batch_norm=True, width=24, dropout=0.0),
        batches=make_image_batches(3, (1, 32, 32), 3),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.02, fused=True),
        schedule=constant,
        clip_norm=1.0,
        num_stored=48,
    ),
    Case(
        name="vit_sgd_momentum_constant",
        model=lambda: Vit(3, 16, 4, layers=2, heads=4, width=32, mlp_width=48, outputs=4),
        batches=make_image_batches(5, (3, 16, 16), 4),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, fused=True),
        schedule=constant,
        clip_norm=1.0,
        num_stored=48,
    ),
    Case(
        name="sequential_adam_constant",
        steps=3,
        model=layers,
        batches=make_image_batches(6, (2, 16, 16), 3),
        loss=classification_loss,
        optimizer=lambda p: torch.optim.Adam(p, lr=2e-3, betas=(0.9, 0.999), eps=1e-3, fused=True),
        schedule=constant,
        clip_norm=1.0,
        num_stored=48,
    ),
]
