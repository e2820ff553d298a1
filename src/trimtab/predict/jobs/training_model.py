"""Seconds of a training step in every configuration: the rule, the learned model, and the guard between them.

The rule divides the CPU seconds of a step in the local run by the CPUs of a machine. A Gaussian process
learns log(measured / rule) from other jobs' points and, if there are any, this job's own: one part is shared
by all jobs, one is each job's own. So rows of other jobs inform the shared part, and the job's own rows how
it departs from that; without any, the own part only widens the interval. The width of intervals is calibrated
on jobs held out in turn.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.core import BadInputError
from trimtab.predict.backtest import leave_one_group_out
from trimtab.predict.fewshot.case import Array
from trimtab.predict.gaussian_process import Conditioned, TrendKernel, condition, fit_sizes
from trimtab.predict.guard import MODEL, RULE, Ground, judge, lost_backtest, out_of_distribution, too_wide
from trimtab.predict.jobs.training_data import Configurations, Local, LocalJob, LocalJobRun, Points
from trimtab.predict.tables import Flags, join_rows, take_rows


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
    def through(cls, runs: Sequence[LocalJobRun], quantity: str) -> "Line":
        """Least relative squares through the runs; no part is negative."""
        from scipy.optimize import nnls

        batch = np.array([run.batch for run in runs])
        values = np.array([getattr(run, quantity) for run in runs])
        share = ring_share([run.workers for run in runs])
        columns = np.stack([np.ones(len(runs)), batch, share], axis=1) / values[:, None]
        size = np.linalg.norm(columns, axis=0)
        size = np.where(size > 0, size, 1.0)
        parts, _ = nnls(columns / size, np.ones(len(runs)))
        return cls(*(parts / size).tolist())

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
        if len(job.runs) < 2:
            raise BadInputError(
                f"{job.name}: one local run does not separate the time of a sample from that of a step; "
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
        return np.maximum(self.cpu_seconds(where) / where.cpus, self.unlimited.at(where.batch, where.workers))

    def memory_bytes(self, where: Configurations) -> Array:
        """The peak of one worker."""
        return self.memory.at(where.batch, where.workers)

    def fits(self, where: Configurations) -> Array:
        """1 where the peak is within the machine's memory, else 0."""
        return np.asarray(self.memory_bytes(where) <= where.memory_bytes, dtype=float)

    def log_room(self, where: Configurations) -> Array:
        """log(memory limit / local peak)."""
        return np.asarray(np.log(where.memory_bytes / self.memory_bytes(where)))


# Where fitting starts: level, slope, smooth part and its length of the shared and of the own kernel.
_SHARED_SIZES = (0.1, 0.03, 0.05, 2.0)
_OWN_SIZES = (0.08, 0.02, 0.03, 2.0)
_NOISE = 0.03
_ITERATIONS = 40
_TINY = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Places of values: coordinates that jobs share, those of the configuration alone, and the row's job."""

    shared: Array  # (rows, coordinates)
    own: Array  # (rows, coordinates)
    job: NDArray[np.str_]  # (rows,)

    def __len__(self) -> int:
        return len(self.job)


