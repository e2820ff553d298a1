"""Ours: by how much the rule is off, learned from other jobs' points and, if there are some, this job's own.

A Gaussian process answers for the logarithm of measured over rule. The same process, with the same sizes,
serves a job nobody has seen, one with a few trials, and one with many measured points: only the rows it is
given differ. How wide a range must be is decided on jobs left out in turn.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.core import BadInputError
from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training.coordinates import rows_of, rows_of_points, rules
from trimtab.predict.jobs.training.fitting import Fitting
from trimtab.predict.jobs.training.local_runs import Local, LocalJob
from trimtab.predict.jobs.training.process import Process, Rows
from trimtab.predict.jobs.training.rule import Rule
from trimtab.predict.jobs.training.table import Configurations, Flags, Points

COVERAGE = 0.9
_FEW = 3  # rows of a job stand for "a few"
_MANY = 12  # from so many on, a job is well known
_DRAWS = 8  # of a few rows, per job left out
_WIDEST = 3.0  # deviations; with one job to learn from nothing can be calibrated


@dataclass(frozen=True, slots=True)
class Trial:
    """A tried configuration: seconds of a step, NaN if it failed; `fidelity` is the part of a full trial."""

    row: int
    step_seconds: float
    ok: bool = True
    fidelity: float = 1.0

    def __post_init__(self) -> None:
        if self.ok and not (self.step_seconds > 0 and math.isfinite(self.step_seconds)):
            raise BadInputError(
                f"a trial of row {self.row} has steps of {self.step_seconds:g} s; they take time"
            )
        if not 0 < self.fidelity <= 1:
            raise BadInputError(
                f"a trial of row {self.row} has fidelity {self.fidelity:g}; it is above 0, up to 1"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """What is thought of every configuration: log seconds of a step, and the chance that it fits."""

    mean: Array
    covariance: Array  # of what the process knows
    noise: float  # variance of one measurement, on top
    margin: float  # deviations on either side that hold `COVERAGE` of the truth
    fits: Array

    @property
    def deviation(self) -> Array:
        """Of what would be measured."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0) + self.noise)

    @property
    def step_seconds(self) -> tuple[Array, Array, Array]:
        """Low, answer and high."""
        width = self.margin * self.deviation
        return np.exp(self.mean - width), np.exp(self.mean), np.exp(self.mean + width)


@dataclass(frozen=True, slots=True)
class Backtest:
    """Mean absolute percentage errors of a step's seconds, on jobs left out in turn; their farthest."""

    model: float
    rule: float
    unlike: float


@dataclass(frozen=True, slots=True, eq=False)
class Ours:
    """What was learned from measured points."""

    process: Process
    known: Rows
    values: Array  # log of measured over rule
    noise: Array
    fitting: Fitting
    margins: Mapping[int, float]  # by how many rows of the job are known
    backtest: Backtest

    @classmethod
    def fitted(cls, points: Points, local: Local) -> "Ours":
        """From the points of any jobs; those that ran say how long, and all of them what fits."""
        by_job = rules(local, points.jobs)
        ran = points.only(points.ok)
        if not len(ran):
            raise BadInputError("none of the measured points is ok; there is nothing to learn from")
        rows, values = measured_rows(ran, local)
        noise = np.ones(len(values))
        process = Process.fitted(rows, values, noise)
        return cls(
            process,
            rows,
            values,
            noise,
            _fitting(points, by_job),
            _margins(process, rows, values, noise),
            _backtest(process, rows, values, noise),
        )

    def belief(self, job: LocalJob, where: Configurations, trials: Sequence[Trial] = ()) -> Belief:
        """Of a job by its local run, its trials, and its points among those learned from, if any."""
        rule = Rule.of(job)
        asked = rows_of(job, rule, where)
        said = np.log(rule.step_seconds(where))
        ran = [trial for trial in trials if trial.ok]
        tried = np.array([trial.row for trial in ran], dtype=np.intp)
        seconds = np.array([trial.step_seconds for trial in ran])
        known = self.known.joined(Rows(asked.shared[tried], asked.own[tried], asked.job[tried]))
        values = np.concatenate([self.values, np.log(seconds) - said[tried]])
        noise = np.concatenate([self.noise, [1.0 / trial.fidelity for trial in ran]])
        mean, covariance = self.process.given(known, values, noise, asked)
        own = int((known.job == job.name).sum())
        room = np.log(where.memory_bytes / rule.memory_bytes(where))
        return Belief(
            said + mean,
            covariance,
            self.process.sizes.noise,
            self.margins[0 if not own else _FEW if own < _MANY else _MANY],
            self.fitting.given(
                room,
                np.array([trial.row for trial in trials], dtype=np.intp),
                np.array([trial.ok for trial in trials], dtype=bool),
            ),
        )

    def unlikeness(self, job: LocalJob, where: Configurations) -> float:
        """How far the job's rows are from all that was learned from."""
        rows = rows_of(job, Rule.of(job), where)
        return _apart(rows, self.known.only(self.known.job != job.name))


