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
    EpisodeTable,
    Inputs,
    Scaling,
    departures,
    embed,
    hidden,
    prepared,
)
from trimtab.predict.fewshot.predictor import Rows

_FORGETFUL = 0.4  # part of the episodes with metrics taken away: users do not always have them
_KEPT = (0.0, 0.0, 0.5, 0.8)  # parts of the metrics that are left then
_FURTHEST = 4.0  # log seconds; larger departures are clipped

Without = Mapping[str, frozenset[str]]  # applications that are left out, by data set


@dataclass(frozen=True, slots=True, eq=False)
class Episodes:
    """Many episodes of one data set, with the measured times at the targets."""

    known: EpisodeTable
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
    episodes, departures = list[EpisodeTable](), list[Array]()
    for number in range(count):
        case, measured = usable[number % len(usable)]
        # One to three known rows, and `targets` of the others; where there are fewer, some come again.
        order = random.permutation(measured)
        runs = int(random.integers(1, min(MOST_RUNS, len(measured) - 1) + 1))
        known, rows = np.sort(order[:runs]), np.resize(order[runs:], targets)
        shown = case
        if random.random() < _FORGETFUL:
            kept = random.random(case.metrics.shape[1]) < random.choice(_KEPT)
            shown = replace(case, metrics=np.where(kept, case.metrics, np.nan))
        episodes.append(EpisodeTable.of(shown.known_at(known), known, rows))
        departures.append(np.log(case.seconds[rows]) - episodes[-1].anchor[0])
    clipped = np.clip(np.array(departures), -_FURTHEST, _FURTHEST)
    return Episodes(EpisodeTable.join(episodes), clipped)


def leaving_out(corpora: Sequence[Corpus], without: Without) -> list[Corpus]:
    """The data sets without these applications; one that has no others drops out."""
    rest = [
        (corpus.name, tuple(c for c in corpus.cases if c.application not in without.get(corpus.name, ())))
        for corpus in corpora
    ]
    return [Corpus(name, cases) for name, cases in rest if cases]


def known_sets(case: Case, runs: int, count: int, seed: int) -> Iterator[Rows]:
    """Random sets of so many known runs of a case, with one left to predict; deterministic by seed."""
    measured = np.flatnonzero(~np.isnan(case.seconds))
    random = np.random.default_rng([seed, runs, *case.label.encode()])
    for _ in range(count if len(measured) > runs else 0):
        yield np.sort(random.choice(measured, runs, replace=False))


def without_metrics(case: Case) -> Case:
    """The case with its times only."""
    return replace(case, metrics=np.full_like(case.metrics, np.nan))


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
    dropout: float = 0.1  # part of the numbers between two layers that are dropped
    shift: float = 1.0  # log seconds by which copies of an application take longer or shorter, deviation
    seed: int = 0


def train(
    corpora: Sequence[Corpus],
    settings: EncoderSettings,
    progress: Callable[[float], None] = lambda part: None,
) -> Encoder:
    """Train an encoder on these data sets; deterministic by seed. `progress` gets the part that is done."""
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            "training the encoder needs PyTorch; pip install 'trimtab[learn]'"
        ) from None
    torch.set_num_threads(1)
    pools = [draw(corpus, settings.episodes, settings.targets, settings.seed) for corpus in corpora]
    scaling = Scaling.of(scaling_rows(pools))
    ready = [prepared(pool.known, scaling) for pool in pools]
    names = Inputs.__slots__
    inputs = [Inputs(*(torch.from_numpy(getattr(arrays, name)) for name in names)) for arrays in ready]
    departed = [torch.tensor(pool.departure, dtype=torch.float32) for pool in pools]
    # How large departures from the anchor are in each data set.
    sizes = [max(float(values.abs().mean()), _SMALLEST) for values in departed]
    shift = settings.shift / float(scaling.deviation[-1])
    generator = torch.Generator().manual_seed(settings.seed)
    weights = _initial_weights(torch, generator)
    optimizer = torch.optim.AdamW(weights.values(), lr=settings.rate, weight_decay=settings.decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    levels = torch.tensor(LEVELS, dtype=torch.float32)

    def drop(values: Any) -> Any:
        mask = torch.rand(values.shape, generator=generator) >= settings.dropout
        return values * mask / (1.0 - settings.dropout)

    def batch() -> tuple[Inputs, Any, Any]:
        """Equally many episodes of every data set: inputs, true departures, and the scale of these."""
        chosen = [torch.randint(len(values), (settings.batch,), generator=generator) for values in departed]
        picked = list(zip(inputs, departed, sizes, chosen, strict=True))
        columns = ([getattr(part, name)[rows] for part, _, _, rows in picked] for name in names)
        together = Inputs(*(torch.cat(column) for column in columns))
        together.tokens[..., _TIME] += shift * torch.randn(len(together.tokens), 1, generator=generator)
        truth = torch.cat([values[rows] / size for _, values, size, rows in picked])
        scale = torch.cat([torch.full((settings.batch, 1, 1), size) for size in sizes])
        return together, truth[..., None], scale

    for step in range(settings.steps):
        episodes, truth, scale = batch()
        last = hidden(weights, episodes, *embed(weights, episodes, drop), drop)
        miss = truth - departures(weights, last) / scale
        loss = torch.maximum(levels * miss, (levels - 1) * miss).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % _REPORT == _REPORT - 1:
            progress((step + 1) / settings.steps)
    return Encoder({name: tensor.detach().numpy().copy() for name, tensor in weights.items()}, scaling)


def scaling_rows(pools: Sequence[Episodes]) -> Array:
    """Settings, metrics and log seconds of known runs, equally many from every data set."""
    fewest = min(len(pool) for pool in pools)
    rows = []
    for pool in pools:
        known = pool.known
        both = np.concatenate([known.runs, known.log_seconds[..., None]], axis=2)[:fewest]
        rows.append(both[known.is_run[:fewest] > 0])
    return np.concatenate(rows)


def _initial_weights(torch: Any, generator: Any) -> dict[str, Any]:
    """Small random weights; the first answer is the anchor with a narrow spread."""
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
