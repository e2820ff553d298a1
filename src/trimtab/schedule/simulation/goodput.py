"""A world of adaptive jobs: each starts with one worker and may at most double what it has tried.

Seed 004 (dynamic batch size adjustment) by the law of Pollux: progress per second is gain / step time,
where the gain of a batch s times the smallest is (variance + square) / (variance / s + square) of the
gradient. A scheduler uses a model of step time fitted to the job's measured steps: computing takes
A = c + d·b seconds for a local batch of b, synchronizing N = r + s·max(K − 2, 0) for K workers (one pair r, s
within a node and one across), and a step (A^γ + N^γ)^(1/γ), so γ says how much they overlap.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.core import NotFoundError
from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.placing import Placement
from trimtab.schedule.simulation.goodput_profiles import MeasuredApplication
from trimtab.schedule.simulation.state import JobKnowledge

_TINY = 1e-8
_ALIKE = 1e-14  # of a determinant, below which it is only rounding
_OVERLAPS = np.array([1.0, 1.25, 1.6, 2.0, 2.7, 3.6, 5.0, 7.0, 10.0])
_SIMPLE = 1e-3  # penalty of a larger overlap
_ACROSS = 1.1  # factor of synchronizing across nodes over within a node, until measured


@dataclass(frozen=True, slots=True)
class StepModel:
    """The fitted constants: computing, synchronizing within a node and across nodes, and the overlap."""

    compute: float
    per_sample: float
    within: float
    within_more: float
    across: float
    across_more: float
    overlap: float

    def times(self, nodes: Floats, workers: Floats, batch: Floats) -> tuple[Floats, Floats]:
        """Seconds of computing alone, and of a step with synchronization."""
        computing = self.compute + self.per_sample * batch
        more = np.maximum(workers - 2.0, _TINY)
        network = np.where(
            nodes > 1,
            self.across + self.across_more * more,
            np.where(workers > 1, self.within + self.within_more * more, _TINY),
        )
        if self.overlap == 1.0:
            return computing, computing + network
        return computing, (computing**self.overlap + network**self.overlap) ** (1.0 / self.overlap)


def fit(steps: dict[tuple[int, int, int], tuple[float, float]]) -> StepModel:
    """The model closest to measured (step, sync) seconds by (nodes, workers, local batch).

    Optimistic where nothing was measured, so that it is tried: after one worker only, more of them look
    perfect.
    """
    nodes, workers, batch = np.array(list(steps), dtype=float).T
    step, sync = np.array(list(steps.values())).T
    compute, per_sample = _line(batch, np.maximum(step - sync, _TINY))
    computing = compute + per_sample * batch
    spread = workers > 1
    inside, outside = spread & (nodes == 1), nodes > 1
    overlap = (_OVERLAPS if spread.any() else _OVERLAPS[:1])[:, None]
    network = np.maximum(step**overlap - computing**overlap, _TINY) ** (1.0 / overlap)
    within, within_more = _network(workers[inside], network[:, inside])
    across, across_more = _network(workers[outside], network[:, outside])
    if not outside.any():
        across, across_more = within * _ACROSS, within_more * _ACROSS
    more = np.maximum(workers - 2.0, _TINY)
    believed = np.where(
        outside, across + across_more * more, np.where(spread, within + within_more * more, _TINY)
    )
    error = np.log((computing**overlap + believed**overlap) ** (1.0 / overlap) / step)
    loss = np.sqrt((error**2).mean(axis=1)) + _SIMPLE * (overlap[:, 0] - 1.0) ** 2
    best = int(np.argmin(loss))
    return StepModel(
        compute,
        per_sample,
        within=float(within[best, 0]),
        within_more=float(within_more[best, 0]),
        across=float(across[best, 0]),
        across_more=float(across_more[best, 0]),
        overlap=float(overlap[best, 0]),
    )


def _line(batch: Floats, seconds: Floats) -> tuple[float, float]:
    """Constant and slope, both positive, with the least relative error; halves if only one batch is known."""
    if (batch == batch[0]).all():
        half = float(seconds.sum()) / len(seconds) / 2
        return half, half / float(batch[0])
    constant, slope = _weighted(batch, seconds)
    relative = batch / seconds
    if constant < _TINY:
        return _TINY, float(relative.sum() / (relative**2).sum())
    if slope < _TINY:
        return float((1 / seconds).sum() / (1 / seconds**2).sum()), _TINY
    return float(constant), float(slope)


def _network(workers: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    """Constant and growth per worker beyond two, one pair per row of `seconds`; no growth if unmeasured."""
    rows = len(seconds)
    nothing = np.full((rows, 1), _TINY)
    if not len(workers):
        return nothing, nothing
    more = np.maximum(workers - 2.0, 0.0)
    mean = seconds.mean(axis=1, keepdims=True)
    if (more == more[0]).all():
        return mean, nothing
    constant, growth = _weighted(more, seconds)
    steep = (seconds / np.maximum(more, 1.0)).mean(axis=1)
    flat, through = growth < _TINY, constant < _TINY
    constant = np.where(flat, mean[:, 0], np.where(through, _TINY, constant))
    growth = np.where(flat, _TINY, np.where(through, steep, growth))
    return constant[:, None], growth[:, None]


def _weighted(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Constant and slope of the line with the least squares of relative error, for each row of y.

    The slope is zero where all x are equal.
    """
    weight = 1.0 / np.maximum(y, _TINY) ** 2
    s0, s1, s2 = weight.sum(axis=-1), (weight * x).sum(axis=-1), (weight * x * x).sum(axis=-1)
    t0, t1 = (weight * y).sum(axis=-1), (weight * x * y).sum(axis=-1)
    determinant = s0 * s2 - s1 * s1
    apart = determinant > _ALIKE * s0 * s2
    safe = np.where(apart, determinant, 1.0)
    constant = np.where(apart, (s2 * t0 - s1 * t1) / safe, t0 / s0)
    return constant, np.where(apart, (s0 * t1 - s1 * t0) / safe, 0.0)


