"""One job that adapts its batch: what it has done, what it has shown, and what it expects of other shapes.

Seed 004 (dynamic batch size adjustment) by the law of Pollux: progress per second is gain / step time,
where the gain of a batch s times the smallest is (variance + square) / (variance / s + square) of the
gradient.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from trimtab.schedule.cluster import Cluster, Floats, Ints
from trimtab.schedule.simulation.goodput.model import StepModel, fit
from trimtab.schedule.simulation.goodput.profiles import Application

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

    Shared by all its jobs: those that have seen the same expect the same, and it is worked out once.
    """

    application: Application
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

    def model(self, kind: str, seen: dict[tuple[int, int, int], tuple[float, float]]) -> StepModel:
        """The model of a job that has seen this; jobs that have seen the same have the same one."""
        key = (kind, frozenset(seen.items()))
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

    def best_batch(
        self, model: StepModel, gradient: tuple[float, float], kind: str, form: tuple[int, ...]
    ) -> tuple[int, int]:
        """The batch of each worker, and how often it accumulates, with the best expected progress."""
        key = (model, gradient, kind, form)
        if key not in self._batches:
            batches = self.form(kind, form)
            best = int(np.argmax(progress_rate(model, batches, *gradient)))
            self._batches[key] = (int(batches.local[best, 0]), int(batches.accumulated[best, 0]))
        return self._batches[key]

    def speeds(self, models: Mapping[str, StepModel], gradient: tuple[float, float] | None) -> Floats:
        """Progress per second in each of the cluster's shapes, as these models have it.

        An accelerator without a model is like the first that has one, but for their speeds with one worker.
        Where there is none at all, one worker is all that can be judged.
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
        known = next((each for each in self.columns if each in models), None)
        if known is None or gradient is None:
            one: Floats = self.cluster.shape_workers[columns] == 1
            return one * (kinds[kind].one_worker / self.application.smallest)
        on = kind if kind in models else known
        rates: Floats = progress_rate(models[on], self.shapes(kind, on), *gradient).max(axis=0)
        return rates * (kinds[kind].one_worker / kinds[on].one_worker)


class Training:
    """One job's state: how far it is, and what it has seen."""

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
        seen = self._seen.setdefault(self.kind, {})
        key = (len(self.form), workers, self.local)
        if key not in seen:
            seen[key] = (step, sync)
            self._models[self.kind] = self.surroundings.model(self.kind, seen)
            self.tried = max(self.tried, workers)

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
            self.local, self.accumulated = self.surroundings.best_batch(
                model, self._gradient, self.kind, self.form
            )
        most = self.application.largest // (workers * (self.accumulated + 1))
        self.local = min(self.local, most)
