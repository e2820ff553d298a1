"""What a scheduler believes about a job's speed: a model of step time fitted to what the job has shown.

Pollux's form: computing takes A = c + d·b seconds for a local batch of b, synchronizing N = r + s·max(K −
2, 0) for K workers (one pair r, s within a node and one across), and a step (A^γ + N^γ)^(1/γ), so γ says
how much they overlap.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.schedule.cluster import Floats

_TINY = 1e-8
_ALIKE = 1e-14  # of a determinant, below which it is only rounding
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
    nodes, workers, batch = np.array(list(seen), dtype=float).T
    step, sync = np.array(list(seen.values())).T
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
    """Constant and slope, both positive, with the least relative error.

    Half and half where only one batch was seen.
    """
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
    """Constant and growth per worker beyond two, one pair per row of `seconds`; no growth where unseen."""
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

    Where all x count as one, the slope is zero.
    """
    weight = 1.0 / np.maximum(y, _TINY) ** 2
    s0, s1, s2 = weight.sum(axis=-1), (weight * x).sum(axis=-1), (weight * x * x).sum(axis=-1)
    t0, t1 = (weight * y).sum(axis=-1), (weight * x * y).sum(axis=-1)
    determinant = s0 * s2 - s1 * s1
    apart = determinant > _ALIKE * s0 * s2
    safe = np.where(apart, determinant, 1.0)
    constant = np.where(apart, (s2 * t0 - s1 * t1) / safe, t0 / s0)
    return constant, np.where(apart, (s0 * t1 - s1 * t0) / safe, 0.0)
