"""Forecast of a workload from other workloads' measurements: a mixture of Gaussian processes over a space.

Each other workload gives a picture: its log seconds over the space's configurations, interpolated from its
own runs, also where it ran on other configurations. It is drawn several times, stretched: a workload twice as
large does on twice as many machines about what this one does here, and the cliff where memory suffices moves
with it.

Around every picture there is a Gaussian process; two more are around the mean of all pictures, for a workload
like none: one as wide as workloads differ, one wider. The level is free in all of them: how long a workload
takes in total says little about its shape. Trials weigh the pictures by their likelihood and move them.
Without other workloads, the two wide processes are all there is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trimtab.predict import METRICS, MODEL, RULE, SCALES, SETTINGS, Array, Case, condition
from trimtab.tune.searcher import Belief, Mixture
from trimtab.tune.space import Observation, Space

_STRETCHES = (-1.0, -0.5, 0.0, 0.5, 1.0)  # times larger, as powers of two
_STRETCH = 0.7  # how far pictures are likely to be stretched, as a power of two
# Lengths over which settings are alike, as powers of two.
_TOTALS = 0.6  # memory and CPUs of all machines together
_PER_CPU = 0.8  # memory and price per CPU
_MACHINE = 3.0  # the size of a machine, where all together are as large
_OTHER = 1.0  # any other setting on a scale
_SWITCH = 0.7
_SMOOTH, _TREND, _ROUGH = 0.5, 0.3, 0.01  # variances of one workload's log seconds
_FAILURE_ROUGH = 0.1

# The mixture.
_NEAR = 0.15  # a picture's covariance as a part of the population's
_WIDE = 4.0  # covariance of the widest newcomer, likewise
_NEWCOMER = 0.1  # prior weight of either newcomer
_SHARED_WORD = 2.0  # log weight of a word in common, before the first trial
_METRICS = 1.5  # log weight of a squared distance between metrics
_UNRELATED = 2.0  # expected squared distance between two workloads' metrics
_TEMPERATURE = 0.7  # power of the trials' likelihood
_NOISE = 0.02  # variance of the log seconds of a full trial
_PRIOR_WORKLOADS = 10.0  # as many workloads speak for the covariance by settings alone
_PRIOR_SMOOTH, _PRIOR_SLOPE = 0.1, 0.08  # its variances
_LEAST_LEVEL = 0.3
_NO_LEVEL = 100.0  # variance of the level where no other workload is known

# Failures: a number over configurations that is 1 where a run fails.
_ALIKE = 0.8  # how much of the first guess comes from workloads that share words with this one
_FAILURE_NEAR, _FAILURE_SLOPE, _FAILURE_NOISE = 0.03, 0.018, 0.02  # variances
_TOGETHER = 0.3  # part of what others show about which configurations fail together
_REACH = 0.45  # neighbours of failures reach farther than those of times
_LEAST, _MOST = 0.01, 0.98
_WITHOUT_OTHERS = 0.1

_RULE_OFF = 2.0  # times too fast or too slow, in nine cases of ten, of the rule
_TAIL = 0.05
_HALVINGS = 40


@dataclass(frozen=True, slots=True, eq=False)
class _Pictures:
    """A row per picture: log seconds and chance to fail of every configuration."""

    log_seconds: Array
    failing: Array
    case: NDArray[np.intp]  # index of the other workload
    stretch: Array
    shared_words: Array
    completed: NDArray[np.bool_]  # if the workload never completed, its times mean nothing

    @property
    def unstretched(self) -> NDArray[np.intp]:
        """Pictures as measured, of workloads that completed somewhere."""
        return np.flatnonzero((self.stretch == 0) & self.completed)

    def log_prior(self, word: float = 0.0) -> Array:
        """Log weights; `word` is that of a word in common, as long as no trial says more."""
        return word * self.shared_words - 0.5 * (self.stretch / _STRETCH) ** 2


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Gaussian processes with the same covariance, a row of `curves` is the mean of each."""

    curves: Array
    covariance: Array

    def given(self, rows: NDArray[np.intp], shown: Array, noise: Array) -> tuple[Array, Array, Array]:
        """Means, standard deviations of another run, and the log likelihood of the values shown."""
        across = self.covariance[:, rows]
        given = condition(across[rows], shown - self.curves[:, rows], noise)
        variance = given.variance(np.diag(self.covariance), across)
        deviation = np.sqrt(variance + _NOISE)
        means = self.curves + given.mean(across)
        return means, np.tile(deviation, (len(self.curves), 1)), given.log_likelihood


