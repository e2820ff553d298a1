"""Models of any size for runs: the same modules, fewer and narrower unless told otherwise."""

import torch
from torch import nn

from trimtab_bench.partition.pictures import Built, UNet
from trimtab_bench.partition.transformers import Shape, bert, gpt


def chain(layers: int = 12, width: int = 1024, samples: int = 2) -> Built:
    """Equal products and rectifiers, one after the other."""
    steps = [module for _ in range(layers) for module in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*steps), (torch.zeros(samples, width),)


def decoder(
    layers: int = 6, width: int = 256, length: int = 128, words: int = 2000, samples: int = 2
) -> Built:
    """A decoder with tied embeddings."""
    return gpt(Shape(layers, width, width // 64, length, words), samples)


def encoder(
    layers: int = 6, width: int = 256, length: int = 128, words: int = 2000, samples: int = 2
) -> Built:
    """An encoder with two inputs and two outputs."""
    return bert(Shape(layers, width, width // 64, length, words), samples)


def skips(side: int = 64, samples: int = 2) -> Built:
    """A U-Net of four levels."""
    return UNet((16, 32, 64, 128), 2), (torch.zeros(samples, 3, side, side),)


def convolutions(side: int = 64, samples: int = 2) -> Built:
    """Convolutions and pools in a chain, and a head."""
    layers: list[nn.Module] = []
    inside = 3
    for width in (32, 64, 128, 256):
        layers += [nn.Conv2d(inside, width, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inside = width
    layers += [nn.Flatten(), nn.Linear(256 * (side // 16) ** 2, 10)]
    return nn.Sequential(*layers), (torch.zeros(samples, 3, side, side),)
