"""What earlier runs of a workload say about its next one, beside what the rule says.

The logarithm of truth over rule is one part that all of a workload's configurations share, a part that
fades with the distance between batch sizes, one of the number format, one of the device and one of the
configuration alone; how large each is was measured (`Spread`). Given some runs, the rest follows by
conditioning a Gaussian.

Runs are not all what they seem. One may have been stopped half-way or be another job, and a workload may do
more than its steps. So the answer is an average over what may be true, weighted by how well it explains the
runs: each of them is genuine or not, and the workload is ordinary or slower altogether. A ratio of 1000 is
explained by neither kind of workload, so it counts for nothing; two runs that agree support one another.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Two runs of the same configuration differ by about this much, as a log ratio: a choice, on the wide side.
_RUN_NOISE = 0.1
# No measurement says these; they only matter for runs that the measured spread does not explain.
_STOPPED_EARLY = 0.05  # chance that a run ended at any point before its end
_ANOTHER_JOB = 0.05  # chance that it has nothing to do with the estimate
_ANOTHER_JOB_SPAN = math.log(1e6)  # whose ratio lies anywhere between 1/1000 and 1000
_SLOW_WORKLOAD = 0.05  # chance that a workload does more than its steps: checkpoints, evaluation, a slow disk
_SLOWER_BY = math.log(2.0)  # by how much then, and how much that varies
# However often it is seen, a ratio beyond these is of another job, or of the same at another length.
_POSSIBLE = (math.log(0.1), math.log(20.0))
# A run counts as this workload's when that is three times as likely as not.
BELIEVED = 0.75
MOST_RUNS = 5
_NEXT_TO_IMPOSSIBLE = 1e-5  # relative to the likeliest explanation
# Pairs that differ by more than this many times the whole variance count as differing by that.
_WILD = 5.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a step runs. `width` is how wide the rule's range is there; 1 on measured devices."""

    device: str
    devices: float
    batch: float
    half: bool
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run of the workload: its time over the rule's.

    `noise` is the standard deviation of that ratio's log, beside what any two runs differ by.
    """

    setting: Setting
    ratio: float
    noise: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of log(truth / rule) on one device over models that the rule had not seen.

    `total` is all of it; of that, `configuration` is not shared with any other configuration of the model,
    `number_format` not with those of another number format, and `doubling` more is lost for every factor of
    two between batch sizes. `margin` times the standard deviation holds 90 % of left-out models' steps.
    """

    total: float
    configuration: float
    number_format: float
    doubling: float
    margin: float = 1.645


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Log of truth over rule at every target, its standard deviation, and how far each run is believed."""

    mean: Array
    deviation: Array
    belief: Array


def hindsight(spread: Spread, runs: Sequence[PastRun], targets: Sequence[Setting]) -> Hindsight:
    """What runs, at most `MOST_RUNS` of them, say about the targets."""
    seen = tuple(runs)
    settings = [run.setting for run in seen]
    ratios = np.log([run.ratio for run in seen])
    among = _covariance(spread, settings, settings) + np.diag([run.noise**2 + _RUN_NOISE**2 for run in seen])
    across = _covariance(spread, targets, settings)
    alone = spread.total * np.array([target.width for target in targets]) ** 2
    mean, square = np.zeros(len(targets)), np.zeros(len(targets))
    belief = np.zeros(len(seen))
    for weight, which, shift, extra in _weighed(ratios, among):
        known, cross = among[np.ix_(which, which)] + extra, across[:, which] + extra
        gain = np.linalg.solve(known, cross.T).T
        answer = shift + gain @ (ratios[which] - shift)
        mean += weight * answer
        square += weight * (answer**2 + np.maximum(alone + extra - (gain * cross).sum(axis=1), 0.0))
        belief += weight * which
    return Hindsight(mean, np.sqrt(np.maximum(square - mean**2, 0.0)), belief)


def fit_spread(ratios: Array, models: Sequence[str], batches: Array, half: NDArray[np.bool_]) -> Spread:
    """The spread of left-out models' log ratios (truth over rule), by how alike two steps of a model are."""
    from scipy.optimize import nnls  # late: only learning needs SciPy

    names = np.array(models)
    first, second = np.triu_indices(len(ratios), 1)
    same = names[first] == names[second]
    first, second = first[same], second[same]
    apart = np.abs(np.log2(batches[first] / batches[second]))
    terms = np.stack([np.ones(len(apart)), half[first] != half[second], apart], axis=1)
    total = float(np.mean(ratios**2))
    # Half the squared difference of two steps is what they do not share; one wild pair must not set it.
    unshared = np.minimum((ratios[first] - ratios[second]) ** 2 / 2, _WILD * total)
    configuration, number_format, doubling = nnls(terms, unshared)[0].tolist()
    # What is not shared cannot be more than there is.
    configuration = min(configuration, total)
    return Spread(total, configuration, min(number_format, total - configuration), doubling)


