"""The shared encoder: known runs become 32 numbers, and those say how every target departs from a rule.

One forward pass serves training (PyTorch tensors) and use (NumPy arrays): it is written in what both offer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.predict.fewshot import SETTINGS, Array, Case, Rows, Spread
from trimtab.predict.fewshot.encoder.inputs import MOST_RUNS, RUN_WIDTH, Scaling, Seen, Single

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
    """What goes into the network, standardised."""

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

    def embedding(self, case: Case, known: Rows) -> Single:
        """What the known runs say of the application."""
        (found,) = self.embeddings(Seen.of(case, known, np.array([0])))
        return np.asarray(found)

    def embeddings(self, seen: Seen) -> Single:
        """The same of many."""
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
