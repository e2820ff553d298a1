"""Values between scattered points: linear inside of what was measured, the mean of the nearest outside."""

import numpy as np

from trimtab.schedule.cluster import Floats

_ROUNDING = 1e-9


class Between:
    """Tetrahedra between points (Delaunay's), each with the weights of its corners at any place.

    In plain sums and products: solving thousands of tiny systems wakes as many threads as there are cores.
    """

    def __init__(self, points: Floats, values: Floats) -> None:
        from scipy.spatial import Delaunay

        self._points, self._values = points, values
        simplices = Delaunay(points).simplices
        corners = points[simplices]
        a, b, c = (corners[:, corner] - corners[:, 3] for corner in range(3))
        across = np.stack((np.cross(b, c), np.cross(c, a), np.cross(a, b)), axis=1)
        volume = (a * across[:, 0]).sum(axis=1)
        thick = np.abs(volume) > _ROUNDING
        self._corners, self._origin = simplices[thick], corners[thick, 3]
        self._weights = across[thick] / volume[thick, None, None]

    def __call__(self, where: Floats) -> Floats:
        """The value at a place."""
        first = np.einsum("tij,tj->ti", self._weights, where - self._origin)
        weights = np.column_stack((first, 1.0 - first.sum(axis=1)))
        within = weights.min(axis=1)
        best = int(within.argmax())
        if within[best] < -_ROUNDING:
            distance = ((self._points - where) ** 2).sum(axis=1)
            return np.asarray(self._values[distance == distance.min()].mean(axis=0))
        return np.asarray((weights[best][:, None] * self._values[self._corners[best]]).sum(axis=0))