@dataclass(frozen=True, slots=True, eq=False)
class StepTimeProcess:
    """Logarithms of the kernels' sizes: of the shared part, of the own part, and of the noise."""

    shared: Array
    own: Array
    log_noise: float

    @classmethod
    def fitted(cls, rows: Rows, values: Array, noise: Array) -> "StepTimeProcess":
        """Sizes of maximal likelihood; `noise` are relative variances of the values' measurement."""
        shared, own = TrendKernel(rows.shared, rows.shared), TrendKernel(rows.own, rows.own)
        same = rows.job[:, None] == rows.job[None]
        start = TrendKernel.sizes(*_SHARED_SIZES, rows.shared.shape[1])
        own_start = TrendKernel.sizes(*_OWN_SIZES, rows.own.shape[1])

        def of(logs: Array) -> StepTimeProcess:
            return cls(logs[: len(start)], logs[len(start) : -1], float(logs[-1]))

        def loss(logs: Array) -> tuple[float, Array]:
            at = of(logs)
            covariance = shared.covariance(at.shared) + same * own.covariance(at.own)
            given = condition(covariance, values, at.noise * noise + _TINY)
            slope = given.loss_gradient
            by_noise = 2 * at.noise * (np.diag(slope) * noise).sum()
            gradients = shared.gradient(at.shared, slope), own.gradient(at.own, slope * same), [by_noise]
            return -float(given.log_likelihood), np.concatenate(gradients)

        return of(
            fit_sizes(loss, np.concatenate([start, own_start, [np.log(_NOISE)]]), _ITERATIONS, (-9.0, 4.0))
        )

    @property
    def noise(self) -> float:
        """Variance of one measurement."""
        return float(np.exp(2 * self.log_noise))

    def covariance(self, rows: Rows, others: Rows) -> Array:
        """Covariance between any rows, without noise."""
        same = rows.job[:, None] == others.job[None]
        own = TrendKernel(rows.own, others.own).covariance(self.own)
        return np.asarray(TrendKernel(rows.shared, others.shared).covariance(self.shared) + same * own)

    def conditioned(self, known: Rows, values: Array, noise: Array) -> Conditioned:
        return condition(self.covariance(known, known), values, self.noise * noise + _TINY)

    def given(self, known: Rows, values: Array, noise: Array, targets: Rows) -> tuple[Array, Array]:
        """Mean and covariance at the targets, given values with relative noise elsewhere."""
        prior = self.covariance(targets, targets)
        if not len(known):
            return np.zeros(len(targets)), prior
        across = self.covariance(targets, known)
        given = self.conditioned(known, values, noise)
        return given.mean(across), given.covariance(prior, across)


PERIOD = 0.1  # s; a quota is CPU seconds in each
_CPUS, _WORKERS = 0.2, 2.0  # in the middle of the coordinates

SHARED = (
    "CPUs", "workers", "periods of a step", "bytes per CPU second", "memory used", "batch",
    "local run off its line",
)  # fmt: skip


def rows_of(job: LocalJob, rule: StepTimeRule, where: Configurations) -> Rows:
    """The rows of one job, coordinates about zero and of size about one."""
    cpu = rule.cpu_seconds(where)
    cpus, workers, batch = (
        np.log(where.cpus / _CPUS),
        np.log2(where.workers / _WORKERS),
        np.log(where.batch / np.exp(np.mean([np.log(run.batch) for run in job.runs]))),
    )
    # Error of the line at the most alike local run: same batch, as many workers or the most there are.
    off_line = {
        (run.batch, run.workers): float(
            np.log(run.cpu_seconds_step / rule.cpu.at(np.array([run.batch]), np.array([run.workers]))[0])
        )
        for run in job.runs
    }
    most = max(run.workers for run in job.runs)
    alike = zip(where.batch.tolist(), np.minimum(where.workers, most).tolist(), strict=True)
    shared = [
        cpus,
        workers,
        np.log(cpu / (PERIOD * where.cpus)),
        np.log1p(rule.gradient_bytes * (where.workers > 1) / cpu / 1e6) / 4.0,
        -rule.log_room(where),
        batch,
        5.0 * np.array([off_line.get(key, 0.0) for key in alike]),
    ]
    return Rows(
        np.stack(shared, axis=1), np.stack([cpus, workers, batch], axis=1), np.full(len(where), job.name)
    )


# Prior of the memory limit that a job needs: its local peak, give or take a tenth.
_SHIFT, _SPREAD = 0.0, 0.1
_SHIFT_DEVIATION, _SPREAD_DEVIATION = 0.2, 0.5
_NEVER, _ALWAYS = 1e-6, 1.0 - 1e-6


