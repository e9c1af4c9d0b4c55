"""The single-precision cases compared with PyTorch. parity_case.cc has the same cases in C++."""
from torch.nn import init

import image_cases
import sequence_cases
import update_cases
from case import initialized
from models import Blstm, Gpt, Lstm, Mlp, Resnet
from vision_models import Alexnet, InceptionV3, Vgg, Vit

CASES = [*image_cases.CASES, *sequence_cases.CASES, *update_cases.CASES]

# Every function but orthogonal_, whose last bits depend on the processor.
INIT = {
    "0.weight": lambda p: init.normal_(p, mean=0.5, std=0.1),
    "2.weight": lambda p: init.uniform_(p, a=-0.2, b=0.3),
    "4.weight": lambda p: init.trunc_normal_(p, mean=0.1, std=0.3, a=-0.2, b=0.5),
    "6.weight": lambda p: init.xavier_uniform_(p, gain=2),
    "8.weight": init.xavier_normal_,
    "10.weight": lambda p: init.kaiming_uniform_(p, a=0.1),
    "12.weight": lambda p: init.kaiming_normal_(p, mode="fan_out", nonlinearity="relu"),
    "14.weight": lambda p: init.kaiming_uniform_(p, mode="fan_out", nonlinearity="tanh"),
    "0.bias": init.ones_,
    "2.bias": lambda p: init.constant_(p, 0.1),
    "4.bias": init.normal_,
    "bias": init.zeros_,
}

# Only the bytes of the initial weights are compared.
INITIAL_ONLY = {
    "resnet18": lambda: Resnet(18, 3, 10),
    "resnet20": lambda: Resnet(20, 3, 10),
    "resnet50": lambda: Resnet(50, 1, 5),
    "resnet101": lambda: Resnet(101, 3, 5),
    "resnet152": lambda: Resnet(152, 3, 5),
    "alexnet": lambda: Alexnet(3, 10),
    "vgg11": lambda: Vgg(11, 3, 10),
    "vgg13_bn": lambda: Vgg(13, 3, 5, batch_norm=True, width=8),
    "vgg16": lambda: Vgg(16, 1, 5, width=8),
    "vgg19_bn": lambda: Vgg(19, 3, 5, batch_norm=True, width=8),
    "vit_b_32": lambda: Vit(3, 64, 32, layers=12, heads=12, width=768, mlp_width=3072, outputs=5),
    "inception_v3": lambda: InceptionV3(3, 5),
    "mlp_dropout": lambda: Mlp(12, [7, 5], 3, dropout=0.1),
    "mlp_init": lambda: initialized(Mlp(12, [20, 18, 16, 14, 12, 10, 8], 3), INIT),
    "gpt": lambda: Gpt(layers=3, width=24, heads=3, context=16, vocab=256),
    "blstm": lambda: Blstm(9, 16, 3, layers=2),
    "lstm": lambda: Lstm(layers=2, width=24, vocab=100),
}
