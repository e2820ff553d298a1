"""Episodic pretraining of the encoder over all data sets at once, as in FLASH (section 3), with PyTorch.

Every step takes as many episodes from each data set, so a large one does not drown a small one, and weighs
them by how far their targets lie from the anchor, so a noisy one does not drown a quiet one. The loss is the
pinball loss of the predicted quantiles.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.core import MissingDependencyError
from trimtab.predict.encoder.episodes import draw, scaling_rows
from trimtab.predict.encoder.inputs import RUN_WIDTH, Scaling
from trimtab.predict.encoder.network import (
    LEVELS,
    SHAPES,
    Encoder,
    Inputs,
    departures,
    embed,
    hidden,
    prepared,
)
from trimtab.predict.fewshot import Corpus

_TIME = 2 * RUN_WIDTH  # where in a token the log seconds stand


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """How long and how carefully the encoder learns."""

    episodes: int = 6000  # drawn from every data set beforehand
    targets: int = 6  # of each
    steps: int = 2000
    batch: int = 40  # episodes of every data set in one step
    rate: float = 2e-3
    decay: float = 0.3  # of the weights, per unit of rate
    dropout: float = 0.1  # part of the numbers between two layers that are taken away
    shift: float = 1.0  # log seconds; a copy of an application that takes as much longer or shorter
    seed: int = 0


def train(
    corpora: Sequence[Corpus],
    settings: EncoderSettings,
    progress: Callable[[float], None] = lambda part: None,
) -> Encoder:
    """An encoder that has seen all these data sets; the same for the same seed.

    `progress` is told which part is done, now and then.
    """
    torch = _torch()
    torch.set_num_threads(1)
    pools = [draw(corpus, settings.episodes, settings.targets, settings.seed) for corpus in corpora]
    scaling = Scaling.of(scaling_rows(pools))
    inputs = [_tensors(torch, prepared(pool.seen, scaling)) for pool in pools]
    labels = [torch.tensor(pool.departure, dtype=torch.float32) for pool in pools]
    sizes = [float(label.abs().mean()) for label in labels]
    generator = torch.Generator().manual_seed(settings.seed)
    weights = _start(torch, generator)
    optimizer = torch.optim.AdamW(weights.values(), lr=settings.rate, weight_decay=settings.decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    drop = _dropping(torch, generator, settings.dropout)
    levels = torch.tensor(LEVELS, dtype=torch.float32)
    for step in range(settings.steps):
        chosen = [torch.randint(len(each), (settings.batch,), generator=generator) for each in labels]
        batch = _picked(torch, inputs, chosen)
        batch.tokens[..., _TIME] += (
            settings.shift
            / float(scaling.deviation[-1])
            * (torch.randn(len(batch.tokens), 1, generator=generator))
        )
        truth = torch.cat([each[rows] / size for each, rows, size in zip(labels, chosen, sizes, strict=True)])
        scale = torch.cat([torch.full((settings.batch, 1, 1), size) for size in sizes])
        last = hidden(weights, batch, *embed(weights, batch, drop), drop)
        found = departures(weights, last) / scale
        miss = truth[..., None] - found
        loss = torch.maximum(levels * miss, (levels - 1) * miss).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            progress((step + 1) / settings.steps)
    return Encoder({name: each.detach().numpy().copy() for name, each in weights.items()}, scaling)


def _start(torch: Any, generator: Any) -> dict[str, Any]:
    """Small random weights; the first answer is the anchor, hardly spread."""
    weights = {}
    for name, shape in SHAPES.items():
        if len(shape) == 1:
            values = torch.zeros(shape)
        else:
            values = torch.randn(shape, generator=generator) * (2.0 / shape[0]) ** 0.5
        if name == "out":
            values = values * 0.05
        if name == "out.bias":
            values = values - 2.0 * (torch.arange(len(LEVELS)) != len(LEVELS) // 2)
        weights[name] = values.requires_grad_()
    return weights


def _dropping(torch: Any, generator: Any, part: float) -> Callable[[Any], Any]:
    """Takes a part of the numbers away, and makes up for them with the others."""

    def drop(values: Any) -> Any:
        kept = torch.rand(values.shape, generator=generator) >= part
        return values * kept / (1.0 - part)

    return drop


def _tensors(torch: Any, inputs: Inputs) -> Inputs:
    return Inputs(*(torch.from_numpy(getattr(inputs, name)) for name in Inputs.__slots__))


def _picked(torch: Any, inputs: Sequence[Inputs], chosen: Sequence[Any]) -> Inputs:
    """The chosen episodes of every data set together."""
    both = list(zip(inputs, chosen, strict=True))
    return Inputs(
        *(torch.cat([getattr(each, name)[rows] for each, rows in both]) for name in Inputs.__slots__)
    )


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            "training the encoder needs PyTorch; pip install 'trimtab[learn]'"
        ) from None
    return torch
