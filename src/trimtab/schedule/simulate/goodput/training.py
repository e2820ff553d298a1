"""One job that adapts its batch: what it has done, what it has shown, and what it expects of other shapes.

Seed 004 (dynamic batch size adjustment) by the law of Pollux: progress per second is gain / step time,
where the gain of a batch s times the smallest is (variance + square) / (variance / s + square) of the
gradient.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.simulate.goodput.model import StepModel, fit
from trimtab.schedule.simulate.goodput.profiles import Application

_SAMPLES = 50
_ROUNDING = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Ways to split global batches over workers, one column per shape.

    Per worker, and how often it accumulates.
    """

    nodes: Floats
    workers: Floats
    local: Floats
    accumulated: Floats
    scale: Floats
    allowed: Floats


def ways(application: Application, smallest: int, largest: int, nodes: Floats, workers: Floats) -> Batches:
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
class Surroundings:
    """The shapes of a cluster by accelerator, and the ways an application can use them.

    Shared by all its jobs.
    """

    application: Application
    cluster: Cluster
    columns: dict[str, Ints] = field(init=False)
    _ways: dict[object, Batches] = field(default_factory=dict)
    _models: dict[object, StepModel] = field(default_factory=dict)

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

    def model(self, kind: str, seen: dict[tuple[int, int, int], tuple[float, float]]) -> StepModel:
        """The model of a job that has seen this; jobs that have seen the same have the same one."""
        key = (kind, frozenset(seen))
        if key not in self._models:
            self._models[key] = fit(seen)
        return self._models[key]

    def form(self, kind: str, form: tuple[int, ...]) -> Batches:
        """The ways with so many workers on each node."""
        key = ("form", kind, form)
        if key not in self._ways:
            table = self.application.kinds[kind]
            smallest, largest = table.batches[0], table.largest_batch(form)
            nodes, workers = np.array([float(len(form))]), np.array([float(sum(form))])
            self._ways[key] = ways(self.application, smallest, largest, nodes, workers)
        return self._ways[key]


class Training:
    """One job's state. Its speed row is recomputed only when it has learned something."""

    def __init__(self, surroundings: Surroundings) -> None:
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
        self._seen: dict[str, dict[tuple[int, int, int], tuple[float, float]]] = {}
        self._models: dict[str, StepModel] = {}
        self._speed: Floats | None = None

    @property
    def ran(self) -> bool:
        """Whether it has made a step yet."""
        return self._gradient is not None

    def start(self, kind: str, form: tuple[int, ...]) -> None:
        """Run with so many workers on each node from now on."""
        self.kind, self.form = kind, form
        self._choose_batch()

    def advance(self, seconds: float) -> float:
        """Work so long; after how many seconds it was done, infinite where it goes on."""
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
        """Go back to what was saved so long ago."""
        self.progress = max(0.0, self.progress - self._true_rate() * seconds)
        self.epoch = int(np.searchsorted(self.application.milestones, self.progress, "right"))

    def speed(self) -> Floats:
        """Expected progress per second in each of the cluster's shapes."""
        if self._speed is None:
            self._speed = self._expected() / self.application.nature.slowdown
        return self._speed

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
        if gradient != self._gradient:
            self._gradient = gradient
            self._speed = None
        seen = self._seen.setdefault(self.kind, {})
        key = (len(self.form), workers, self.local)
        if key not in seen:
            seen[key] = (step, sync)
            self._models[self.kind] = self.surroundings.model(self.kind, seen)
            self.tried = max(self.tried, workers)
            self._speed = None

    def _choose_batch(self) -> None:
        """The batch with the best expected progress; the smallest that fits while nothing is known."""
        table = self.application.kinds[self.kind]
        workers = sum(self.form)
        model = self._models.get(self.kind)
        if model is None or self._gradient is None:
            batch = max(self.application.smallest, table.batches[0] * workers)
            share = int(np.ceil(batch / workers - _ROUNDING))
            self.accumulated = max(0, int(np.ceil(share / table.largest_batch(self.form) - _ROUNDING)) - 1)
            self.local = int(np.ceil(share / (self.accumulated + 1) - _ROUNDING))
        else:
            batches = self.surroundings.form(self.kind, self.form)
            best = int(np.argmax(progress_rate(model, batches, *self._gradient)))
            self.local, self.accumulated = int(batches.local[best, 0]), int(batches.accumulated[best, 0])
        most = self.application.largest // (workers * (self.accumulated + 1))
        self.local = min(self.local, most)

    def _expected(self) -> Floats:
        """From its own model where there is one.

        Else from another accelerator's, by their speeds with one worker.
        """
        row = np.zeros(len(self.surroundings.cluster.shapes))
        kinds = self.application.kinds
        known = next((kind for kind in self.surroundings.columns if kind in self._models), None)
        for kind, columns in self.surroundings.columns.items():
            if known is None or self._gradient is None:
                one = self.surroundings.cluster.shape_workers[columns] == 1
                row[columns[one]] = kinds[kind].one_worker / self.application.smallest
                continue
            on = kind if kind in self._models else known
            batches = self.surroundings.shapes(kind, on)
            rates = progress_rate(self._models[on], batches, *self._gradient).max(axis=0)
            row[columns] = rates * (kinds[kind].one_worker / kinds[on].one_worker)
        return row