@dataclass(frozen=True, slots=True)
class Fitting:
    """log(limit / local peak) above which half of the jobs fit, and how gradual that is."""

    shift: float = _SHIFT
    spread: float = _SPREAD

    @classmethod
    def learned(cls, room: Array, fitted: Flags) -> "Fitting":
        """Maximum a posteriori, given log(limit / local peak) of measured points and whether they fitted."""
        from scipy.optimize import minimize

        def loss(place: Array) -> float:
            chance = cls(place[0], float(np.exp(place[1]))).chance(room)
            likely = np.where(fitted, chance, 1.0 - chance)
            away = (place - [_SHIFT, np.log(_SPREAD)]) / [_SHIFT_DEVIATION, _SPREAD_DEVIATION]
            return float(-np.log(likely).sum() + 0.5 * (away**2).sum())

        shift, log_spread = minimize(loss, [_SHIFT, np.log(_SPREAD)], method="Nelder-Mead").x
        return cls(float(shift), float(np.exp(log_spread)))

    def chance(self, room: Array) -> Array:
        """Probability that a job with so much room fits."""
        from scipy.special import ndtr

        return np.asarray(np.clip(ndtr((room - self.shift) / self.spread), _NEVER, _ALWAYS))

    def after(self, room: Array, tried: NDArray[np.intp], fitted: Flags) -> Array:
        """`chance` after trials of this job: rows with no less room than one that fitted, fit."""
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
        if self.ok and not 0 < self.step_seconds < math.inf:
            raise BadInputError(
                f"a trial of row {self.row} has steps of {self.step_seconds:g} s; they take more than zero"
            )
        if not 0 < self.fidelity <= 1:
            raise BadInputError(
                f"a trial of row {self.row} has fidelity {self.fidelity:g}; it is above 0 and at most 1"
            )


@dataclass(frozen=True, slots=True, eq=False)
class StepBelief:
    """Prediction for every configuration: log seconds of a step, and the chance that it fits."""

    mean: Array
    covariance: Array  # without the noise of a measurement
    noise: float  # variance of one measurement
    margin: float  # deviations on either side that hold `COVERAGE` of the truth
    fits: Array

    @property
    def deviation(self) -> Array:
        """Standard deviation of a measurement."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0) + self.noise)

    @property
    def step_seconds(self) -> tuple[Array, Array, Array]:
        """Low, value and high."""
        width = self.margin * self.deviation
        return np.exp(self.mean - width), np.exp(self.mean), np.exp(self.mean + width)


@dataclass(frozen=True, slots=True)
class Backtest:
    """Mean absolute percentage errors of step seconds on jobs left out in turn; the largest unlikeness."""

    model: float
    rule: float
    unlike: float


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRatios:
    """Log of measured over rule at every row, with relative variances of the measurement."""

    rows: Rows
    values: Array
    noise: Array

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class StepTimeModel:
    """The fitted process with the points it was fitted to, margins and backtest."""

    process: StepTimeProcess
    known: MeasuredRatios
    fitting: Fitting
    margins: Mapping[int, float]  # by how many rows of the job are known
    backtest: Backtest

    @classmethod
    def fitted(cls, points: Points, local: Local) -> "StepTimeModel":
        """Fit to points of any jobs: times to those that ran, memory to those that ran or ran out of it."""
        known = measured_rows(points, local)
        if not len(known):
            raise BadInputError("none of the measured points is ok; there is nothing to learn from")
        process = StepTimeProcess.fitted(known.rows, known.values, known.noise)
        # Other failures say nothing about memory.
        tried = points.only([status in ("ok", "out-of-memory") for status in points.status])
        room, names = np.zeros(len(tried)), np.array(tried.job)
        for job in tried.jobs:
            room[names == job] = StepTimeRule.of(local[job]).log_room(tried.where.only(names == job))
        fitting = Fitting.learned(room, tried.ok)
        return cls(process, known, fitting, _margins(process, known), _backtest(process, known))

    def predict(self, rows: Rows) -> Array:
        """Expected log of measured over rule."""
        return self.process.given(self.known.rows, self.known.values, self.known.noise, rows)[0]

    def belief(self, job: LocalJob, where: Configurations, trials: Sequence[StepTrial] = ()) -> StepBelief:
        """Prediction from the job's local run, its trials, and its points among those learned from."""
        rule = StepTimeRule.of(job)
        targets = rows_of(job, rule, where)
        by_rule = np.log(rule.step_seconds(where))
        ran = [trial for trial in trials if trial.ok]
        tried = np.array([trial.row for trial in ran], dtype=np.intp)
        log_seconds = np.log([trial.step_seconds for trial in ran])
        noise = np.array([1.0 / trial.fidelity for trial in ran])
        known = join_rows(
            self.known, MeasuredRatios(take_rows(targets, tried), log_seconds - by_rule[tried], noise)
        )
        mean, covariance = self.process.given(known.rows, known.values, known.noise, targets)
        own = int((known.rows.job == job.name).sum())
        fits = self.fitting.after(
            rule.log_room(where),
            np.array([trial.row for trial in trials], dtype=np.intp),
            np.array([trial.ok for trial in trials], dtype=bool),
        )
        margin = self.margins[0 if not own else _FEW if own < _MANY else _MANY]
        return StepBelief(by_rule + mean, covariance, self.process.noise, margin, fits)

    def unlikeness(self, job: LocalJob, where: Configurations) -> float:
        """Mean distance of the job's rows from other jobs' rows that were learned from."""
        rows = self.known.rows
        return _mean_distance(
            rows_of(job, StepTimeRule.of(job), where), take_rows(rows, rows.job != job.name)
        )


