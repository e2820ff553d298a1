"""Seconds of a training step in every configuration: the rule, the learned model, and the guard between them.

The rule divides the CPU seconds of a step in the local run by the CPUs of a machine. A Gaussian process
learns log(measured / rule) from other jobs' points and, if there are any, this job's own: part of it all jobs
share, part is each job's own. So rows of other jobs say what is common, and the job's own rows how it departs
from that; with none the own part only widens the range. How wide a range must be is calibrated on jobs held
out in turn.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.core import BadInputError
from trimtab.predict.backtest import leave_one_group_out
from trimtab.predict.fewshot import Array
from trimtab.predict.gaussian_process import Conditioned, TrendKernel, condition, fit_sizes
from trimtab.predict.guard import (
    MODEL,
    RULE,
    Ground,
    Verdict,
    judge,
    lost_backtest,
    out_of_distribution,
    too_wide,
)
from trimtab.predict.jobs.training_data import Configurations, Flags, Local, LocalJob, LocalRun, Points


def ring_share(workers: ArrayLike) -> Array:
    """Gradients a worker sends in a ring all-reduce, as a part of all: 0 alone, 1 of two, 1.5 of four."""
    count = np.asarray(workers, dtype=float)
    return np.asarray(2 * (count - 1) / count)


@dataclass(frozen=True, slots=True)
class Line:
    """A quantity of one worker: fixed + sample · batch + exchange · (gradients sent)."""

    fixed: float
    sample: float
    exchange: float

    @classmethod
    def through(cls, runs: Sequence[LocalRun], quantity: str) -> "Line":
        """The least relative squares through the runs; no part is negative."""
        from scipy.optimize import nnls

        batch = np.array([run.batch for run in runs])
        share = ring_share([run.workers for run in runs])
        values = np.array([getattr(run, quantity) for run in runs])
        columns = np.stack([np.ones(len(runs)), batch, share], axis=1) / values[:, None]
        size = np.linalg.norm(columns, axis=0)
        found, _ = nnls(columns / np.where(size > 0, size, 1.0), np.ones(len(runs)))
        return cls(*(found / np.where(size > 0, size, 1.0)).tolist())

    def at(self, batch: Array, workers: Array) -> Array:
        return np.asarray(self.fixed + self.sample * batch + self.exchange * ring_share(workers))


@dataclass(frozen=True, slots=True)
class StepTimeRule:
    """Lines through a job's local runs: CPU seconds, seconds without limits, and bytes, of a step."""

    cpu: Line
    unlimited: Line
    memory: Line
    gradient_bytes: float  # that a worker of two sends in a step

    @classmethod
    def of(cls, job: LocalJob) -> "StepTimeRule":
        if len({run.batch for run in job.runs}) < 2 and len(job.runs) < 2:
            raise BadInputError(
                f"{job.name}: one local run cannot tell what a sample takes from what a step takes; "
                "run it with two batch sizes at least"
            )
        sent = [run.bytes_step / ring_share(run.workers) for run in job.runs if run.workers > 1]
        return cls(
            Line.through(job.runs, "cpu_seconds_step"),
            Line.through(job.runs, "step_seconds"),
            Line.through(job.runs, "memory_peak_bytes"),
            float(np.mean(sent)) if sent else 0.0,
        )

    def cpu_seconds(self, where: Configurations) -> Array:
        """CPU seconds of a step, of one worker."""
        return self.cpu.at(where.batch, where.workers)

    def step_seconds(self, where: Configurations) -> Array:
        """The CPU seconds spread over the quota; never less than a step takes without limits."""
        free = self.unlimited.at(where.batch, where.workers)
        return np.maximum(self.cpu_seconds(where) / where.cpus, free)

    def memory_bytes(self, where: Configurations) -> Array:
        """The peak of one worker."""
        return self.memory.at(where.batch, where.workers)

    def fits(self, where: Configurations) -> Array:
        """1 where the peak is within the machine's memory, else 0."""
        return np.asarray(self.memory_bytes(where) <= where.memory_bytes, dtype=float)