class OtherWorkloads:
    """Beliefs about a workload of which nothing is known but trials, from other workloads' cases, if any."""

    least_chance = 0.0  # a risky trial is worth it: a failure shows where memory ends
    rents_untried = False

    def __init__(self, space: Space, others: Sequence[Case] = ()) -> None:
        self.space, self.others = space, tuple(others)
        self._used = _used_coordinates(space, others)
        self._pictures = self._drawn()
        found = _places(space)[:, self._used]
        self._here = np.asarray(found - found.mean(axis=0))

    @cached_property
    def first_pictures(self) -> Mixture | None:
        """Unstretched pictures, weighed by the words in common; None where no workload ever completed."""
        rows = self._pictures.unstretched
        if not rows.size:
            return None
        return Mixture(self._pictures.log_seconds[rows], np.zeros((len(rows), 1)), self._first_weights[rows])

    @property
    def first_failing(self) -> Array:
        """The chance to fail of every configuration in every one of `first_pictures`."""
        return self._pictures.failing[self._pictures.unstretched]

    @property
    def first_reason(self) -> str:
        return f"the least expected regret over {len(self.others)} other workloads"

    @cached_property
    def _first_weights(self) -> Array:
        logs = self._pictures.log_prior(_SHARED_WORD)
        weights = np.exp(logs - logs.max(initial=-np.inf))
        return np.asarray(weights / weights.sum()) if len(weights) else weights

    def mixture(self, observations: Sequence[Observation]) -> Mixture:
        """Log seconds of every configuration after trials; those of low fidelity have more noise."""
        done = [one for one in observations if one.ok]
        rows = np.array([one.row for one in done], dtype=np.intp)
        shown = np.log([one.seconds for one in done])
        noise = _NOISE / np.array([one.fidelity for one in done])
        means, deviations, fits = zip(
            *(group.given(rows, shown, noise) for group in self._groups), strict=True
        )
        likeness = self._likeness(rows, done)
        alike = _normalised(self._pictures.log_prior() + likeness) + np.log1p(-2 * _NEWCOMER)
        priors = np.append(alike, np.log([_NEWCOMER] * 2))
        weights = np.exp(_normalised(priors + _TEMPERATURE * np.concatenate(fits)))
        return Mixture(np.vstack(means), np.vstack(deviations), weights)

    def runs(self, observations: Sequence[Observation]) -> Array:
        """The chance of every configuration to complete."""
        mean, covariance = self._failures
        if not observations:
            return 1 - np.clip(mean, _LEAST, _MOST)
        ordered = [one for one in observations if one.ok] + [one for one in observations if not one.ok]
        rows = np.array([one.row for one in ordered], dtype=np.intp)
        shown = np.array([float(not one.ok) for one in ordered])
        given = condition(covariance[np.ix_(rows, rows)], shown - mean[rows], _FAILURE_NOISE)
        return 1 - np.clip(mean + given.mean(covariance[:, rows]), _LEAST, _MOST)

    def belief(self, observations: Sequence[Observation]) -> Belief | None:
        """Ranges of seconds; None before anything is known of this or another workload."""
        tried = sum(one.ok for one in observations)
        if not tried and self.first_pictures is None:
            return None
        mixture = self.mixture(observations)
        low, value, high = (np.exp(_quantile(mixture, level)) for level in (_TAIL, 0.5, 1 - _TAIL))
        count = len(self.space)
        sources = [f"{len(self.others)} other workloads"] if self.others else []
        sources += [f"{tried} trial{'' if tried == 1 else 's'} elsewhere"] if tried else []
        why = (f"learned from {' and '.join(sources)}",) * count
        return Belief(low, value, high, self.runs(observations), (MODEL,) * count, why)

    rule_name = "rule:same-time-everywhere"

    def rule_range(self, row: int, observations: Sequence[Observation]) -> tuple[float, float, float] | None:
        """Every configuration takes as long as the trials so far, by their geometric mean."""
        done = [one.seconds for one in observations if one.ok]
        if not done:
            return None
        value = float(np.exp(np.log(done).mean()))
        return value / _RULE_OFF, value, value * _RULE_OFF

    def source(self, evidence: str) -> str:
        return "the mean of the trials" if evidence == RULE else "what other workloads did"

    def memory(self, row: int) -> float | None:
        return None

    def _drawn(self) -> _Pictures:
        """The pictures of all other workloads."""
        space, used = self.space, self._used
        stretches = _STRETCHES if np.ptp(np.nan_to_num(space.setting("nodes"))) > 0 else (0.0,)
        centre = _places(space)[:, used].mean(axis=0)
        there = [_places(space, stretch)[:, used] - centre for stretch in stretches]
        log_seconds, failing = [], []
        for case in self.others:
            here = _case_places(space, case)[:, used] - centre
            exact = _same_configurations(space, case)
            for stretch, targets in zip(stretches, there, strict=True):
                known = exact if stretch == 0 else []
                log_seconds.append(_times(case, here, targets, known))
                failing.append(_failures(case, here, targets, known))
        count = len(stretches)
        shared = [float(len(space.words & _words(case))) for case in self.others]
        return _Pictures(
            np.array(log_seconds).reshape(-1, len(space)),
            np.array(failing).reshape(-1, len(space)),
            np.repeat(np.arange(len(self.others)), count),
            np.tile(stretches, len(self.others)),
            np.repeat(shared, count),
            np.repeat([bool(case.ok.any()) for case in self.others], count).astype(bool),
        )

    @cached_property
    def _groups(self) -> tuple[_Group, ...]:
        """Processes around the pictures, then the two newcomers."""
        here, pictures = self._here, self._pictures
        covariance = _PRIOR_SMOOTH * _nearness(here, here) + _PRIOR_SLOPE * _slope(here, here)
        mean, level, level_variance = np.zeros(len(self.space)), 0.0, _NO_LEVEL
        plain = pictures.log_seconds[pictures.unstretched]
        if len(plain):
            levels = plain.mean(axis=1, keepdims=True)
            mean, level = (plain - levels).mean(axis=0), float(levels.mean())
            apart = plain - levels - mean
            covariance = (_PRIOR_WORKLOADS * covariance + apart.T @ apart) / (_PRIOR_WORKLOADS + len(plain))
            level_variance = max(float(levels.var()), _LEAST_LEVEL)
        newcomer = (mean + level)[None]
        curves = np.where(pictures.completed[:, None], pictures.log_seconds, newcomer)
        return (
            _Group(curves, _NEAR * covariance + level_variance),
            _Group(newcomer, covariance + level_variance),
            _Group(newcomer, _WIDE * covariance + level_variance),
        )

    @cached_property
    def _failures(self) -> tuple[Array, Array]:
        """Mean and covariance over configurations of a number that is 1 where a run fails."""
        here, pictures = _REACH * self._here, self._pictures
        covariance = _FAILURE_NEAR * _nearness(here, here) + _FAILURE_SLOPE * _slope(self._here, self._here)
        if not len(pictures.failing):
            return np.full(len(self.space), _WITHOUT_OTHERS), covariance
        mean = _ALIKE * self._first_weights @ pictures.failing
        mean = mean + (1 - _ALIKE) * pictures.failing.mean(axis=0)
        plain = pictures.failing[pictures.stretch == 0]
        apart = plain - plain.mean(axis=0)
        return mean, covariance + _TOGETHER * apart.T @ apart / len(plain)

    def _likeness(self, rows: NDArray[np.intp], observations: Sequence[Observation]) -> Array:
        """Log weights of the pictures by the metrics that trials showed beside their times."""
        known, scale = self._metrics
        shown = np.array([[one.metrics.get(name, np.nan) for name in METRICS] for one in observations])
        shown = shown.reshape(-1, len(METRICS))
        counted = ~np.isnan(shown) & (scale > 0)
        if not counted.any() or not len(known):
            return np.zeros(len(self._pictures.case))
        apart = ((known[:, rows] - _squashed(shown)) / np.where(scale > 0, scale, 1.0)) ** 2
        apart = np.where(np.isnan(apart), _UNRELATED, apart)
        distance = (apart * counted).sum(axis=(1, 2)) / counted.sum()
        return np.asarray(-_METRICS * np.sqrt(len(observations)) * distance[self._pictures.case])

    @cached_property
    def _metrics(self) -> tuple[Array, Array]:
        """The others' metrics in the space's configurations, NaN where unknown, and their deviations."""
        found = np.full((len(self.others), len(self.space), len(METRICS)), np.nan)
        for number, case in enumerate(self.others):
            for row, own in _same_configurations(self.space, case):
                found[number, row] = _squashed(case.metrics[own])
        known = ~np.isnan(found)
        count = np.maximum(known.sum(axis=(0, 1)), 1)
        mean = np.where(known, found, 0.0).sum(axis=(0, 1)) / count
        return found, np.sqrt(np.where(known, (found - mean) ** 2, 0.0).sum(axis=(0, 1)) / count)