_UNKNOWN = 1.5  # factor on the furthest progress, while no job has ended


class Totals:
    """Expected work by application: the mean of ended jobs, else a multiple of the furthest progress."""

    def __init__(self) -> None:
        self._furthest: dict[str, float] = defaultdict(float)
        self._ended: dict[str, tuple[float, int]] = {}

    def reached(self, application: str, progress: float) -> None:
        """Record the progress of a job that goes on."""
        self._furthest[application] = max(self._furthest[application], progress)

    def ended(self, application: str, progress: float) -> None:
        """Record the progress of a job that has ended."""
        total, count = self._ended.get(application, (0.0, 0))
        self._ended[application] = (total + progress, count + 1)

    def known(self, application: str) -> bool:
        """Whether a job of this application has ended."""
        return application in self._ended

    def of(self, application: str) -> float:
        """Expected total work of a job of this application; NaN if none has started."""
        if application in self._ended:
            total, count = self._ended[application]
            return total / count
        furthest = self._furthest[application]
        return _UNKNOWN * furthest if furthest > 0 else np.nan


_SAMPLES = 50
_ROUNDING = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Ways to split global batches over workers: a row per way, a column per shape of `nodes` and `workers`.

    `local` is the batch of one worker, `accumulated` how often it adds up gradients before a step, `scale`
    the global batch over the smallest one, and `allowed` 1 where that can be, else 0.
    """

    nodes: Floats
    workers: Floats
    local: Floats
    accumulated: Floats
    scale: Floats
    allowed: Floats


def ways(
    application: MeasuredApplication, smallest: int, largest: int, nodes: Floats, workers: Floats
) -> Batches:
    """Fifty global batches from the smallest that fits to the largest, in equal ratios, for each shape."""
    first = np.maximum(application.smallest, smallest * workers)
    batch = np.geomspace(np.minimum(first, application.largest), application.largest, _SAMPLES)
    share = batch / workers
    accumulated = np.ceil(share / largest - _ROUNDING) - 1
    alone = (workers == 1) & (share > application.smallest + _ROUNDING)
    accumulated = np.where(alone, np.maximum(accumulated, 1), accumulated)
    local = np.ceil(share / (accumulated + 1) - _ROUNDING)
    scale = workers * local * (accumulated + 1) / application.smallest
    allowed = (local >= smallest) & (local <= largest) & (first <= application.largest)
    return Batches(nodes, workers, local, accumulated, scale, allowed.astype(float))


def progress_rate(model: StepModel, batches: Batches, square: float, variance: float) -> Floats:
    """Progress per second of every way, zero where it is not allowed."""
    computing, step = model.times(batches.nodes, batches.workers, batches.local)
    gain = (variance + square) / (variance / batches.scale + square)
    return batches.allowed * gain / (step + batches.accumulated * computing)


@dataclass
class ApplicationShapes:
    """The shapes of a cluster by accelerator, and the ways an application can use them.

    Shared by all its jobs: those with the same measurements share one model.
    """

    application: MeasuredApplication
    cluster: Cluster
    columns: dict[str, Ints] = field(init=False)
    _ways: dict[object, Batches] = field(default_factory=dict)
    _models: dict[object, StepModel] = field(default_factory=dict)
    _batches: dict[object, tuple[int, int]] = field(default_factory=dict)
    _speeds: dict[object, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = np.array([group.accelerator for group in self.cluster.groups])[self.cluster.shape_group]
        self.columns = {
            kind: np.flatnonzero(kinds == kind)
            for kind in dict.fromkeys(group.accelerator for group in self.cluster.groups)
            if kind in self.application.kinds
        }
        self._per_node = {group.accelerator: group.gpus for group in self.cluster.groups}

    def shapes(self, kind: str, on: str) -> Batches:
        """The ways on the shapes of one accelerator, as if its workers were on nodes of another."""
        key = ("shapes", kind, on)
        if key not in self._ways:
            workers = self.cluster.shape_workers[self.columns[kind]].astype(float)
            nodes = np.ceil(workers / self._per_node[on])
            smallest, largest = self.application.kinds[on].batches
            self._ways[key] = ways(self.application, smallest, largest, nodes, workers)
        return self._ways[key]

    def model(self, kind: str, steps: dict[tuple[int, int, int], tuple[float, float]]) -> StepModel:
        """The model of jobs with these measurements."""
        key = (kind, frozenset(steps.items()))
        if key not in self._models:
            self._models[key] = fit(steps)
        return self._models[key]

    def form(self, kind: str, form: tuple[int, ...]) -> Batches:
        """The ways with the workers of `form` on each node."""
        key = ("form", kind, form)
        if key not in self._ways:
            table = self.application.kinds[kind]
            smallest, largest = table.batches[0], table.largest_batch(form)
            nodes, workers = np.array([float(len(form))]), np.array([float(sum(form))])
            self._ways[key] = ways(self.application, smallest, largest, nodes, workers)
        return self._ways[key]

    def best_batch(
        self, model: StepModel, gradient: tuple[float, float], kind: str, form: tuple[int, ...]
    ) -> tuple[int, int]:
        """The local batch and number of accumulations with the best expected progress."""
        key = (model, gradient, kind, form)
        if key not in self._batches:
            batches = self.form(kind, form)
            best = int(np.argmax(progress_rate(model, batches, *gradient)))
            self._batches[key] = (int(batches.local[best, 0]), int(batches.accumulated[best, 0]))
        return self._batches[key]

    def speeds(self, models: Mapping[str, StepModel], gradient: tuple[float, float] | None) -> Floats:
        """Progress per second in each of the cluster's shapes, by these models.

        An accelerator without a model scales like the first that has one, by their speeds with one worker.
        Without any model, only shapes of one worker have a speed.
        """
        key = (tuple(models.items()), gradient)
        if key not in self._speeds:
            row = np.zeros(len(self.cluster.shapes))
            for kind, columns in self.columns.items():
                row[columns] = self._rates(kind, columns, models, gradient)
            self._speeds[key] = row / self.application.nature.slowdown
        return self._speeds[key]

    def _rates(
        self,
        kind: str,
        columns: Ints,
        models: Mapping[str, StepModel],
        gradient: tuple[float, float] | None,
    ) -> Floats:
        kinds = self.application.kinds
        known = next((name for name in self.columns if name in models), None)
        if known is None or gradient is None:
            one: Floats = self.cluster.shape_workers[columns] == 1
            return one * (kinds[kind].one_worker / self.application.smallest)
        on = kind if kind in models else known
        rates: Floats = progress_rate(models[on], self.shapes(kind, on), *gradient).max(axis=0)
        return rates * (kinds[kind].one_worker / kinds[on].one_worker)


class AdaptiveTraining:
    """One job's state: its progress, and its measurements."""

    def __init__(self, surroundings: ApplicationShapes) -> None:
        self.surroundings = surroundings
        self.application = surroundings.application
        self.progress = 0.0
        self.epoch = 0
        self.kind = ""
        self.form: tuple[int, ...] = ()
        self.local = 0
        self.accumulated = 0
        self.tried = 0
        self._gradient: tuple[float, float] | None = None
        self._steps: dict[str, dict[tuple[int, int, int], tuple[float, float]]] = {}
        self._models: dict[str, StepModel] = {}

    @property
    def ran(self) -> bool:
        """Whether it has made a step."""
        return self._gradient is not None

    def start(self, kind: str, form: tuple[int, ...]) -> None:
        """Run with the workers of `form` on each node from now on."""
        self.kind, self.form = kind, form
        self._choose_batch()

    def advance(self, seconds: float) -> float:
        """Work for some seconds; returns when it was done, infinite where it goes on."""
        spent = 0.0
        while spent < seconds:
            rate = self._true_rate()
            milestone = float(self.application.milestones[self.epoch])
            needed = max(0.0, milestone - self.progress) / rate
            if spent + needed > seconds:
                self.progress += rate * (seconds - spent)
                spent = seconds
            else:
                spent += needed
                self.progress = milestone
                self.epoch += 1
                if self.epoch == len(self.application.milestones):
                    return spent
            self._choose_batch()
        return math.inf

    def lose(self, seconds: float) -> None:
        """Lose the progress of the last seconds."""
        self.progress = max(0.0, self.progress - self._true_rate() * seconds)
        self.epoch = int(np.searchsorted(self.application.milestones, self.progress, "right"))

    def speed(self) -> Floats:
        """Expected progress per second in each of the cluster's shapes."""
        return self.surroundings.speeds(self._models, self._gradient)

    def _true_rate(self) -> float:
        workers = sum(self.form)
        batch = workers * self.local * (self.accumulated + 1)
        square, variance = self.application.gradient(batch, self.epoch)
        step, sync = self.application.kinds[self.kind].step(self.form, self.local)
        self._learn(workers, step, sync, (square, variance))
        scale = batch / self.application.smallest
        gain = (variance + square) / (variance / scale + square)
        seconds = step + self.accumulated * (step - sync)
        return gain / seconds / self.application.nature.slowdown

    def _learn(self, workers: int, step: float, sync: float, gradient: tuple[float, float]) -> None:
        self._gradient = gradient
        steps = self._steps.setdefault(self.kind, {})
        key = (len(self.form), workers, self.local)
        if key not in steps:
            steps[key] = (step, sync)
            self._models[self.kind] = self.surroundings.model(self.kind, steps)
            self.tried = max(self.tried, workers)

    def _choose_batch(self) -> None:
        """The batch with the best expected progress; the smallest that fits before the first step."""
        table = self.application.kinds[self.kind]
        workers = sum(self.form)
        model = self._models.get(self.kind)
        if model is None or self._gradient is None:
            batch = max(self.application.smallest, table.batches[0] * workers)
            share = int(np.ceil(batch / workers - _ROUNDING))
            self.accumulated = max(0, int(np.ceil(share / table.largest_batch(self.form) - _ROUNDING)) - 1)
            self.local = int(np.ceil(share / (self.accumulated + 1) - _ROUNDING))
        else:
            self.local, self.accumulated = self.surroundings.best_batch(
                model, self._gradient, self.kind, self.form
            )
        most = self.application.largest // (workers * (self.accumulated + 1))
        self.local = min(self.local, most)