_LEVEL, _SLOPE, _WIGGLE, _LENGTH = 0.1, 0.03, 0.05, 2.0
_OWN_LEVEL, _OWN_SLOPE, _OWN_WIGGLE, _OWN_LENGTH = 0.08, 0.02, 0.03, 2.0
_NOISE = 0.03
_ITERATIONS = 40
_TINY = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Where values lie: coordinates that jobs share, those of the configuration alone, and the row's job."""

    shared: Array  # (rows, coordinates)
    own: Array  # (rows, coordinates)
    job: NDArray[np.str_]  # (rows,)

    def __len__(self) -> int:
        return len(self.job)

    def joined(self, other: "Rows") -> "Rows":
        """These, then those."""
        return Rows(
            np.concatenate([self.shared, other.shared]),
            np.concatenate([self.own, other.own]),
            np.concatenate([self.job, other.job]),
        )

    def only(self, rows: NDArray[np.bool_]) -> "Rows":
        return Rows(self.shared[rows], self.own[rows], self.job[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Process:
    """Logarithms of the kernels' sizes: of the shared part, of the own part, and of the noise."""

    common: Array
    private: Array
    log_noise: float

    @classmethod
    def fitted(cls, rows: Rows, values: Array, noise: Array) -> "Process":
        """The likeliest sizes; `noise` are relative variances of the values' measurement."""
        shared, own = TrendKernel(rows.shared, rows.shared), TrendKernel(rows.own, rows.own)
        same = rows.job[:, None] == rows.job[None]
        common = TrendKernel.sizes(_LEVEL, _SLOPE, _WIGGLE, _LENGTH, rows.shared.shape[1])
        private = TrendKernel.sizes(_OWN_LEVEL, _OWN_SLOPE, _OWN_WIGGLE, _OWN_LENGTH, rows.own.shape[1])

        def of(logs: Array) -> Process:
            return cls(logs[: len(common)], logs[len(common) : -1], float(logs[-1]))

        def loss(logs: Array) -> tuple[float, Array]:
            at = of(logs)
            covariance = shared.covariance(at.common) + same * own.covariance(at.private)
            given = condition(covariance, values, at.noise * noise + _TINY)
            slope = given.loss_gradient
            by_noise = 2 * at.noise * (np.diag(slope) * noise).sum()
            gradients = (
                shared.gradient(at.common, slope),
                own.gradient(at.private, slope * same),
                [by_noise],
            )
            return -float(given.log_likelihood), np.concatenate(gradients)

        start = np.concatenate([common, private, [np.log(_NOISE)]])
        return of(fit_sizes(loss, start, _ITERATIONS, (-9.0, 4.0)))

    @property
    def noise(self) -> float:
        """Variance of one measurement."""
        return float(np.exp(2 * self.log_noise))

    def covariance(self, rows: Rows, others: Rows) -> Array:
        """Between any rows, without noise."""
        same = rows.job[:, None] == others.job[None]
        own = TrendKernel(rows.own, others.own).covariance(self.private)
        return np.asarray(TrendKernel(rows.shared, others.shared).covariance(self.common) + same * own)

    def conditioned(self, known: Rows, values: Array, noise: Array) -> Conditioned:
        """The process given values with relative noise."""
        return condition(self.covariance(known, known), values, self.noise * noise + _TINY)

    def given(self, known: Rows, values: Array, noise: Array, asked: Rows) -> tuple[Array, Array]:
        """Mean and covariance at the asked rows, given values with relative noise elsewhere."""
        prior = self.covariance(asked, asked)
        if not len(known):
            return np.zeros(len(asked)), prior
        across = self.covariance(asked, known)
        given = self.conditioned(known, values, noise)
        return given.mean(across), given.covariance(prior, across)


PERIOD = 0.1  # s; a quota is CPU seconds in each
_CPUS, _WORKERS = 0.2, 2.0  # in the middle of the coordinates

SHARED = (
    "CPUs",
    "workers",
    "periods of a step",
    "bytes per CPU second",
    "memory used",
    "batch",
    "local run off its line",
)
OWN = ("CPUs", "workers", "batch")


def rules(local: Local, jobs: tuple[str, ...]) -> Mapping[str, StepTimeRule]:
    """The rule of every job."""
    return {job: StepTimeRule.of(local[job]) for job in jobs}


def rows_of(job: LocalJob, rule: StepTimeRule, where: Configurations) -> Rows:
    """The rows of one job, coordinates about zero and of size about one."""
    cpu = rule.cpu_seconds(where)
    own = [
        np.log(where.cpus / _CPUS),
        np.log2(where.workers / _WORKERS),
        np.log(where.batch / np.exp(np.mean([np.log(run.batch) for run in job.runs]))),
    ]
    shared = [
        own[0],
        own[1],
        np.log(cpu / (PERIOD * where.cpus)),
        np.log1p(rule.gradient_bytes * (where.workers > 1) / cpu / 1e6) / 4.0,
        np.log(rule.memory_bytes(where) / where.memory_bytes),
        own[2],
        5.0 * _off_the_line(job, rule, where),
    ]
    return Rows(np.stack(shared, axis=1), np.stack(own, axis=1), np.full(len(where), job.name))


def rows_of_points(points: Points, local: Local, by_job: Mapping[str, StepTimeRule]) -> tuple[Rows, Array]:
    """The rows of measured points, and the rule's log seconds of a step there."""
    whose = np.array(points.job)
    shared, own = np.zeros((len(points), len(SHARED))), np.zeros((len(points), len(OWN)))
    said = np.zeros(len(points))
    for job in points.jobs:
        mine = whose == job
        where = points.where.only(mine)
        rows = rows_of(local[job], by_job[job], where)
        shared[mine], own[mine] = rows.shared, rows.own
        said[mine] = np.log(by_job[job].step_seconds(where))
    return Rows(shared, own, whose), said


def _off_the_line(job: LocalJob, rule: StepTimeRule, where: Configurations) -> Array:
    """By how much the most alike local run was off the line through all of them, in log seconds.

    That is the one with the same batch and as many workers, or the most there were; 0 for another batch.
    """
    most = max(run.workers for run in job.runs)
    off = dict[tuple[float, float], float]()
    for run in job.runs:
        line = rule.cpu.at(np.array([run.batch]), np.array([run.workers]))
        off[run.batch, run.workers] = float(np.log(run.cpu_seconds_step / line[0]))
    asked = zip(where.batch.tolist(), np.minimum(where.workers, most).tolist(), strict=True)
    return np.array([off.get(each, 0.0) for each in asked])


# Before anything is known: the limit a job needs is its local peak, give or take a tenth.
_SHIFT, _SPREAD = 0.0, 0.1
_SHIFT_DOUBT, _SPREAD_DOUBT = 0.2, 0.5
_NEVER, _ALWAYS = 1e-6, 1.0 - 1e-6


@dataclass(frozen=True, slots=True)
class Fitting:
    """log(limit / local peak) above which half of the jobs fit, and how gradual that is."""

    shift: float = _SHIFT
    spread: float = _SPREAD

    @classmethod
    def learned(cls, room: Array, fitted: NDArray[np.bool_]) -> "Fitting":
        """The likeliest, given log(limit / local peak) of measured points and whether they fitted."""
        from scipy.optimize import minimize

        def loss(place: Array) -> float:
            chance = cls(place[0], float(np.exp(place[1]))).chance(room)
            likely = np.where(fitted, chance, 1.0 - chance)
            doubt = (place[0] - _SHIFT) / _SHIFT_DOUBT, (place[1] - np.log(_SPREAD)) / _SPREAD_DOUBT
            return float(-np.log(likely).sum() + 0.5 * (doubt[0] ** 2 + doubt[1] ** 2))

        found = minimize(loss, [_SHIFT, np.log(_SPREAD)], method="Nelder-Mead").x
        return cls(float(found[0]), float(np.exp(found[1])))

    def chance(self, room: Array) -> Array:
        """That a job with so much room fits."""
        from scipy.special import ndtr

        return np.asarray(np.clip(ndtr((room - self.shift) / self.spread), _NEVER, _ALWAYS))

    def given(self, room: Array, tried: NDArray[np.intp], fitted: NDArray[np.bool_]) -> Array:
        """The same after trials of this job: what has no less room than one that fitted, fits."""
        chance = self.chance(room)
        for row, did in zip(tried, fitted, strict=True):
            chance[room >= room[row] if did else room <= room[row]] = did
        chance[tried] = fitted
        return chance


COVERAGE = 0.9
_FEW = 3  # rows of a job stand for "a few"
_MANY = 12  # from so many on, a job is well known
_DRAWS = 8  # of a few rows, per job left out
_WIDEST = 3.0  # deviations; with one job to learn from nothing can be calibrated


@dataclass(frozen=True, slots=True)
class StepTrial:
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
class StepBelief:
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
class StepTimeModel:
    """What was learned from measured points."""

    process: Process
    known: Rows
    values: Array  # log of measured over rule
    noise: Array
    fitting: Fitting
    margins: Mapping[int, float]  # by how many rows of the job are known
    backtest: Backtest

    @classmethod
    def fitted(cls, points: Points, local: Local) -> "StepTimeModel":
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

    def belief(self, job: LocalJob, where: Configurations, trials: Sequence[StepTrial] = ()) -> StepBelief:
        """Of a job by its local run, its trials, and its points among those learned from, if any."""
        rule = StepTimeRule.of(job)
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
        return StepBelief(
            said + mean,
            covariance,
            self.process.noise,
            self.margins[0 if not own else _FEW if own < _MANY else _MANY],
            self.fitting.given(
                room,
                np.array([trial.row for trial in trials], dtype=np.intp),
                np.array([trial.ok for trial in trials], dtype=bool),
            ),
        )

    def unlikeness(self, job: LocalJob, where: Configurations) -> float:
        """How far the job's rows are from all that was learned from."""
        rows = rows_of(job, StepTimeRule.of(job), where)
        return _apart(rows, self.known.only(self.known.job != job.name))


def measured_rows(points: Points, local: Local) -> tuple[Rows, Array]:
    """The rows of points that ran, and their log of measured over rule."""
    ran = points.only(points.ok)
    rows, said = rows_of_points(ran, local, rules(local, ran.jobs))
    return rows, np.log(ran.step_seconds) - said


def _fitting(points: Points, by_job: Mapping[str, StepTimeRule]) -> Fitting:
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
    folds = list(leave_one_group_out(rows.job))
    if len(folds) < 2:
        return dict.fromkeys((0, _FEW, _MANY), _WIDEST)
    random = np.random.default_rng(0)
    misses: dict[int, list[Array]] = {0: [], _FEW: []}  # one entry for each job
    for fold in folds:
        mine = fold.rows
        misses[0].append(_misses(process, rows, values, noise, mine, ~mine))
        drawn = list[Array]()
        for _ in range(_DRAWS if mine.sum() > _FEW else 0):
            known = ~mine
            known[random.choice(np.flatnonzero(mine), _FEW, replace=False)] = True
            drawn.append(_misses(process, rows, values, noise, mine & ~known, known))
        misses[_FEW] += [np.concatenate(drawn)] if drawn else []
    residual, variance = process.conditioned(rows, values, noise).leave_one_out
    alone = np.abs(residual) / np.sqrt(variance)
    return {
        0: _widest(misses[0]),
        _FEW: _widest(misses[_FEW] or misses[0]),
        _MANY: float(np.quantile(alone, COVERAGE)),
    }


def _misses(process: Process, rows: Rows, values: Array, noise: Array, asked: Flags, known: Flags) -> Array:
    """By how many of its own deviations the process is off."""
    mean, covariance = process.given(rows.only(known), values[known], noise[known], rows.only(asked))
    deviation = np.sqrt(np.diag(covariance) + process.noise * noise[asked])
    return np.asarray(np.abs(values[asked] - mean) / deviation)


def _widest(misses: Sequence[Array]) -> float:
    """What the job needed that needed most: of fewer than ten, that is what a new one may need."""
    return max(float(np.quantile(each, COVERAGE)) for each in misses)


def _backtest(process: Process, rows: Rows, values: Array, noise: Array) -> Backtest:
    folds = list(leave_one_group_out(rows.job))
    if len(folds) < 2:
        return Backtest(math.inf, 0.0, 0.0)
    model, rule, unlike = [], [], []
    for fold in folds:
        mine = fold.rows
        mean, _ = process.given(rows.only(~mine), values[~mine], noise[~mine], rows.only(mine))
        model.append(float(np.abs(np.expm1(mean - values[mine])).mean()))
        rule.append(float(np.abs(np.expm1(-values[mine])).mean()))
        unlike.append(_apart(rows.only(mine), rows.only(~mine)))
    return Backtest(float(np.mean(model)), float(np.mean(rule)), max(unlike))


def _apart(rows: Rows, others: Rows) -> float:
    """The mean distance of a row to the nearest other one."""
    squares = ((rows.shared[:, None] - others.shared[None]) ** 2).sum(axis=2)
    return float(np.sqrt(squares.min(axis=1)).mean())


TRIAL = "trial"
_TOO_FAR = 2.0  # times as far as any job that was left out
_RULE_RANGE = 1.5  # either way, where nothing was learned


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """Seconds of a step for every configuration, who says so, and why; `fits` is a chance."""

    low: Array
    value: Array
    high: Array
    fits: Array
    by: tuple[str, ...]
    reasons: tuple[str, ...]
    rule: Array
    model: Array
    belief: StepBelief


def forecast(
    ours: StepTimeModel, job: LocalJob, where: Configurations, trials: Sequence[StepTrial] = ()
) -> Forecast:
    """All configurations of a job, from its local run, other jobs, and its trials."""
    belief = ours.belief(job, where, trials)
    rule = StepTimeRule.of(job)
    said = rule.step_seconds(where)
    low, value, high = belief.step_seconds
    verdict = _judged(ours, job, where, high / low)
    by_model = verdict.by_model
    range_of_rule = max(_RULE_RANGE, 1.0 + 2.0 * ours.backtest.rule)
    by = [MODEL if learned else RULE for learned in by_model]
    reasons = [verdict.why(row) for row in range(len(where))]
    low = np.where(by_model, low, said / range_of_rule)
    high = np.where(by_model, high, said * range_of_rule)
    chosen = np.where(by_model, value, said)
    for trial in trials:
        if trial.ok and trial.fidelity >= 1:
            noise = np.exp(belief.margin * belief.noise**0.5)
            chosen[trial.row] = trial.step_seconds
            low[trial.row], high[trial.row] = trial.step_seconds / noise, trial.step_seconds * noise
            by[trial.row], reasons[trial.row] = TRIAL, "it was tried"
    return Forecast(low, chosen, high, belief.fits, tuple(by), tuple(reasons), said, value, belief)


def _judged(ours: StepTimeModel, job: LocalJob, where: Configurations, spans: Array) -> Verdict:
    """Whether the rule or the model answers for each configuration; `spans` are the model's high over low."""
    tested, jobs = ours.backtest, len(set(ours.known.job.tolist()))
    errors = f"on jobs left out the model was off by {tested.model:.1%}, the rule by {tested.rule:.1%}"
    alone = "there is only one job to learn from, so nobody knows how good the model is"
    far, limit = 0.0 if jobs < 2 else ours.unlikeness(job, where), _TOO_FAR * tested.unlike
    unlike = f"the job is unlike the {jobs} learned from (unlikeness {far:.1f}, limit {limit:.1f})"
    grounds = (
        Ground(RULE, alone, jobs < 2),
        lost_backtest(tested.model, tested.rule, errors),
        out_of_distribution(far, limit, unlike),
        too_wide(spans),
        Ground(MODEL, errors),
    )
    return judge(grounds, len(where))
