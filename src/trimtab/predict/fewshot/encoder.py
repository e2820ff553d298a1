"""The encoder: known runs become 32 numbers, which say how every target departs from a simple rule.

Every known run is a token and every target a row of settings; unknown values are zero with a flag, times are
logarithms. One forward pass serves training (PyTorch tensors) and use (NumPy arrays): it is written in what
both offer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError
from trimtab.predict.backtest import random_folds
from trimtab.predict.fewshot.case import METRICS, SCALES, SETTINGS, Array, Case, Corpus
from trimtab.predict.fewshot.predictor import Arrays, Rows, Spread, Words
from trimtab.predict.fewshot.rules import NearestKnown, Stretch

MOST_RUNS = 3  # known runs of one application that are looked at
_FAR = 10.0  # standard deviations; further out nothing is told apart
_ONE_THREAD = 1.0  # CPU
_NOTHING = 0.5  # stands for zero on a logarithmic scale

Single = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """Means and deviations that bring settings, metrics and log seconds to one scale."""

    mean: Single
    deviation: Single

    @classmethod
    def of(cls, rows: Array) -> "Scaling":
        """From rows of plain numbers, NaN where unknown; what is nowhere known or the same stays as it is."""
        known = ~np.isnan(rows)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, rows, 0.0).sum(axis=0) / count
        deviation = np.sqrt(np.where(known, (rows - mean) ** 2, 0.0).sum(axis=0) / count)
        usable = deviation > 1e-6
        return cls(
            np.where(usable, mean, 0.0).astype(np.float32),
            np.where(usable, deviation, 1.0).astype(np.float32),
        )

    def __call__(self, rows: Array) -> Single:
        """Standardised, NaN kept."""
        return np.clip((rows - self.mean) / self.deviation, -_FAR, _FAR).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Known runs and targets of many episodes, padded to the same number; NaN where unknown."""

    runs: Array  # (episodes, MOST_RUNS, settings + metrics)
    log_seconds: Array  # (episodes, MOST_RUNS)
    is_run: Array  # 1 where there is one
    targets: Array  # (episodes, targets, settings)
    anchor: Array  # (episodes, targets), log seconds

    @classmethod
    def of(cls, case: Case, known: Rows, rows: Rows | None = None) -> "Seen":
        """One episode; its targets are `rows` of the case, or all. Of many known runs some are left out."""
        chosen = spread_out(case, known)
        log_seconds = np.log(case.seconds[chosen])
        if np.isnan(log_seconds).any():
            raise BadInputError(f"{case.label}: a known run has no time")
        settings = _powers(case.settings)
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
    def join(cls, parts: Sequence["Seen"]) -> "Seen":
        """Episodes with as many targets each, one after another."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


def spread_out(case: Case, known: Rows) -> Rows:
    """At most `MOST_RUNS` of the known rows: of more, those evenly over the sorted times."""
    known = np.asarray(known)
    if not known.size:
        raise BadInputError(f"{case.label}: no configuration is known; a prediction needs one at least")
    if len(known) <= MOST_RUNS:
        return known
    order = known[np.argsort(case.seconds[known], kind="stable")]
    return np.asarray(order[np.linspace(0, len(order) - 1, MOST_RUNS).round().astype(np.intp)])


def anchor(case: Case, known: Rows) -> Array:
    """The simple answer to start from, in log seconds: by CPU share where that differs, or as the nearest."""
    share = np.minimum(case.setting("cpus"), _ONE_THREAD)
    rule = NearestKnown() if np.isnan(share).any() or np.ptp(share) == 0 else Stretch()
    return np.log(rule.predict(case, known))


def _powers(settings: Array) -> Array:
    """Settings on a scale as powers of two, none at all as half of one; switches as they are."""
    scales, switches = settings[:, : len(SCALES)], settings[:, len(SCALES) :]
    positive = np.where(scales > 0, scales, np.where(scales == 0, _NOTHING, np.nan))
    return np.concatenate([np.log2(positive), switches], axis=1)


RUN_WIDTH = len(SETTINGS) + len(METRICS)


EMBEDDING = 32
_WIDTH = 64
_MIDDLE = 4
LEVELS = (np.arange(2 * _MIDDLE + 1) + 0.5) / (2 * _MIDDLE + 1)  # the quantiles that are predicted
_STEEPEST = 3.0  # log of the widest gap between two of them
_SOFTEST = 15.0  # a score's logarithm stays within, so that nothing overflows
CAUTION = 1.0  # power of 1/y in the point that is answered

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


def _nothing(values: Tensor) -> Tensor:
    return values


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
        """Embedding of the known runs of an application."""
        (found,) = self.embeddings(Seen.of(case, known, np.array([0])))
        return np.asarray(found)

    def embeddings(self, seen: Seen) -> Single:
        """Embeddings of many episodes, one per row."""
        found, _ = embed(self.weights, prepared(seen, self.scaling))
        return np.asarray(found)

    def predict(self, case: Case, known: Rows) -> Array:
        """Seconds under every configuration."""
        return np.exp(self.spread(case, known).point(CAUTION))

    def spread(self, case: Case, known: Rows) -> Spread:
        """Equally likely log seconds under every configuration."""
        seen = Seen.of(case, known)
        samples = seen.anchor[0][:, None] + self.departures(seen)[0]
        return Spread.of(samples, np.ones_like(samples))

    def refit(self, cases: Sequence[Case]) -> "Encoder":
        """The encoder itself: it has learned from far more than the cases of one user."""
        return self

    def to_weights(self) -> tuple[Arrays, Words]:
        """Nothing: a file of weights holds the encoder once, for all data sets."""
        return {}, {}

    def departures(self, seen: Seen) -> Array:
        """(episodes, targets, levels): log seconds by which a target departs from its anchor."""
        return np.asarray(departures(self.weights, self.hidden(seen)), dtype=np.float64)

    def hidden(self, seen: Seen) -> Single:
        """The head's last layer, from which departures are read off."""
        inputs = prepared(seen, self.scaling)
        return np.asarray(hidden(self.weights, inputs, *embed(self.weights, inputs)))