_MOST = 64


class GoodputWorld:
    """Adaptive jobs of these applications, in order of the trace."""

    def __init__(
        self, profiles: Mapping[str, MeasuredApplication], applications: Sequence[str], cluster: Cluster
    ) -> None:
        unknown = sorted(set(applications) - set(profiles))
        if unknown:
            raise NotFoundError(
                f'there is no profile of "{unknown[0]}"; the profiles are {", ".join(profiles)}'
            )
        places = {name: ApplicationShapes(profiles[name], cluster) for name in set(applications)}
        self._jobs = [AdaptiveTraining(places[name]) for name in applications]
        self._cluster = cluster
        self._totals = Totals()

    def look(self, jobs: Ints) -> JobKnowledge:
        """Expected speeds, also in shapes it may not have yet; remaining work by ended jobs."""
        trainings = [self._jobs[job] for job in jobs]
        speed = np.stack([training.speed() for training in trainings])
        most = np.array([min(max(1, 2 * training.tried), _MOST) for training in trainings])
        done = np.array([training.progress for training in trainings])
        total = np.array([self._totals.of(training.application.name) for training in trainings])
        left = np.maximum(total - done, 1.0)
        known = np.array([self._totals.known(training.application.name) for training in trainings])
        return JobKnowledge(
            speed, most, done, left, np.where(known, left, 1.0), np.where(known, left, np.inf)
        )

    def restart_seconds(self, job: int) -> float:
        return self._jobs[job].application.nature.restart

    def start(self, job: int, placement: Placement) -> None:
        kind = self._cluster.groups[placement.group].accelerator
        self._jobs[job].start(kind, tuple(count for _, count in placement.parts))

    def stop(self, job: int, lost: float) -> None:
        if lost > 0:
            self._jobs[job].lose(lost)

    def advance(self, jobs: Ints, seconds: Floats) -> Floats:
        ended = np.array([self._jobs[job].advance(float(s)) for job, s in zip(jobs, seconds, strict=True)])
        for job, after in zip(jobs, ended, strict=True):
            training = self._jobs[job]
            self._totals.reached(training.application.name, training.progress)
            if np.isfinite(after):
                self._totals.ended(training.application.name, training.progress)
        return ended
