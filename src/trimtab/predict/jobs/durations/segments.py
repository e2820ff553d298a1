"""Many short sorted arrays searched at once: one call of NumPy for thousands of jobs of hundreds of kinds."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Segments:
    """Ascending numbers in each of several segments, end to end; times `scale`, from 0 to below 1."""

    def __init__(self, parts: Sequence[Floats], scale: float = 1.0) -> None:
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        self.end = np.cumsum(sizes)
        self.start = self.end - sizes
        # Moved apart by their index, all of them are one ascending array.
        self._keys = np.concatenate(parts) * scale + np.repeat(np.arange(len(parts)), sizes)

    def find(self, segment: Ints, number: Floats, side: Literal["left", "right"] = "left") -> Ints:
        """Where each number, scaled already, belongs in its segment, counted from the start of all."""
        found: Ints = np.searchsorted(self._keys, segment + number, side=side)
        within: Ints = np.minimum(np.maximum(found, self.start[segment]), self.end[segment])
        return within