def prepared(seen: Seen, scaling: Scaling) -> Inputs:
    """Standardised, flagged and put together."""
    settings = len(SETTINGS)
    count = np.maximum(seen.is_run.sum(axis=1, keepdims=True), 1.0)
    level = (seen.log_seconds * seen.is_run).sum(axis=1, keepdims=True) / count
    runs = scaling(np.concatenate([seen.runs, seen.log_seconds[..., None]], axis=2))
    relative = (seen.log_seconds - level)[..., None]
    tokens = np.concatenate([_flagged(runs[..., :-1]), runs[..., -1:], relative], axis=2)
    places = Scaling(scaling.mean[:settings], scaling.deviation[:settings])(seen.targets)
    above = (seen.anchor - level)[..., None]
    many = np.broadcast_to((count / MOST_RUNS)[:, None], above.shape)
    targets = np.concatenate([_flagged(places), above, many], axis=2)
    step = np.nan_to_num(places[:, :, None] - runs[:, None, :, :settings])
    gaps = seen.log_seconds[:, None] - seen.anchor[:, :, None]
    return Inputs(
        *(
            np.ascontiguousarray(each, dtype=np.float32)
            for each in (
                tokens * seen.is_run[..., None],
                seen.is_run,
                targets,
                np.concatenate([step, np.abs(step)], axis=3),
                gaps[..., None],
            )
        )
    )


def embed(weights: Weights, inputs: Inputs, drop: Drop = _nothing) -> tuple[Tensor, Tensor]:
    """The embedding of every episode, and of every run in it what was made of it.

    `drop` takes some of the numbers away while it learns.
    """
    there = inputs.is_run[..., None]
    runs = drop(_relu(inputs.tokens @ weights["token.1"] + weights["token.1.bias"]))
    runs = _relu(runs @ weights["token.2"] + weights["token.2.bias"]) * there
    count = there.sum(1)
    mean = runs.sum(1) / count
    apart = (abs(runs - mean[:, None]) * there).sum(1) / count
    together = _relu(mean @ weights["set.mean"] + apart @ weights["set.apart"] + weights["set.bias"])
    return drop(together) @ weights["embedding"] + weights["embedding.bias"], runs


def hidden(
    weights: Weights, inputs: Inputs, embedding: Tensor, runs: Tensor, drop: Drop = _nothing
) -> Tensor:
    """Every target looks at the known runs, each by how near it is, and at the embedding."""
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
    """Quantiles in rising order: the middle one, and gaps above and below it."""
    out = last @ weights["out"] + weights["out.bias"]
    gaps = _exp(out.clip(-_STEEPEST - _MIDDLE, _STEEPEST)) * _is_gap(out)
    # Below the middle the gaps next to it count for all further out; above it likewise.
    return out[..., _MIDDLE : _MIDDLE + 1] + gaps @ _like(_reach(), out)


def _reach() -> Single:
    """How gap g moves quantile q: down if both are below the middle and q is further out, up above it."""
    gap, quantile = np.indices((len(LEVELS), len(LEVELS)))
    below = (gap < _MIDDLE) & (quantile <= gap)
    above = (gap > _MIDDLE) & (quantile >= gap)
    return (above.astype(np.float32) - below).astype(np.float32)


def _is_gap(like: Tensor) -> Tensor:
    return _like((np.arange(len(LEVELS)) != _MIDDLE).astype(np.float32), like)


def _like(array: Single, other: Tensor) -> Tensor:
    """The array, or a tensor of it where the other is one."""
    return array if isinstance(other, np.ndarray) else other.new_tensor(array)


def _relu(values: Tensor) -> Tensor:
    return values.clip(0.0)


def _exp(values: Tensor) -> Tensor:
    return np.exp(values) if isinstance(values, np.ndarray) else values.exp()


def _flagged(values: Single) -> Single:
    """Unknown values as zero, with a flag for each beside them."""
    unknown = np.isnan(values)
    return np.concatenate([np.where(unknown, np.float32(0.0), values), unknown.astype(np.float32)], axis=-1)


ENCODER = "encoder"


def application_folds(corpus: Corpus, count: int, seed: int) -> tuple[frozenset[str], ...]:
    """The applications of a data set in groups, drawn as `Ours` draws its folds; empty if too few."""
    folds = [frozenset(fold) for fold in random_folds(corpus.applications, count, seed)]
    return (*folds, *[frozenset[str]()] * (count - len(folds)))


@dataclass(frozen=True, slots=True)
class CrossFitted:
    """One encoder trained on all applications of a data set, and one without each group of them.

    Asked to learn from all but some, it answers with the one that has not seen those.
    """

    whole: Encoder
    parts: tuple[tuple[frozenset[str], Encoder], ...]
    name: str = ENCODER

    def suits(self, cases: Sequence[Case]) -> bool:
        return True

    def fit(self, cases: Sequence[Case]) -> Encoder:
        there = {case.application for case in cases}
        left_out = frozenset().union(*(group for group, _ in self.parts)) - there
        if not left_out:
            return self.whole
        for group, encoder in self.parts:
            if left_out <= group:
                return encoder
        raise ValueError("no encoder was trained without just these applications; the groups do not agree")
