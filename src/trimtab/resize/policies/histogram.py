"""Histograms of CPU use by slot, in buckets that grow: fine where use is small, coarse where it is large."""

import numpy as np

from trimtab.resize.policies.policy import Array, Indices


class Histograms:
    """Weights in buckets; bucket i begins at `first` (ratio^i - 1) / (ratio - 1) CPUs."""

    def __init__(self, first: float, ratio: float, most: float) -> None:
        count = int(np.ceil(np.log(most * (ratio - 1) / first + 1) / np.log(ratio))) + 1
        self.starts = first * (ratio ** np.arange(count + 1) - 1) / (ratio - 1)
        self._weights = np.zeros((0, count))

    @property
    def ends(self) -> Array:
        """Where each bucket ends, in CPUs."""
        return np.asarray(self.starts[1:])

    def reach(self, slots: Indices) -> None:
        """Make room for these slots."""
        have, need = len(self._weights), int(slots.max(initial=-1)) + 1
        if need > have:
            more = np.zeros((max(need, 2 * have) - have, self._weights.shape[1]))
            self._weights = np.concatenate([self._weights, more])

    def add(self, slots: Indices, values: Array, weights: Array) -> None:
        """One sample for each slot."""
        self.reach(slots)
        bucket = np.clip(
            np.searchsorted(self.starts, values, side="right") - 1, 0, self._weights.shape[1] - 1
        )
        np.add.at(self._weights, (slots, bucket), weights)

    def scale(self, factor: float) -> None:
        """Make everything so far count less, or more."""
        self._weights *= factor

    def of(self, slots: Indices) -> Array:
        """The weights of these slots, a row each."""
        self.reach(slots)
        return np.asarray(self._weights[slots])

    def percentile(self, slots: Indices, level: float) -> Array:
        """The end of the bucket up to which `level` of the weight lies; 0 where there is none."""
        weights = self.of(slots)
        total = weights.sum(axis=1)
        reached = np.cumsum(weights, axis=1) >= (level * total)[:, None] * (1 - 1e-12)
        return np.where(total > 0, self.ends[np.argmax(reached, axis=1)], 0.0)

    def forget(self, slots: Indices) -> None:
        """Empty these."""
        self.reach(slots)
        self._weights[slots] = 0.0