def measured_rows(points: Points, local: Local) -> tuple[Rows, Array]:
    """The rows of points that ran, and their log of measured over rule."""
    ran = points.only(points.ok)
    rows, said = rows_of_points(ran, local, rules(local, ran.jobs))
    return rows, np.log(ran.step_seconds) - said


def _fitting(points: Points, by_job: Mapping[str, Rule]) -> Fitting:
    """From points that ran or were out of memory; other failures say nothing about memory."""
    told = points.only([status in ("ok", "out-of-memory") for status in points.status])
    room = np.zeros(len(told))
    whose = np.array(told.job)
    for job in told.jobs:
        where = told.where.only(whose == job)
        room[whose == job] = np.log(where.memory_bytes / by_job[job].memory_bytes(where))
    return Fitting.learned(room, told.ok)


def _margins(process: Process, rows: Rows, values: Array, noise: Array) -> dict[int, float]:
    """Deviations that hold `COVERAGE` of a left-out job's points; none, a few or all other rows known."""
    names = list(dict.fromkeys(rows.job.tolist()))
    if len(names) < 2:
        return dict.fromkeys((0, _FEW, _MANY), _WIDEST)
    random = np.random.default_rng(0)
    misses: dict[int, list[Array]] = {0: [], _FEW: []}  # one entry for each job
    for name in names:
        mine = rows.job == name
        misses[0].append(_misses(process, rows, values, noise, mine, ~mine))
        drawn = list[Array]()
        for _ in range(_DRAWS if mine.sum() > _FEW else 0):
            known = ~mine
            known[random.choice(np.flatnonzero(mine), _FEW, replace=False)] = True
            drawn.append(_misses(process, rows, values, noise, mine & ~known, known))
        misses[_FEW] += [np.concatenate(drawn)] if drawn else []
    among = process.covariance(rows, rows) + np.diag(process.sizes.noise * noise)
    inverse = np.linalg.inv(among)
    alone = np.abs(inverse @ values) / np.sqrt(np.diag(inverse))
    return {
        0: _widest(misses[0]),
        _FEW: _widest(misses[_FEW] or misses[0]),
        _MANY: float(np.quantile(alone, COVERAGE)),
    }


def _misses(process: Process, rows: Rows, values: Array, noise: Array, asked: Flags, known: Flags) -> Array:
    """By how many of its own deviations the process is off."""
    mean, covariance = process.given(rows.only(known), values[known], noise[known], rows.only(asked))
    deviation = np.sqrt(np.diag(covariance) + process.sizes.noise * noise[asked])
    return np.asarray(np.abs(values[asked] - mean) / deviation)


def _widest(misses: Sequence[Array]) -> float:
    """What the job needed that needed most: of fewer than ten, that is what a new one may need."""
    return max(float(np.quantile(each, COVERAGE)) for each in misses)


def _backtest(process: Process, rows: Rows, values: Array, noise: Array) -> Backtest:
    names = list(dict.fromkeys(rows.job.tolist()))
    if len(names) < 2:
        return Backtest(math.inf, 0.0, 0.0)
    model, rule, unlike = [], [], []
    for name in names:
        mine = rows.job == name
        mean, _ = process.given(rows.only(~mine), values[~mine], noise[~mine], rows.only(mine))
        model.append(float(np.abs(np.expm1(mean - values[mine])).mean()))
        rule.append(float(np.abs(np.expm1(-values[mine])).mean()))
        unlike.append(_apart(rows.only(mine), rows.only(~mine)))
    return Backtest(float(np.mean(model)), float(np.mean(rule)), max(unlike))


def _apart(rows: Rows, others: Rows) -> float:
    """The mean distance of a row to the nearest other one."""
    squares = ((rows.shared[:, None] - others.shared[None]) ** 2).sum(axis=2)
    return float(np.sqrt(squares.min(axis=1)).mean())
