"""Models that the bench splits: published architectures layer by layer, and small ones of any size to run.

A builder returns the module and its example inputs, on the default device: under `torch.device("meta")` even
the largest needs no memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

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
        ConvNorm(288, 384, 3, 2), _shrinking(288, (64, 1, 1), (96, 3, 3), (96, 3, 3)), nn.MaxPool2d(3, 2)
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


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """Layers, their width, attention heads, tokens of a sample, and words of the vocabulary."""

    layers: int
    width: int
    heads: int
    length: int
    vocabulary: int


class Attention(nn.Module):
    """Self-attention with one product for queries, keys and values."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        parts = self.qkv(x).view(samples, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(samples, length, width))
        return result


class Feed(nn.Module):
    """Four times wider and back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.narrow(functional.gelu(self.widen(x)))
        return result


class Experts(nn.Module):
    """A mixture of experts: each token's two best of them, all computed at once (dense dispatch)."""

    def __init__(self, width: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Feed(width) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.gate(x)
        best, which = scores.topk(self.chosen, dim=-1)
        share = torch.zeros_like(scores).scatter(-1, which, best.softmax(dim=-1))
        return torch.stack([share[..., n, None] * e(x) for n, e in enumerate(self.experts)]).sum(dim=0)


class TransformerBlock(nn.Module):
    """Attention and a feed-forward part, each around a shortcut; normalised before, or after as in BERT."""

    def __init__(self, width: int, heads: int, causal: bool, feed: nn.Module, normed_first: bool) -> None:
        super().__init__()
        self.normed_first = normed_first
        self.attention, self.feed = Attention(width, heads, causal), feed
        self.norm_attention, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        if self.normed_first:
            x = x + self.dropout(self.attention(self.norm_attention(x)))
            result: Tensor = x + self.dropout(self.feed(self.norm_feed(x)))
        else:
            x = self.norm_attention(x + self.dropout(self.attention(x)))
            result = self.norm_feed(x + self.dropout(self.feed(x)))
        return result


class GptDecoder(nn.Module):
    """GPT-2 and GPT-3: the head reads the same weights as the embedding of words."""

    def __init__(self, shape: TransformerShape, experts: int = 0) -> None:
        super().__init__()
        width = shape.width
        self.words = nn.Embedding(shape.vocabulary, width)
        self.positions = nn.Embedding(shape.length, width)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(
            TransformerBlock(
                width, shape.heads, True, Experts(width, experts, 2) if experts else Feed(width), True
            )
            for _ in range(shape.layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, shape.vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.words(tokens) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class BertEncoder(nn.Module):
    """BERT with its pooled answer and its head for hidden words, which shares the embedding's weights."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        width = shape.width
        self.words = nn.Embedding(shape.vocabulary, width)
        self.positions, self.segments = nn.Embedding(shape.length, width), nn.Embedding(2, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, shape.heads, False, Feed(width), False) for _ in range(shape.layers)
        )
        self.pooler = nn.Linear(width, width)
        self.change, self.change_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.head = nn.Linear(width, shape.vocabulary)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.positions(places) + self.segments(segments)
        x = self.dropout(self.norm(x))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.change_norm(functional.gelu(self.change(x))))
        return logits, torch.tanh(self.pooler(x[:, 0]))


def gpt(shape: TransformerShape, samples: int = 2, experts: int = 0) -> Built:
    """A decoder of that shape; with `experts`, each token takes two of them as its feed-forward part."""
    return GptDecoder(shape, experts), (torch.zeros(samples, shape.length, dtype=torch.long),)


def bert(shape: TransformerShape, samples: int = 2) -> Built:
    """An encoder of that shape; it reads words and which of two texts each belongs to."""
    words, segments = (torch.zeros(samples, shape.length, dtype=torch.long) for _ in range(2))
    return BertEncoder(shape), (words, segments)


MODELS: dict[str, Callable[[], Built]] = {
    "vgg16": vgg16,
    "resnet101": resnet101,
    "inception": inception,
    "unet": unet,
    "gpt2_small": partial(gpt, TransformerShape(12, 768, 12, 1024, 50257)),
    "gpt2_medium": partial(gpt, TransformerShape(24, 1024, 16, 1024, 50257)),
    "gpt2_large": partial(gpt, TransformerShape(36, 1280, 20, 1024, 50257)),
    "gpt2_xl": partial(gpt, TransformerShape(48, 1600, 25, 1024, 50257)),
    "bert_large": partial(bert, TransformerShape(24, 1024, 16, 512, 30522)),
    "moe": partial(gpt, TransformerShape(8, 1024, 16, 1024, 50257), experts=8),
    "gpt3_175b": partial(gpt, TransformerShape(96, 12288, 96, 2048, 50257)),
    "trillion": partial(gpt, TransformerShape(128, 25600, 160, 2048, 51200)),
}
"""Every model by name; `MODELS[name]()` builds it."""


def chain(layers: int = 12, width: int = 1024, samples: int = 2) -> Built:
    """Equal products and rectifiers, one after the other."""
    steps = [module for _ in range(layers) for module in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*steps), (torch.zeros(samples, width),)


def decoder(
    layers: int = 6, width: int = 256, length: int = 128, words: int = 2000, samples: int = 2
) -> Built:
    """A decoder with tied embeddings."""
    return gpt(TransformerShape(layers, width, width // 64, length, words), samples)


def encoder(
    layers: int = 6, width: int = 256, length: int = 128, words: int = 2000, samples: int = 2
) -> Built:
    """An encoder with two inputs and two outputs."""
    return bert(TransformerShape(layers, width, width // 64, length, words), samples)


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
