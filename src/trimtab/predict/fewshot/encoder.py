"""The encoder: known runs become 32 numbers, from which every target's departure from a rule is predicted.

Every known run is a token and every target a row of settings; unknown values are zero with a flag, times are
logarithms. One forward pass serves training (PyTorch tensors) and use (NumPy arrays): it is written in what
both offer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.backtest import random_folds
from trimtab.predict.fewshot.case import METRICS, SETTINGS, Array, Case, Corpus
from trimtab.predict.fewshot.predictor import (
    Arrays,
    PredictiveSample,
    Rows,
    Words,
    column_means,
    coordinates,
    known_log_seconds,
)
from trimtab.predict.fewshot.rules import NearestKnown, Stretch, cpu_share
from trimtab.predict.tables import join_rows

MOST_RUNS = 3  # known runs of one application that are looked at
_FAR = 10.0  # standard deviations; values further out are clipped

Single = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """Means and deviations that bring settings, metrics and log seconds to one scale."""

    mean: Single
    deviation: Single

    @classmethod
    def of(cls, rows: Array) -> "Scaling":
        """Fit to rows of numbers, NaN where unknown; constant or unknown columns stay as they are."""
        mean = np.nan_to_num(column_means(rows))
        deviation = np.sqrt(np.nan_to_num(column_means((rows - mean) ** 2)))
        usable = deviation > 1e-6
        return cls(
            np.where(usable, mean, 0.0).astype(np.float32),
            np.where(usable, deviation, 1.0).astype(np.float32),
        )

    def __call__(self, rows: Array) -> Single:
        """Standardised, NaN kept."""
        return np.clip((rows - self.mean) / self.deviation, -_FAR, _FAR).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeTable:
    """Known runs and targets of many episodes, padded to the same number; NaN where unknown."""

    runs: Array  # (episodes, MOST_RUNS, settings + metrics)
    log_seconds: Array  # (episodes, MOST_RUNS)
    is_run: Array  # 1 where there is one
    targets: Array  # (episodes, targets, settings)
    anchor: Array  # (episodes, targets), log seconds

    @classmethod
    def of(cls, case: Case, known: Rows, rows: Rows | None = None) -> "EpisodeTable":
        """One episode; its targets are `rows` of the case, or all. Of many known runs some are left out."""
        chosen = spread_out(case, known)
        log_seconds = known_log_seconds(case, chosen)
        settings = coordinates(case.settings)
        shown = np.concatenate([settings, np.log1p(np.maximum(case.metrics, 0.0))], axis=1)[chosen]
        lacking = MOST_RUNS - len(chosen)
        targets = slice(None) if rows is None else rows
        return cls(
            np.pad(shown, ((0, lacking), (0, 0)), constant_values=np.nan)[None],
            np.pad(log_seconds, (0, lacking))[None],
            (np.arange(MOST_RUNS) < len(chosen)).astype(float)[None],
            settings[targets][None],
            anchor(case, known)[targets][None],
        )

    @classmethod
    def join(cls, parts: Sequence["EpisodeTable"]) -> "EpisodeTable":
        return join_rows(*parts)


def spread_out(case: Case, known: Rows) -> Rows:
    """At most `MOST_RUNS` of the known rows, spread evenly over the sorted times."""
    known_log_seconds(case, known)
    if len(known) <= MOST_RUNS:
        return np.asarray(known)
    order = np.asarray(known)[np.argsort(case.seconds[known], kind="stable")]
    return np.asarray(order[np.linspace(0, len(order) - 1, MOST_RUNS).round().astype(np.intp)])


def anchor(case: Case, known: Rows) -> Array:
    """Log seconds of the rule to depart from: CPU share where that differs, else the nearest run."""
    share = cpu_share(case)
    rule = NearestKnown() if np.isnan(share).any() or np.ptp(share) == 0 else Stretch()
    return np.log(rule.predict(case, known))


RUN_WIDTH = len(SETTINGS) + len(METRICS)
EMBEDDING = 32
_WIDTH = 64
_MIDDLE = 4
LEVELS = (np.arange(2 * _MIDDLE + 1) + 0.5) / (2 * _MIDDLE + 1)  # the quantiles that are predicted
_STEEPEST = 3.0  # log of the widest gap between two of them
_SOFTEST = 15.0  # a score's logarithm stays within, so that nothing overflows
CAUTION = 1.0  # power of 1/y in the point estimate

_TOKEN = 2 * RUN_WIDTH + 2
_TARGET = 2 * len(SETTINGS) + 2

# Name of every weight to its shape.
SHAPES: Mapping[str, tuple[int, ...]] = {
    "token.1": (_TOKEN, _WIDTH),
    "token.1.bias": (_WIDTH,),
    "token.2": (_WIDTH, _WIDTH),
    "token.2.bias": (_WIDTH,),
    "set.mean": (_WIDTH, _WIDTH),
    "set.apart": (_WIDTH, _WIDTH),
    "set.bias": (_WIDTH,),
    "embedding": (_WIDTH, EMBEDDING),
    "embedding.bias": (EMBEDDING,),
    "pair.run": (_WIDTH, _WIDTH),
    "pair.step": (2 * len(SETTINGS), _WIDTH),
    "pair.gap": (1, _WIDTH),
    "pair.target": (_TARGET, _WIDTH),
    "pair.bias": (_WIDTH,),
    "pair.score": (_WIDTH, 1),
    "head.context": (_WIDTH, _WIDTH),
    "head.embedding": (EMBEDDING, _WIDTH),
    "head.target": (_TARGET, _WIDTH),
    "head.1.bias": (_WIDTH,),
    "head.2": (_WIDTH, _WIDTH),
    "head.2.bias": (_WIDTH,),
    "out": (_WIDTH, len(LEVELS)),
    "out.bias": (len(LEVELS),),
}

Tensor = Any  # a NumPy array or a PyTorch tensor
Weights = Mapping[str, Tensor]
Drop = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Inputs of the network, standardised."""

    tokens: Tensor  # (episodes, runs, token)
    is_run: Tensor  # (episodes, runs)
    targets: Tensor  # (episodes, targets, target)
    steps: Tensor  # (episodes, targets, runs, settings twice): from run to target, and its size
    gaps: Tensor  # (episodes, targets, runs, 1): the run's log seconds over the anchor


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """Trained weights, and the scaling they were trained under."""

    weights: Mapping[str, Single]
    scaling: Scaling
    kind: ClassVar[str] = "encoder"  # in a file of weights

    def embedding(self, case: Case, known: Rows) -> Single:
        return np.asarray(self.embeddings(EpisodeTable.of(case, known, np.array([0])))[0])

    def embeddings(self, episodes: EpisodeTable) -> Single:
        return np.asarray(embed(self.weights, prepared(episodes, self.scaling))[0])

    def predict(self, case: Case, known: Rows) -> Array:
        return np.exp(self.spread(case, known).point(CAUTION))

    def spread(self, case: Case, known: Rows) -> PredictiveSample:
        """Equally likely log seconds under every configuration."""
        episode = EpisodeTable.of(case, known)
        samples = episode.anchor[0][:, None] + self.departures(episode)[0]
        return PredictiveSample.of(samples, np.ones_like(samples))

    def refit(self, cases: Sequence[Case]) -> "Encoder":
        """The encoder itself: it has learned from far more than the cases of one user."""
        return self

    def to_weights(self) -> tuple[Arrays, Words]:
        """Nothing: a file of weights holds the encoder once, for all data sets."""
        return {}, {}

    def departures(self, episodes: EpisodeTable) -> Array:
        """(episodes, targets, levels): log seconds by which a target departs from its anchor."""
        return np.asarray(departures(self.weights, self.hidden(episodes)), dtype=np.float64)

    def hidden(self, episodes: EpisodeTable) -> Single:
        """The head's last layer, of which departures are a linear function."""
        inputs = prepared(episodes, self.scaling)
        return np.asarray(hidden(self.weights, inputs, *embed(self.weights, inputs)))