def measured_rows(points: Points, local: Local) -> MeasuredRatios:
    """The points that ran."""
    ran = points.only(points.ok)
    names, parts = np.array(ran.job), dict[str, MeasuredRatios]()
    if not len(ran):
        return MeasuredRatios(Rows(np.zeros((0, 0)), np.zeros((0, 0)), names), np.zeros(0), np.zeros(0))
    for job in ran.jobs:
        points_of_job = ran.only(names == job)
        rule = StepTimeRule.of(local[job])
        ratio = points_of_job.step_seconds / rule.step_seconds(points_of_job.where)
        parts[job] = MeasuredRatios(
            rows_of(local[job], rule, points_of_job.where), np.log(ratio), np.ones(len(ratio))
        )
    order = np.argsort(np.concatenate([np.flatnonzero(names == job) for job in ran.jobs]))
    return take_rows(join_rows(*parts.values()), order)


def _margins(process: StepTimeProcess, known: MeasuredRatios) -> dict[int, float]:
    """Deviations that hold `COVERAGE` of a left-out job's points; none, a few or all other rows known."""
    folds = list(leave_one_group_out(known.rows.job))
    if len(folds) < 2:
        return dict.fromkeys((0, _FEW, _MANY), _WIDEST)

    def misses(targets: Flags, training: Flags) -> Array:
        """Errors in units of the predicted deviation."""
        shown, hidden = take_rows(known, training), take_rows(known, targets)
        mean, covariance = process.given(shown.rows, shown.values, shown.noise, hidden.rows)
        deviation = np.sqrt(np.diag(covariance) + process.noise * hidden.noise)
        return np.asarray(np.abs(hidden.values - mean) / deviation)

    def largest(by_job: Sequence[Array]) -> float:
        """The margin of the worst job: with fewer than ten jobs, a new one may need as much."""
        return max(float(np.quantile(errors, COVERAGE)) for errors in by_job)

    random = np.random.default_rng(0)
    without, with_few = list[Array](), list[Array]()  # one entry for each job
    for fold in folds:
        without.append(misses(fold.rows, fold.training))
        drawn = list[Array]()
        for _ in range(_DRAWS if fold.rows.sum() > _FEW else 0):
            training = fold.training
            training[random.choice(np.flatnonzero(fold.rows), _FEW, replace=False)] = True
            drawn.append(misses(fold.rows & ~training, training))
        with_few += [np.concatenate(drawn)] if drawn else []
    residual, variance = process.conditioned(known.rows, known.values, known.noise).leave_one_out
    alone = float(np.quantile(np.abs(residual) / np.sqrt(variance), COVERAGE))
    return {0: largest(without), _FEW: largest(with_few or without), _MANY: alone}