def _covariance(spread: Spread, some: Sequence[Setting], others: Sequence[Setting]) -> Array:
    a, b = _columns(some), _columns(others)
    apart = np.abs(a.doublings[:, None] - b.doublings[None])
    same_format = a.half[:, None] == b.half[None]
    same_device = (a.device[:, None] == b.device[None]) & (a.devices[:, None] == b.devices[None])
    shared = spread.total - spread.configuration - spread.number_format
    alike = (
        np.maximum(shared - spread.doubling * apart, 0.0)
        + spread.number_format * same_format
        + spread.configuration * (same_format & same_device & (apart == 0))
    )
    own = spread.total * same_device * np.outer(a.own, b.own)
    return np.asarray(alike * np.outer(a.common, b.common) + own)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Settings as columns; `common` and `own`: width of what all devices share, and of the device's part."""

    device: NDArray[np.str_]
    devices: Array
    doublings: Array
    half: NDArray[np.bool_]
    common: Array
    own: Array


def _columns(settings: Sequence[Setting]) -> _Columns:
    width = np.array([s.width for s in settings], dtype=float)
    return _Columns(
        np.array([s.device for s in settings], dtype=str),
        np.array([s.devices for s in settings], dtype=float),
        np.log2(np.array([s.batch for s in settings], dtype=float)),
        np.array([s.half for s in settings], dtype=np.bool_),
        np.minimum(width, 1.0),
        np.sqrt(np.maximum(width**2 - 1.0, 0.0)),
    )


def _weighed(ratios: Array, among: Array) -> list[tuple[float, NDArray[np.bool_], float, float]]:
    """What may be true with its probability, likeliest first; what is next to impossible is left out."""
    impossible = (ratios < _POSSIBLE[0]) | (ratios > _POSSIBLE[1])
    found = []
    for which, shift, extra, prior in _explanations(len(ratios)):
        if (which & impossible).any():
            continue
        density = _log_density(ratios[which] - shift, among[np.ix_(which, which)] + extra)
        found.append((prior + density + _spoiled(ratios[~which]), which, shift, extra))
    found.sort(key=lambda each: -each[0])
    weights = np.exp(np.array([each[0] for each in found]) - found[0][0])
    weights[weights < _NEXT_TO_IMPOSSIBLE] = 0.0
    weights /= weights.sum()
    return [(float(w), *each[1:]) for w, each in zip(weights, found, strict=True) if w]


def _explanations(runs: int) -> Iterator[tuple[NDArray[np.bool_], float, float, float]]:
    """Which runs are genuine; by how much the workload is slower, that part's variance; log of the odds."""
    genuine = math.log(1.0 - _STOPPED_EARLY - _ANOTHER_JOB)  # of a spoiled run, `_spoiled` knows the chances
    for which in product((True, False), repeat=runs):
        chosen = np.array(which, dtype=np.bool_)
        prior = genuine * int(chosen.sum())
        yield chosen, 0.0, 0.0, prior + math.log(1.0 - _SLOW_WORKLOAD)
        yield chosen, _SLOWER_BY, _SLOWER_BY**2, prior + math.log(_SLOW_WORKLOAD)


def _spoiled(ratios: Array) -> float:
    """Log density of runs that are not what they seem: stopped early, or of another job."""
    stopped = _STOPPED_EARLY * np.exp(np.minimum(ratios, 0.0)) * (ratios < 0)
    another = np.full_like(ratios, _ANOTHER_JOB / _ANOTHER_JOB_SPAN)
    return float(np.log(stopped + another).sum())


def _log_density(off: Array, covariance: Array) -> float:
    """Of a Gaussian around zero."""
    if not off.size:
        return 0.0
    _, determinant = np.linalg.slogdet(2.0 * math.pi * covariance)
    return float(-0.5 * (determinant + off @ np.linalg.solve(covariance, off)))