def prepared(episodes: EpisodeTable, scaling: Scaling) -> Inputs:
    """The network's inputs: standardised, with a flag for each unknown value."""
    settings, is_run, log_seconds = len(SETTINGS), episodes.is_run, episodes.log_seconds
    count = np.maximum(is_run.sum(axis=1, keepdims=True), 1.0)
    level = (log_seconds * is_run).sum(axis=1, keepdims=True) / count
    runs = scaling(np.concatenate([episodes.runs, log_seconds[..., None]], axis=2))
    relative = (log_seconds - level)[..., None]
    tokens = np.concatenate([_flagged(runs[..., :-1]), runs[..., -1:], relative], axis=2)
    places = Scaling(scaling.mean[:settings], scaling.deviation[:settings])(episodes.targets)
    above = (episodes.anchor - level)[..., None]
    many = np.broadcast_to((count / MOST_RUNS)[:, None], above.shape)
    step = np.nan_to_num(places[:, :, None] - runs[:, None, :, :settings])
    gaps = log_seconds[:, None] - episodes.anchor[:, :, None]
    arrays = (
        tokens * is_run[..., None],
        is_run,
        np.concatenate([_flagged(places), above, many], axis=2),
        np.concatenate([step, np.abs(step)], axis=3),
        gaps[..., None],
    )
    return Inputs(*(np.ascontiguousarray(array, dtype=np.float32) for array in arrays))