def _backtest(process: StepTimeProcess, known: MeasuredRatios) -> Backtest:
    folds = list(leave_one_group_out(known.rows.job))
    if len(folds) < 2:
        return Backtest(math.inf, 0.0, 0.0)
    model, rule, unlike = [], [], []
    for fold in folds:
        shown, hidden = take_rows(known, fold.training), take_rows(known, fold.rows)
        mean, _ = process.given(shown.rows, shown.values, shown.noise, hidden.rows)
        model.append(float(np.abs(np.expm1(mean - hidden.values)).mean()))
        rule.append(float(np.abs(np.expm1(-hidden.values)).mean()))
        unlike.append(_mean_distance(hidden.rows, shown.rows))
    return Backtest(float(np.mean(model)), float(np.mean(rule)), max(unlike))


def _mean_distance(rows: Rows, others: Rows) -> float:
    squares = ((rows.shared[:, None] - others.shared[None]) ** 2).sum(axis=2)
    return float(np.sqrt(squares.min(axis=1)).mean())


TRIAL = "trial"
_TOO_FAR = 2.0  # times as far as any job that was left out
_RULE_RANGE = 1.5  # either way, where nothing was learned


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """Seconds of a step for every configuration, with source and reason; `fits` is a chance."""

    low: Array
    value: Array
    high: Array
    fits: Array
    by: tuple[str, ...]  # RULE, MODEL or TRIAL
    reasons: tuple[str, ...]
    rule: Array
    model: Array
    belief: StepBelief


def forecast(
    model: StepTimeModel, job: LocalJob, where: Configurations, trials: Sequence[StepTrial] = ()
) -> Forecast:
    """All configurations of a job, from its local run, other jobs, and its trials."""
    belief = model.belief(job, where, trials)
    by_rule = StepTimeRule.of(job).step_seconds(where)
    low, by_model, high = belief.step_seconds
    tested, jobs = model.backtest, len(set(model.known.rows.job.tolist()))
    errors = f"on jobs left out the model was off by {tested.model:.1%}, the rule by {tested.rule:.1%}"
    alone = "only one job was learned from, so the model's error is not known"
    distance, limit = 0.0 if jobs < 2 else model.unlikeness(job, where), _TOO_FAR * tested.unlike
    unlike = f"the job is unlike the {jobs} learned from (unlikeness {distance:.1f}, limit {limit:.1f})"
    verdict = judge(
        (
            Ground(RULE, alone, jobs < 2),
            lost_backtest(tested.model, tested.rule, errors),
            out_of_distribution(distance, limit, unlike),
            too_wide(high / low),
            Ground(MODEL, errors),
        ),
        len(where),
    )
    rule_range = max(_RULE_RANGE, 1.0 + 2.0 * tested.rule)
    by = [verdict.chosen_by(row) for row in range(len(where))]
    reasons = [verdict.why(row) for row in range(len(where))]
    low = np.where(verdict.by_model, low, by_rule / rule_range)
    high = np.where(verdict.by_model, high, by_rule * rule_range)
    value = np.where(verdict.by_model, by_model, by_rule)
    noise = np.exp(belief.margin * belief.noise**0.5)
    for trial in trials:
        if trial.ok and trial.fidelity >= 1:
            seconds = value[trial.row] = trial.step_seconds
            low[trial.row], high[trial.row] = seconds / noise, seconds * noise
            by[trial.row], reasons[trial.row] = TRIAL, "it was tried"
    return Forecast(low, value, high, belief.fits, tuple(by), tuple(reasons), by_rule, by_model, belief)
