"""Convolutional models: a plain chain, residuals, branches, and skips from one end to the other."""

from itertools import pairwise

import torch
from torch import Tensor, nn

Built = tuple[nn.Module, tuple[Tensor, ...]]


def _example(samples: int, side: int) -> tuple[Tensor, ...]:
    return (torch.zeros(samples, 3, side, side),)


def vgg16(samples: int = 2) -> Built:
    """VGG-16 (Simonyan and Zisserman 2015): thirteen 3×3 convolutions, five pools, three wide layers."""
    layers: list[nn.Module] = []
    width = 3
    for outside, repeats in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(repeats):
            layers += [nn.Conv2d(width, outside, 3, padding=1), nn.ReLU(inplace=True)]
            width = outside
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    layers += [nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers), _example(samples, 224)


class ConvNorm(nn.Module):
    """A convolution without bias, batch normalisation and, if wanted, a rectifier."""

    def __init__(
        self,
        inside: int,
        outside: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
        rectified: bool = True,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, kernel, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(outside)
        self.rectifier = nn.ReLU(inplace=True) if rectified else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.rectifier(self.norm(self.conv(x)))
        return result


class Bottleneck(nn.Module):
    """The residual block of the deeper ResNets: 1×1, 3×3, 1×1 around a shortcut."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.reduce = ConvNorm(inside, width, 1)
        self.middle = ConvNorm(width, width, 3, stride, 1)
        self.expand = ConvNorm(width, outside, 1, rectified=False)
        straight = stride == 1 and inside == outside
        self.shortcut = nn.Identity() if straight else ConvNorm(inside, outside, 1, stride, rectified=False)
        self.rectifier = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.expand(self.middle(self.reduce(x)))
        y += self.shortcut(x)
        result: Tensor = self.rectifier(y)
        return result


def resnet101(samples: int = 2) -> Built:
    """ResNet-101 (He et al. 2016), with the stride in the 3×3 convolution as most implementations have it."""
    layers: list[nn.Module] = [ConvNorm(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for width, repeats, stride in ((64, 3, 1), (128, 4, 2), (256, 23, 2), (512, 3, 2)):
        for number in range(repeats):
            layers.append(Bottleneck(inside, width, stride if number == 0 else 1))
            inside = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*layers), _example(samples, 224)


class Branches(nn.Module):
    """Paths that read the same input and whose channels are put side by side."""

    def __init__(self, *paths: nn.Module) -> None:
        super().__init__()
        self.paths = nn.ModuleList(paths)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([path(x) for path in self.paths], dim=1)


def _path(inside: int, *steps: tuple[int, int, int]) -> nn.Sequential:
    """Convolutions one after the other: width, height and breadth of each kernel."""
    layers: list[nn.Module] = []
    for outside, high, wide in steps:
        layers.append(ConvNorm(inside, outside, (high, wide), 1, (high // 2, wide // 2)))
        inside = outside
    return nn.Sequential(*layers)


def _pooled(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), ConvNorm(inside, outside, 1))


def _shrinking(inside: int, *steps: tuple[int, int, int]) -> nn.Sequential:
    """A path whose last convolution, 3×3, halves the picture."""
    *before, (last, _, _) = steps
    width = before[-1][0] if before else inside
    return nn.Sequential(_path(inside, *before), ConvNorm(width, last, 3, 2))


def _square(inside: int, pooled: int) -> Branches:
    small = _path(inside, (48, 1, 1), (64, 5, 5))
    double = _path(inside, (64, 1, 1), (96, 3, 3), (96, 3, 3))
    return Branches(ConvNorm(inside, 64, 1), small, double, _pooled(inside, pooled))


def _factored(width: int) -> Branches:
    single = _path(768, (width, 1, 1), (width, 1, 7), (192, 7, 1))
    double = _path(768, (width, 1, 1), (width, 7, 1), (width, 1, 7), (width, 7, 1), (192, 1, 7))
    return Branches(ConvNorm(768, 192, 1), single, double, _pooled(768, 192))


def _forked(inside: int) -> Branches:
    fork = Branches(_path(384, (384, 1, 3)), _path(384, (384, 3, 1)))
    deeper = Branches(_path(384, (384, 1, 3)), _path(384, (384, 3, 1)))
    single = nn.Sequential(ConvNorm(inside, 384, 1), fork)
    double = nn.Sequential(_path(inside, (448, 1, 1), (384, 3, 3)), deeper)
    return Branches(ConvNorm(inside, 320, 1), single, double, _pooled(inside, 192))


def inception(samples: int = 2) -> Built:
    """Inception v3 (Szegedy et al. 2016) without its second head: eleven blocks of three or four branches."""
    stem = [ConvNorm(3, 32, 3, 2), ConvNorm(32, 32, 3), ConvNorm(32, 64, 3, 1, 1), nn.MaxPool2d(3, 2)]
    stem += [ConvNorm(64, 80, 1), ConvNorm(80, 192, 3), nn.MaxPool2d(3, 2)]
    halved = Branches(
        ConvNorm(288, 384, 3, 2),
        _shrinking(288, (64, 1, 1), (96, 3, 3), (96, 3, 3)),
        nn.MaxPool2d(3, 2),
    )
    quartered = Branches(
        _shrinking(768, (192, 1, 1), (320, 3, 3)),
        _shrinking(768, (192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3)),
        nn.MaxPool2d(3, 2),
    )
    body = [_square(192, 32), _square(256, 64), _square(288, 64), halved]
    body += [*(_factored(width) for width in (128, 160, 160, 192)), quartered, _forked(1280), _forked(2048)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(2048, 1000)]
    return nn.Sequential(*stem, *body, *head), _example(samples, 299)


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015), padded: each level of the way down is read again on the way up."""

    def __init__(self, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(_twice(inside, outside) for inside, outside in pairwise((3, *widths)))
        self.pool = nn.MaxPool2d(2)
        upward = [*pairwise(reversed(widths))]
        self.widen = nn.ModuleList(nn.ConvTranspose2d(low, high, 2, 2) for low, high in upward)
        self.up = nn.ModuleList(_twice(low, high) for low, high in upward)
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels: list[Tensor] = []
        for number, step in enumerate(self.down):
            x = step(self.pool(x) if number else x)
            levels.append(x)
        for widen, step, level in zip(self.widen, self.up, levels[-2::-1], strict=True):
            x = step(torch.cat([level, widen(x)], dim=1))
        result: Tensor = self.head(x)
        return result


def _twice(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(ConvNorm(inside, outside, 3, 1, 1), ConvNorm(outside, outside, 3, 1, 1))


def unet(samples: int = 2) -> Built:
    """Five levels from 64 to 1,024 channels, on pictures of 256 × 256."""
    return UNet((64, 128, 256, 512, 1024), 2), _example(samples, 256)
