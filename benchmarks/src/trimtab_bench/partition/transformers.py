"""Transformers: decoders with tied embeddings, an encoder, and a mixture of experts."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Built = tuple[nn.Module, tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Shape:
    """Layers, their width, attention heads, tokens of a sample, and words that there are."""

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


class Block(nn.Module):
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


class Decoder(nn.Module):
    """GPT-2 and GPT-3: the head reads the same weights as the embedding of words."""

    def __init__(self, shape: Shape, experts: int = 0) -> None:
        super().__init__()
        width = shape.width
        self.words = nn.Embedding(shape.vocabulary, width)
        self.positions = nn.Embedding(shape.length, width)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(
            Block(width, shape.heads, True, Experts(width, experts, 2) if experts else Feed(width), True)
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


class Encoder(nn.Module):
    """BERT with its pooled answer and its head for hidden words, which shares the embedding's weights."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.words = nn.Embedding(shape.vocabulary, width)
        self.positions, self.segments = nn.Embedding(shape.length, width), nn.Embedding(2, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(
            Block(width, shape.heads, False, Feed(width), False) for _ in range(shape.layers)
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


def _tokens(shape: Shape, samples: int) -> Tensor:
    return torch.zeros(samples, shape.length, dtype=torch.long)


def gpt(shape: Shape, samples: int = 2) -> Built:
    """A decoder of that shape."""
    return Decoder(shape), (_tokens(shape, samples),)


def bert(shape: Shape, samples: int = 2) -> Built:
    """An encoder of that shape; it reads words and which of two texts each belongs to."""
    return Encoder(shape), (_tokens(shape, samples), _tokens(shape, samples))


def mixture(shape: Shape, experts: int = 8, samples: int = 2) -> Built:
    """A decoder whose feed-forward parts are `experts`, of which each token takes two."""
    return Decoder(shape, experts), (_tokens(shape, samples),)