def _words(case: Case) -> frozenset[str]:
    """Words of its name: "join-spark-huge" has join, spark and huge."""
    return frozenset({*case.name.split("-"), case.data} - {""})


def _coordinates(settings: Array, stretch: float = 0.0) -> Array:
    """Coordinates in which configurations 1 apart are hardly alike; NaN where a setting is unknown."""
    column = {name: settings[:, SETTINGS.index(name)] for name in SCALES}
    logs = {name: np.log2(np.where(values > 0, values, np.nan)) for name, values in column.items()}
    machines = np.nan_to_num(logs.pop("nodes")) - stretch
    memory, cpus, price = (logs.pop(name) for name in ("memory_bytes", "cpus", "price_per_hour"))
    in_all = memory if not np.isnan(memory).any() else price  # what is dearer mostly has more memory
    return np.column_stack(
        [
            (machines + in_all) / _TOTALS,
            (machines + cpus) / _TOTALS,
            cpus / _MACHINE,
            (memory - cpus) / _PER_CPU,
            (price - cpus) / _PER_CPU,
            *(values / _OTHER for values in logs.values()),
            settings[:, len(SCALES) :] / _SWITCH,
        ]
    )


def _places(space: Space, stretch: float = 0.0) -> Array:
    """Coordinates of the space's configurations."""
    known = _coordinates(space.settings, stretch)
    return known if space.extra is None else np.column_stack([known, space.extra])


