"""Episodic pretraining of the encoder over all data sets at once, as in FLASH (section 3), with PyTorch.

Every step takes as many episodes from each data set, so a large one does not drown a small one, and weighs
them by how far their targets lie from the anchor, so a noisy one does not drown a quiet one. The loss is the
pinball loss of the predicted quantiles.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.core import MissingDependencyError
from trimtab.predict.fewshot import Corpus
from trimtab.predict.fewshot.encoder.episodes import Episodes, draw, scaling_rows
from trimtab.predict.fewshot.encoder.inputs import RUN_WIDTH, Scaling
from trimtab.predict.fewshot.encoder.network import (
    LEVELS,
    SHAPES,
    Encoder,
    Inputs,
    departures,
    embed,
    hidden,
    prepared,
)

_REPORT = 50  # steps between two reports of progress
_SMALLEST = 1e-6  # log seconds
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
    lessons = _Lessons.of(torch, pools, scaling, settings)
    generator = torch.Generator().manual_seed(settings.seed)
    weights = _start(torch, generator)
    optimizer = torch.optim.AdamW(weights.values(), lr=settings.rate, weight_decay=settings.decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    drop = _dropping(torch, generator, settings.dropout)
    levels = torch.tensor(LEVELS, dtype=torch.float32)
    for step in range(settings.steps):
        batch, truth, scale = lessons.batch(torch, generator)
        last = hidden(weights, batch, *embed(weights, batch, drop), drop)
        miss = truth - departures(weights, last) / scale
        loss = torch.maximum(levels * miss, (levels - 1) * miss).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % _REPORT == _REPORT - 1:
            progress((step + 1) / settings.steps)
    return Encoder({name: each.detach().numpy().copy() for name, each in weights.items()}, scaling)


@dataclass(frozen=True, slots=True, eq=False)
class _Lessons:
    """The episodes of every data set as tensors, and how large departures from the anchor are in each."""

    inputs: list[Inputs]
    departures: list[Any]
    sizes: list[float]
    count: int  # of episodes of every data set in a batch
    shift: float  # in deviations of the log seconds

    @classmethod
    def of(
        cls, torch: Any, pools: Sequence[Episodes], scaling: Scaling, settings: EncoderSettings
    ) -> "_Lessons":
        departures = [torch.tensor(pool.departure, dtype=torch.float32) for pool in pools]
        return cls(
            [_tensors(torch, prepared(pool.seen, scaling)) for pool in pools],
            departures,
            [max(float(each.abs().mean()), _SMALLEST) for each in departures],
            settings.batch,
            settings.shift / float(scaling.deviation[-1]),
        )

    def batch(self, torch: Any, generator: Any) -> tuple[Inputs, Any, Any]:
        """As many episodes of every data set: what is seen, what is true, and on which scale that is."""
        chosen = [torch.randint(len(each), (self.count,), generator=generator) for each in self.departures]
        picked = list(zip(self.inputs, self.departures, self.sizes, chosen, strict=True))
        seen = Inputs(
            *(
                torch.cat([getattr(each, name)[rows] for each, _, _, rows in picked])
                for name in Inputs.__slots__
            )
        )
        seen.tokens[..., _TIME] += self.shift * torch.randn(len(seen.tokens), 1, generator=generator)
        truth = torch.cat([each[rows] / size for _, each, size, rows in picked])
        scale = torch.cat([torch.full((self.count, 1, 1), size) for size in self.sizes])
        return seen, truth[..., None], scale


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


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            "training the encoder needs PyTorch; pip install 'trimtab[learn]'"
        ) from None
    return torch
