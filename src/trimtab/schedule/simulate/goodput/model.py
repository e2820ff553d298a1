"""What a scheduler believes about a job's speed: a model of step time fitted to what the job has shown.

Pollux's form: computing takes A = c + d·b seconds for a local batch of b, synchronizing N = r + s·max(K −
2, 0) for K workers (one pair r, s within a node and one across), and a step (A^γ + N^γ)^(1/γ), so γ says
how much they overlap.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.schedule.cluster import Floats

_TINY = 1e-8
_OVERLAPS = np.array([1.0, 1.25, 1.6, 2.0, 2.7, 3.6, 5.0, 7.0, 10.0])
_SIMPLE = 1e-3  # how much a larger overlap must pay for itself
_ACROSS = 1.1  # nodes apart are at least so much slower than workers in one node, until seen


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


def fit(seen: dict[tuple[int, int, int], tuple[float, float]]) -> StepModel:
    """The model closest to what was seen: (nodes, workers, local batch) with (step, sync) seconds.

    What was not tried is believed to be free, so that it will be: with one worker only, more of them look
    perfect.
    """
    keys = np.array(list(seen), dtype=float)
    step, sync = np.array(list(seen.values())).T
    nodes, workers, batch = keys.T
    computing = np.maximum(step - sync, _TINY)
    compute, per_sample = _line(batch, computing)
    believed = compute + per_sample * batch
    best: tuple[float, StepModel] | None = None
    spread = workers > 1
    for overlap in _OVERLAPS if spread.any() else _OVERLAPS[:1]:
        network = np.maximum(step**overlap - believed**overlap, _TINY) ** (1.0 / overlap)
        inside, outside = spread & (nodes == 1), nodes > 1
        within = _network(workers[inside], network[inside])
        across = _network(workers[outside], network[outside])
        if not outside.any():
            across = (within[0] * _ACROSS, within[1] * _ACROSS)
        model = StepModel(compute, per_sample, *within, *across, float(overlap))
        error = np.log(model.times(nodes, workers, batch)[1] / step)
        loss = float(np.sqrt(np.mean(error**2))) + _SIMPLE * (overlap - 1.0) ** 2
        if best is None or loss < best[0]:
            best = (loss, model)
    assert best is not None
    return best[1]


def _line(batch: Floats, seconds: Floats) -> tuple[float, float]:
    """Constant and slope, both positive, with the least relative error.

    Half and half where only one batch was seen.
    """
    if np.ptp(batch) == 0:
        half = float(np.mean(seconds)) / 2
        return half, half / float(batch[0])
    weights = 1.0 / seconds
    rows = np.column_stack((weights, batch * weights))
    (constant, slope), *_ = np.linalg.lstsq(rows, np.ones(len(batch)), rcond=None)
    if constant < _TINY:
        return _TINY, float(np.sum(batch * weights) / np.sum((batch * weights) ** 2))
    if slope < _TINY:
        return float(np.sum(weights) / np.sum(weights**2)), _TINY
    return float(constant), float(slope)


def _network(workers: Floats, seconds: Floats) -> tuple[float, float]:
    """Constant and growth per worker beyond two, the growth held small where little was seen."""
    if not len(workers):
        return _TINY, _TINY
    more = np.maximum(workers - 2.0, 0.0)
    if not more.any() or np.ptp(more) == 0:
        return float(np.mean(seconds)), _TINY
    weights = 1.0 / np.maximum(seconds, _TINY)
    rows = np.column_stack((weights, more * weights))
    (constant, growth), *_ = np.linalg.lstsq(rows, np.ones(len(workers)), rcond=None)
    if growth < _TINY:
        return float(np.mean(seconds)), _TINY
    if constant < _TINY:
        return _TINY, float(np.mean(seconds / np.maximum(more, 1.0)))
    return float(constant), float(growth)