def embed(weights: Weights, inputs: Inputs, drop: Drop = lambda values: values) -> tuple[Tensor, Tensor]:
    """Embeddings of every episode and of every run in it; `drop` is applied between layers in training."""
    there = inputs.is_run[..., None]
    runs = drop(_relu(inputs.tokens @ weights["token.1"] + weights["token.1.bias"]))
    runs = _relu(runs @ weights["token.2"] + weights["token.2.bias"]) * there
    count = there.sum(1)
    mean = runs.sum(1) / count
    apart = (abs(runs - mean[:, None]) * there).sum(1) / count
    together = _relu(mean @ weights["set.mean"] + apart @ weights["set.apart"] + weights["set.bias"])
    return drop(together) @ weights["embedding"] + weights["embedding.bias"], runs


def hidden(
    weights: Weights, inputs: Inputs, embedding: Tensor, runs: Tensor, drop: Drop = lambda values: values
) -> Tensor:
    """Last layer: every target attends to the known runs by nearness, and to the embedding."""
    pairs = _relu(
        (runs @ weights["pair.run"])[:, None]
        + inputs.steps @ weights["pair.step"]
        + inputs.gaps * weights["pair.gap"]
        + (inputs.targets @ weights["pair.target"] + weights["pair.bias"])[:, :, None]
    )
    score = _exp((pairs @ weights["pair.score"]).clip(-_SOFTEST, _SOFTEST)) * inputs.is_run[:, None, :, None]
    context = (pairs * score).sum(2) / score.sum(2)
    first = _relu(
        drop(context) @ weights["head.context"]
        + (embedding @ weights["head.embedding"])[:, None]
        + inputs.targets @ weights["head.target"]
        + weights["head.1.bias"]
    )
    return _relu(drop(first) @ weights["head.2"] + weights["head.2.bias"]) + first


def departures(weights: Weights, last: Tensor) -> Tensor:
    """Quantiles in ascending order: the middle one, and gaps above and below it."""
    out = last @ weights["out"] + weights["out.bias"]
    gap, quantile = np.indices((len(LEVELS), len(LEVELS)))
    # Gap g moves quantile q: down if both are below the middle and q is further out, up above it.
    below = (gap < _MIDDLE) & (quantile <= gap)
    above = (gap > _MIDDLE) & (quantile >= gap)
    reach = (above.astype(np.float32) - below).astype(np.float32)
    is_gap = (np.arange(len(LEVELS)) != _MIDDLE).astype(np.float32)
    gaps = _exp(out.clip(-_STEEPEST - _MIDDLE, _STEEPEST)) * _like(is_gap, out)
    return out[..., _MIDDLE : _MIDDLE + 1] + gaps @ _like(reach, out)


def _like(array: Single, other: Tensor) -> Tensor:
    """The array, as a tensor if the other is one."""
    return array if isinstance(other, np.ndarray) else other.new_tensor(array)


def _relu(values: Tensor) -> Tensor:
    return values.clip(0.0)


def _exp(values: Tensor) -> Tensor:
    return np.exp(values) if isinstance(values, np.ndarray) else values.exp()


def _flagged(values: Single) -> Single:
    """Unknown values as zero, followed by flags of the unknown ones."""
    unknown = np.isnan(values)
    return np.concatenate([np.where(unknown, np.float32(0.0), values), unknown.astype(np.float32)], axis=-1)


ENCODER = "encoder"


def application_folds(corpus: Corpus, count: int, seed: int) -> tuple[frozenset[str], ...]:
    """The applications of a data set in groups, drawn as `Blend` draws its folds; empty if too few."""
    folds = [frozenset(fold) for fold in random_folds(corpus.applications, count, seed)]
    return (*folds, *[frozenset[str]()] * (count - len(folds)))


@dataclass(frozen=True, slots=True)
class CrossFitted:
    """One encoder trained on all applications of a data set, and one without each group of them.

    `fit` returns the encoder that was trained without the applications that the cases lack.
    """

    complete: Encoder
    parts: tuple[tuple[frozenset[str], Encoder], ...]
    name: str = ENCODER

    def suits(self, cases: Sequence[Case]) -> bool:
        return True

    def fit(self, cases: Sequence[Case]) -> Encoder:
        present = {case.application for case in cases}
        left_out = frozenset().union(*(group for group, _ in self.parts)) - present
        if not left_out:
            return self.complete
        for group, encoder in self.parts:
            if left_out <= group:
                return encoder
        raise ValueError("no encoder was trained without just these applications; the groups do not agree")
