"""Episodic pretraining of the encoder over all data sets at once, as in FLASH (section 3), with PyTorch.

An episode is an application in an environment with some of its runs known and others to predict. Every step
takes as many episodes from each data set, so a large one does not drown a small one, and weights them by how
far their targets lie from the anchor, so a noisy one does not drown a quiet one. The loss is the pinball loss
of the predicted quantiles.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab.core import BadInputError, MissingDependencyError
from trimtab.predict.fewshot.case import Array, Case, Corpus
from trimtab.predict.fewshot.encoder import (
    LEVELS,
    MOST_RUNS,
    RUN_WIDTH,
    SHAPES,
    Encoder,
    Inputs,
    Scaling,
    Seen,
    departures,
    embed,
    hidden,
    prepared,
)
from trimtab.predict.fewshot.predictor import Rows

_FORGETFUL = 0.4  # part of the episodes with metrics taken away: users do not always have them
_KEPT = (0.0, 0.0, 0.5, 0.8)  # parts of the metrics that are left then
_FURTHEST = 4.0  # log seconds; a departure beyond that only disturbs


Without = Mapping[str, frozenset[str]]  # applications that have no part, by data set


@dataclass(frozen=True, slots=True, eq=False)
class Episodes:
    """Many episodes of one data set, with what was measured at the targets."""

    name: str
    seen: Seen
    departure: Array  # (episodes, targets), log seconds from the anchor

    def __len__(self) -> int:
        return len(self.departure)


def draw(corpus: Corpus, count: int, targets: int, seed: int) -> Episodes:
    """`count` episodes of a data set, its cases in turn."""
    measured_in = [(case, np.flatnonzero(~np.isnan(case.seconds))) for case in corpus.cases]
    usable = [(case, rows) for case, rows in measured_in if len(rows) > 1]
    if not usable:
        raise BadInputError(f"{corpus.name} has no application with two runs to learn from")
    random = np.random.default_rng([seed, *corpus.name.encode()])
    seen, departures = list[Seen](), list[Array]()
    for number in range(count):
        case, measured = usable[number % len(usable)]
        known, wanted = _split(measured, targets, random)
        shown = _forgotten(case, random) if random.random() < _FORGETFUL else case
        seen.append(Seen.of(shown.seen_at(known), known, wanted))
        departures.append(np.log(case.seconds[wanted]) - seen[-1].anchor[0])
    return Episodes(corpus.name, Seen.join(seen), np.clip(np.array(departures), -_FURTHEST, _FURTHEST))


def leaving_out(corpora: Sequence[Corpus], without: Without) -> list[Corpus]:
    """The data sets without these applications; one that has no others drops out."""
    left = [
        (corpus.name, tuple(c for c in corpus.cases if c.application not in without.get(corpus.name, ())))
        for corpus in corpora
    ]
    return [Corpus(name, cases) for name, cases in left if cases]


def known_sets(case: Case, runs: int, count: int, seed: int) -> Iterator[Rows]:
    """Sets of so many known runs of a case, with one left to predict; the same for the same seed."""
    measured = np.flatnonzero(~np.isnan(case.seconds))
    random = np.random.default_rng([seed, runs, *case.label.encode()])
    for _ in range(count if len(measured) > runs else 0):
        yield np.sort(random.choice(measured, runs, replace=False))


def without_metrics(case: Case) -> Case:
    """The case as someone knows it who only took the time."""
    return replace(case, metrics=np.full_like(case.metrics, np.nan))


def _split(measured: Rows, targets: int, random: np.random.Generator) -> tuple[Rows, Rows]:
    """One to three known rows, and `targets` of the others; where there are fewer, some come again."""
    order = random.permutation(measured)
    runs = int(random.integers(1, min(MOST_RUNS, len(measured) - 1) + 1))
    return np.sort(order[:runs]), np.resize(order[runs:], targets)


def _forgotten(case: Case, random: np.random.Generator) -> Case:
    kept = random.random(case.metrics.shape[1]) < random.choice(_KEPT)
    return replace(case, metrics=np.where(kept, case.metrics, np.nan))


def scaling_rows(parts: Sequence[Episodes]) -> Array:
    """Settings, metrics and log seconds of known runs, as many from every data set."""
    fewest = min(len(part) for part in parts)
    rows = []
    for part in parts:
        seen = part.seen
        both = np.concatenate([seen.runs, seen.log_seconds[..., None]], axis=2)[:fewest]
        rows.append(both[seen.is_run[:fewest] > 0])
    return np.concatenate(rows)


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

    `progress` is called now and then with the part that is done.
    """
    torch = _load_torch()
    torch.set_num_threads(1)
    pools = [draw(corpus, settings.episodes, settings.targets, settings.seed) for corpus in corpora]
    scaling = Scaling.of(scaling_rows(pools))
    lessons = _Batches.of(torch, pools, scaling, settings)
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
class _Batches:
    """The episodes of every data set as tensors, and how large departures from the anchor are in each."""

    inputs: list[Inputs]
    departures: list[Any]
    sizes: list[float]
    count: int  # of episodes of every data set in a batch
    shift: float  # in deviations of the log seconds

    @classmethod
    def of(
        cls, torch: Any, pools: Sequence[Episodes], scaling: Scaling, settings: EncoderSettings
    ) -> "_Batches":
        departures = [torch.tensor(pool.departure, dtype=torch.float32) for pool in pools]
        return cls(
            [_tensors(torch, prepared(pool.seen, scaling)) for pool in pools],
            departures,
            [max(float(each.abs().mean()), _SMALLEST) for each in departures],
            settings.batch,
            settings.shift / float(scaling.deviation[-1]),
        )

    def batch(self, torch: Any, generator: Any) -> tuple[Inputs, Any, Any]:
        """Equally many episodes of every data set: inputs, true departures, and the scale of these."""
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


def _load_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            "training the encoder needs PyTorch; pip install 'trimtab[learn]'"
        ) from None
    return torch
