"""The rules that a learned predictor must beat, from the simplest to those that use other applications.

All compute in logarithms: a time is off by a factor, whichever way, and a mean of times is the geometric one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from trimtab.predict.fewshot.case import Array, Case
from trimtab.predict.fewshot.predictor import (
    Rows,
    TimeMatrix,
    column_means,
    distances,
    known_log_seconds,
    need_cases,
)

_ONE_THREAD = 1.0  # CPU
_LEAST = 1e-9  # s
# A run that swaps is idle most of the time, gives the CPU away again and again, and holds a good part of its
# memory. Programs that wait for others hold little, or give the CPU away less often.
_SWAPPING_CPU = 0.5  # of its share, at most
_SWAPPING_SWITCHES = 300.0  # per second, at least
_SWAPPING_MEMORY = 0.3  # of its limit, at least


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule that learns nothing from other applications."""

    def fit(self, cases: Sequence[Case]) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class NearestKnown(_Rule):
    """The time under the nearest known configuration; of two as near, the one with less memory."""

    name: str = "nearest known"

    def predict(self, case: Case, known: Rows) -> Array:
        log_seconds = known_log_seconds(case, known)
        smallest_first = np.argsort(case.setting("memory_bytes")[known], kind="stable")
        known, log_seconds = np.asarray(known)[smallest_first], log_seconds[smallest_first]
        nearest = distances(case.settings, case.settings[known]).argmin(axis=1)
        return np.asarray(np.exp(log_seconds[nearest]))


@dataclass(frozen=True, slots=True)
class Interpolation(_Rule):
    """A line through the known times, both axes logarithmic, over memory; constant beyond the known sizes.

    With one memory size known, or none, it is the nearest known.
    """

    name: str = "interpolation"

    def predict(self, case: Case, known: Rows) -> Array:
        log_seconds = known_log_seconds(case, known)
        memory = case.setting("memory_bytes")
        sizes, position = np.unique(memory[known], return_inverse=True)
        if len(sizes) < 2 or np.isnan(memory).any():
            return NearestKnown().predict(case, known)
        at_size = np.bincount(position, log_seconds) / np.bincount(position)
        return np.exp(np.interp(np.log2(memory), np.log2(sizes), at_size))


@dataclass(frozen=True, slots=True)
class MeanOfKnown(_Rule):
    """The mean of the known times, whatever the configuration."""

    name: str = "mean of the known"

    def predict(self, case: Case, known: Rows) -> Array:
        return np.full(len(case), np.exp(known_log_seconds(case, known).mean()))


@dataclass(frozen=True, slots=True)
class Stretch(_Rule):
    """CPU time stretches with the share of a CPU, idle time stays.

    A run of T seconds that used C seconds of CPU on a share s (of at most one CPU, for one thread) waited for
    something else during I = T - C/s. On a share s' it takes I + (T - I) s/s'. From two runs on, I and the
    work are fitted to all of them; where the CPU is the same everywhere, it interpolates the known times. A
    run that swaps waits for its own pages: with more memory only the work is left.
    """

    name: str = "CPU share"

    def predict(self, case: Case, known: Rows) -> Array:
        return np.exp(stretched(case, known))


@dataclass(frozen=True, slots=True)
class MatrixRule:
    """A rule that answers from the training cases' times: seconds under every configuration of a case."""

    name: str
    answer: Callable[[TimeMatrix, Case, Rows], Array]

    def fit(self, cases: Sequence[Case]) -> "FittedMatrixRule":
        need_cases(cases, self.name)
        return FittedMatrixRule(self, TimeMatrix.of(cases))


@dataclass(frozen=True, slots=True)
class FittedMatrixRule:
    rule: MatrixRule
    matrix: TimeMatrix

    def predict(self, case: Case, known: Rows) -> Array:
        return self.rule.answer(self.matrix, case, known)


def median_ratio(matrix: TimeMatrix, case: Case, known: Rows) -> Array:
    """From every known time by the median ratio of the training cases; the mean where several are known."""
    log_seconds = known_log_seconds(case, known)
    columns = matrix.columns(case)
    ratios = np.array([matrix.median_log_ratio(c)[columns] for c in columns[known].tolist()])
    return _seconds(column_means(log_seconds[:, None] + ratios), log_seconds)


