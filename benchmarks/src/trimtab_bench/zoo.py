"""A training script with seven small architectures, for benches to profile and to time.

    python zoo.py MODEL DEVICE STEPS ANSWER.json BATCH:PRECISION...

It needs PyTorch alone. PRECISION is tf32 or bf16. Each case is trained for STEPS steps; ANSWER gets the
median seconds of a step and the peak of device memory, or None where memory was out.
"""

import json
import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class Residual(nn.Module):
    """Two 3×3 convolutions around a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norms[0](self.first(x)), inplace=True)
        return functional.relu(self.norms[1](self.second(y)) + self.shortcut(x), inplace=True)


class Separable(nn.Module):
    """A depthwise convolution between two pointwise ones."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
            nn.SiLU(inplace=True),
            nn.Conv2d(4 * width, 4 * width, 3, 1, 1, groups=4 * width, bias=False),
            nn.BatchNorm2d(4 * width),
            nn.SiLU(inplace=True),
            nn.Conv2d(4 * width, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.layers(x)
        return result


class ZooBlock(nn.Module):
    """A transformer block with fused attention, causal or not."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        result: Tensor = x + self.mlp(self.norms[1](x))
        return result


class Language(nn.Module):
    """Token embedding, a body, and a projection back to the vocabulary."""

    def __init__(self, vocabulary: int, width: int, body: nn.Module) -> None:
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(vocabulary, width), body, nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.body(self.embed(tokens))
        logits: Tensor = self.head(hidden[0] if isinstance(hidden, tuple) else hidden)
        return logits.flatten(0, 1)


def _images(body: list[nn.Module], width: int) -> nn.Module:
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


def build(name: str) -> tuple[nn.Module, tuple[int, ...], int]:
    """The model, the shape of one sample, and the vocabulary (0 for pictures and vectors)."""
    stem = [nn.Conv2d(3, 64, 7, 4, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    if name == "residual":
        sizes = [(64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
        return _images([*stem, *(Residual(*size) for size in sizes)], 512), (3, 224, 224), 0
    if name == "separable":
        return _images([*stem, *(Separable(64) for _ in range(8))], 64), (3, 224, 224), 0
    if name == "plain-conv":
        widths = [3, 64, 128, 256, 512]
        body: list[nn.Module] = []
        for inside, outside in pairwise(widths):
            body += [nn.Conv2d(inside, outside, 3, 1, 1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        return _images(body, 512), (3, 128, 128), 0
    if name == "wide-dense":
        layers = [m for _ in range(8) for m in (nn.Linear(2048, 2048), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(2048, 1000)), (2048,), 0
    if name == "encoder":
        return (
            Language(30_000, 384, nn.Sequential(*(ZooBlock(384, 6, False) for _ in range(6)))),
            (128,),
            30_000,
        )
    if name == "decoder":
        return (
            Language(16_000, 512, nn.Sequential(*(ZooBlock(512, 8, True) for _ in range(6)))),
            (256,),
            16_000,
        )
    if name == "recurrent":
        return Language(10_000, 512, nn.LSTM(512, 512, 2, batch_first=True)), (64,), 10_000
    raise SystemExit(f"no model is called {name}")


MODELS = ("residual", "separable", "plain-conv", "wide-dense", "encoder", "decoder", "recurrent")


def train(name: str, device: str, steps: int, batch: int, precision: str) -> dict[str, float]:
    """Seconds of a step (median of the later ones) and peak bytes on the device."""
    model, shape, vocabulary = build(name)
    model.to(device)
    size = (batch, *shape)
    inputs = torch.randint(0, vocabulary, size) if vocabulary else torch.randn(size)
    labels = torch.randint(0, vocabulary or 1000, (inputs.numel() if vocabulary else batch,))
    inputs, labels = inputs.to(device), labels.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            loss = functional.cross_entropy(model(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return {"seconds": statistics.median(seconds[len(seconds) // 3 :]), "peak": peak}


def main() -> None:
    name, device, steps, answer, *cases = sys.argv[1:]
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    results: list[dict[str, float] | None] = []
    for case in cases:
        batch, precision = case.split(":")
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            results.append(train(name, device, int(steps), int(batch), precision))
        except torch.OutOfMemoryError:
            results.append(None)
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main()
