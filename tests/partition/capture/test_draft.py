"""What several devices can share of a product, and what they add up."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="capturing a model needs PyTorch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from trimtab_bench.partition.models import GptDecoder, TransformerShape  # noqa: E402

from trimtab.partition import Graph, capture_model  # noqa: E402

WIDTH, LENGTH = 64, 32
STREAM = 4.0 * LENGTH * WIDTH
"""Bytes of what passes from block to block, per sample."""


def by_name(graph: Graph, name: str) -> tuple[float, float, float]:
    node = graph.names.index(name)
    return graph.split[node], graph.reduced_forward[node], graph.reduced_backward[node]


def test_a_block_is_divided_as_in_megatron() -> None:
    model = GptDecoder(TransformerShape(layers=1, width=WIDTH, heads=4, length=LENGTH, vocabulary=100))
    graph = capture_model(model, torch.zeros(2, LENGTH, dtype=torch.long), "decoder").graph
    block = "blocks.0"
    assert by_name(graph, f"{block}.attention.qkv.linear") == (1, 0, STREAM)
    assert by_name(graph, f"{block}.attention.scaled_dot_product_attention") == (1, 0, 0)
    assert by_name(graph, f"{block}.attention.out.linear") == (1, STREAM, 0)
    assert by_name(graph, f"{block}.feed.widen.linear") == (1, 0, STREAM)
    assert by_name(graph, f"{block}.feed.gelu") == (1, 0, 0)
    assert by_name(graph, f"{block}.feed.narrow.linear") == (1, STREAM, 0)
    assert by_name(graph, f"{block}.norm_feed.layer_norm") == (0, 0, 0)
    assert by_name(graph, "words.embedding") == (1, STREAM, 0)


def test_queries_keys_and_values_share_one_sum() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

        def forward(self, x: Any) -> Any:
            parts = (
                layer(x).unflatten(-1, (4, -1)).transpose(1, 2)
                for layer in (self.query, self.key, self.value)
            )
            mixed = functional.scaled_dot_product_attention(*parts)
            return self.out(mixed.transpose(1, 2).flatten(2))

    graph = capture_model(Attention(), torch.randn(2, LENGTH, WIDTH), "attention").graph
    for name in ("query", "key", "value"):
        assert by_name(graph, f"{name}.linear") == pytest.approx((1, 0, STREAM / 3))
    assert by_name(graph, "out.linear") == (1, STREAM, 0)


def test_convolutions_stay_whole() -> None:
    graph = capture_model(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), torch.randn(2, 3, 8, 8), "conv").graph
    assert not graph.split.any()
    assert not graph.reduced_forward.any()
    assert not graph.reduced_backward.any()