def scaled_profile(matrix: TimeMatrix, case: Case, known: Rows) -> Array:
    """Collaborative: the mean profile of the training cases over the configurations, scaled to the known."""
    log_seconds = known_log_seconds(case, known)
    level = column_means(matrix.log_seconds.T)
    shape = column_means(matrix.log_seconds - level[:, None])[matrix.columns(case)]
    offset = np.nan_to_num(column_means((log_seconds - shape[known])[:, None])[0])
    return _seconds(shape + offset, log_seconds)


def nearest_workloads(matrix: TimeMatrix, case: Case, known: Rows, neighbours: int = 5) -> Array:
    """The mean of the training cases whose times are nearest under the known configurations, each scaled."""
    times = matrix.log_seconds[:, matrix.columns(case)]
    apart = times[:, known] - known_log_seconds(case, known)
    distance = column_means((apart**2).T)
    nearest = np.argsort(distance, kind="stable")[:neighbours]
    nearest = nearest[~np.isnan(distance[nearest])]
    mean = column_means(times[nearest] - column_means(apart[nearest].T)[:, None])
    return np.where(np.isnan(mean), scaled_profile(matrix, case, known), np.exp(mean))


MEDIAN_RATIO = MatrixRule("median ratio", median_ratio)
SCALED_PROFILE = MatrixRule("scale by known", scaled_profile)
NEAREST_WORKLOADS = MatrixRule("5 nearest workloads", nearest_workloads)


def _seconds(log_seconds: Array, known: Array) -> Array:
    """Seconds; a configuration that no training case shares with the known takes as long as the known."""
    return np.exp(np.where(np.isnan(log_seconds), known.mean(), log_seconds))


def stretched(case: Case, known: Rows) -> Array:
    """Log seconds of `Stretch` under every configuration."""
    known = np.sort(known)
    log_seconds = known_log_seconds(case, known)
    share = cpu_share(case)
    if np.isnan(share).any() or np.ptp(share) == 0:
        line = np.log(Interpolation().predict(case, known))
        return _relieved(case, int(known[np.argmax(case.setting("memory_bytes")[known])]), share, line)
    if len(known) > 1 and np.ptp(share[known]) > 0:
        return _fitted_idle_and_work(np.exp(log_seconds), share[known], share)
    return np.asarray(np.mean([stretched_from(case, row, share) for row in known.tolist()], axis=0))


def stretched_from(case: Case, row: int, share: Array) -> Array:
    """Log seconds of `Stretch` under every configuration, from the one run in that row."""
    seconds, used = case.seconds[row], _cpu_used(case, row)
    idle = max(0.0, seconds - used * seconds / share[row]) if used > 0 else 0.0
    log_seconds = np.log(idle + max(seconds - idle, _LEAST) * share[row] / share)
    return _relieved(case, row, share, log_seconds)


def _relieved(case: Case, row: int, share: Array, log_seconds: Array) -> Array:
    """`log_seconds` without waiting under configurations with more memory than that row's, if it swapped."""
    used, memory = _cpu_used(case, row), case.setting("memory_bytes")
    swaps = (
        0 < used < _SWAPPING_CPU * share[row]
        and case.metric("context_switches")[row] > _SWAPPING_SWITCHES
        and case.metric("memory_fraction")[row] > _SWAPPING_MEMORY
    )
    work = np.log(max(used * case.seconds[row], _LEAST)) - np.log(share)
    return np.where(swaps & (memory > memory[row]), work, log_seconds)


def _cpu_used(case: Case, row: int) -> float:
    """CPU seconds per second, zero where unknown."""
    return float(np.nan_to_num(case.metric("cpu_user")[row]) + np.nan_to_num(case.metric("cpu_system")[row]))


def cpu_share(case: Case) -> Array:
    """Part of one CPU that a single thread gets under each configuration."""
    return np.minimum(case.setting("cpus"), _ONE_THREAD)


def _fitted_idle_and_work(seconds: Array, known_share: Array, share: Array) -> Array:
    """Log seconds from idle time and work, neither negative, by least squares of the relative errors."""
    constant, slope = 1.0 / seconds, 1.0 / (known_share * seconds)
    (idle, work), *_ = np.linalg.lstsq(np.column_stack([constant, slope]), np.ones_like(seconds), rcond=None)
    if idle < 0 or work < 0:
        # The best without one of them: the other alone, whichever leaves less.
        alone = [(constant.sum() / (constant @ constant), 0.0), (0.0, slope.sum() / (slope @ slope))]
        idle, work = min(
            alone, key=lambda pair: float(((pair[0] * constant + pair[1] * slope - 1) ** 2).sum())
        )
    return np.asarray(np.log(np.maximum(idle + work / share, _LEAST)))
