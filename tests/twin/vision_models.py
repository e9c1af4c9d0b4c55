"""PyTorch twins of stoker's models that are torchvision's: written anew, so that the golden files need no torchvision.
check_torchvision.py compares them, and stoker, with torchvision itself."""
import torch.nn as nn


def classifier(inputs, width, outputs, dropout, dropout_first):
    """Three fully connected layers; where dropout stands is all that differs between AlexNet and VGG."""
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