def _case_places(space: Space, case: Case) -> Array:
    """Coordinates of a case's configurations, which are all in the space if that has `extra` settings."""
    known = _coordinates(case.settings)
    if space.extra is None:
        return known
    row_of = {name: row for row, name in enumerate(space.names)}
    return np.column_stack([known, space.extra[[row_of[name] for name in case.configurations]]])


def _used_coordinates(space: Space, others: Sequence[Case]) -> NDArray[np.bool_]:
    """Coordinates that are known everywhere and differ somewhere."""
    found = np.vstack([_places(space), *(_case_places(space, case) for case in others)])
    return np.asarray(~np.isnan(found).any(axis=0) & (np.ptp(np.nan_to_num(found), axis=0) > 1e-6))


def _nearness(first: Array, second: Array) -> Array:
    """Squared-exponential covariance: 1 at the same place."""
    return np.asarray(np.exp(-0.5 * ((first[:, None] - second[None]) ** 2).sum(axis=-1)))


def _slope(first: Array, second: Array) -> Array:
    """Covariance of a plane through the centre, with a slope of about one over all coordinates together."""
    return np.asarray(first @ second.T / max(first.shape[1], 1))


def _same_configurations(space: Space, case: Case) -> list[tuple[int, int]]:
    """Rows of the space and of the case that are the same configuration."""
    row_of = {name: row for row, name in enumerate(case.configurations)}
    return [(row, row_of[name]) for row, name in enumerate(space.names) if name in row_of]


def _times(case: Case, here: Array, there: Array, known: Sequence[tuple[int, int]]) -> Array:
    """Log seconds of a case, interpolated at `there`."""
    if not case.ok.any():
        return np.full(len(there), np.nan)
    ran, measured = here[case.ok], np.log(case.seconds[case.ok])
    level = measured.mean()
    given = condition(_SMOOTH * _nearness(ran, ran) + _TREND * _slope(ran, ran), measured - level, _ROUGH)
    drawn = level + given.mean(_SMOOTH * _nearness(there, ran) + _TREND * _slope(there, ran))
    for row, own in known:
        if case.ok[own]:
            drawn[row] = np.log(case.seconds[own])
    return np.asarray(drawn)


def _failures(case: Case, here: Array, there: Array, known: Sequence[tuple[int, int]]) -> Array:
    """The chance of a case to fail, interpolated at `there`."""
    failed = (~case.ok).astype(float)
    usual = failed.mean()
    given = condition(_nearness(here, here), failed - usual, _FAILURE_ROUGH)
    drawn = np.clip(usual + given.mean(_nearness(there, here)), 0.0, 1.0)
    for row, own in known:
        drawn[row] = failed[own]
    return np.asarray(drawn)


def _normalised(logs: Array) -> Array:
    """Log weights whose weights sum to one."""
    if not len(logs):
        return logs
    return np.asarray(logs - logs.max() - np.log(np.exp(logs - logs.max()).sum()))


def _squashed(metrics: Array) -> Array:
    """Amounts as logarithms; small ones, such as fractions, stay about as they are."""
    return np.log1p(np.maximum(metrics, 0.0))


def _quantile(mixture: Mixture, level: float) -> Array:
    """Where every configuration's mixture of normals reaches a level, by bisection."""
    from scipy.special import ndtr

    low = (mixture.means - 6 * mixture.deviations).min(axis=0)
    high = (mixture.means + 6 * mixture.deviations).max(axis=0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = mixture.weights @ ndtr((middle - mixture.means) / mixture.deviations) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)
