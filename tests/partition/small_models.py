"""Small models to cut and run: a decoder with tied embeddings, a U-Net with batch norm, layers in a row."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS, LENGTH = 64, 8


class Block(nn.Module):
    """Attention and a feed-forward layer, with dropout both as layers and as functions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Samples × words × width, and so returned."""
        samples, length, width = x.shape
        parts = self.mix(self.norm(x)).split(width, dim=-1)
        query, key, value = (
            part.view(samples, length, self.heads, width // self.heads).transpose(1, 2) for part in parts
        )
        chance = 0.1 if self.training else 0.0
        result = functional.scaled_dot_product_attention(query, key, value, dropout_p=chance, is_causal=True)
        x = x + self.dropout(self.out(result.transpose(1, 2).reshape(samples, length, width)))
        return x + functional.dropout(self.down(functional.gelu(self.up(self.second_norm(x)))), chance)


class Decoder(nn.Module):
    """Words to words; the last layer's weights are those of the first."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList([Block(width, 2) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        """Scores of every next word."""
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Skips(nn.Module):
    """A U-Net of two levels: what goes in at the top is needed again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.bottom = _layer(1, 4), _layer(4, 8), _layer(8, 8)
        self.up, self.top, self.out = _layer(16, 4), _layer(8, 4), nn.Conv2d(4, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """A picture like the one given."""
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 2))
        result = functional.interpolate(self.bottom(functional.max_pool2d(second, 2)), scale_factor=2)
        result = self.up(torch.cat([result, second], 1))
        return self.out(self.top(torch.cat([functional.interpolate(result, scale_factor=2), first], 1)))


def _layer(inside: int, outside: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)
    )


class Pair(nn.Module):
    """Two inputs, one of them without samples, and outputs by name, one of which comes early."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor, scale: Tensor) -> dict[str, Tensor]:
        """What both layers find."""
        early = self.left(x * scale)
        return {"early": early, "late": self.right(torch.relu(early)) * scale}


class Undecided(nn.Module):
    """Cannot be traced: what it does depends on its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """One way or the other."""
        return self.layer(x) if float(x.sum()) > 0 else x


def decoder(layers: int = 2, width: int = 16) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The decoder, with two samples to look at it with."""
    return Decoder(layers, width), (torch.zeros(2, LENGTH, dtype=torch.long),)


def skips() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The U-Net."""
    return Skips(), (torch.zeros(2, 1, 8, 8),)


def rows(layers: int = 3) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Linear layers in a row."""
    steps = [step for _ in range(layers) for step in (nn.Linear(12, 12), nn.Tanh())]
    return nn.Sequential(*steps), (torch.zeros(2, 12),)


def pair() -> tuple[nn.Module, dict[str, Any]]:
    """Two layers with two inputs."""
    return Pair(), {"x": torch.zeros(2, 6), "scale": torch.ones(6)}


def undecided() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """What does not export."""
    return Undecided(), (torch.ones(2, 4),)


def undecided_rows(layers: int = 3) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Layers in a row that do not export."""
    steps = [step for _ in range(layers) for step in (Undecided(), nn.BatchNorm1d(4))]
    return nn.Sequential(*steps), (torch.ones(2, 4),)
