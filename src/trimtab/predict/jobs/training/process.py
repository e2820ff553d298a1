"""A Gaussian process over the rows of several jobs: part of it all jobs share, part is each job's own.

Shared: a level, a slope in every coordinate and a smooth wiggle over them. A job's own: the same, over the
configuration alone. So rows of other jobs say what is common, and rows of the job itself, if there are some,
say how it departs from that; with none the own part only widens the range. Sizes and lengths come from
marginal likelihood, held near where they start by a log-normal prior of width one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.predict.fewshot import Array

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
class Sizes:
    """How large each part is and how far it reaches; all are logarithms."""

    logs: Array
    shared: int  # coordinates
    own: int

    @classmethod
    def at_start(cls, shared: int, own: int) -> "Sizes":
        common = [_LEVEL, *[_SLOPE] * shared, _WIGGLE, *[_LENGTH] * shared]
        private = [_OWN_LEVEL, *[_OWN_SLOPE] * own, _OWN_WIGGLE, *[_OWN_LENGTH] * own]
        return cls(np.log([*common, *private, _NOISE]), shared, own)

    @property
    def halves(self) -> tuple[Array, Array]:
        """Those of the shared part and those of the own."""
        middle = 2 + 2 * self.shared
        return self.logs[:middle], self.logs[middle:-1]

    @property
    def noise(self) -> float:
        """Variance of one measurement."""
        return float(np.exp(2 * self.logs[-1]))


@dataclass(frozen=True, slots=True, eq=False)
class Process:
    """Sizes that were fitted; what it says of new rows depends on the rows it is given."""

    sizes: Sizes

    @classmethod
    def fitted(cls, rows: Rows, values: Array, noise: Array) -> "Process":
        """The likeliest sizes; `noise` are relative variances of the values' measurement."""
        from scipy.linalg import cho_factor, cho_solve
        from scipy.optimize import minimize

        start = Sizes.at_start(rows.shared.shape[1], rows.own.shape[1])
        same = rows.job[:, None] == rows.job[None]
        shared, own = _Pairs(rows.shared, rows.shared), _Pairs(rows.own, rows.own)

        def loss(logs: Array) -> tuple[float, Array]:
            sizes = Sizes(np.clip(logs, -9, 4), start.shared, start.own)
            common, private = sizes.halves
            covariance = shared.kernel(common) + same * own.kernel(private)
            factor = cho_factor(covariance + np.diag(sizes.noise * noise + _TINY), lower=True)
            inverse = cho_solve(factor, np.eye(len(values)))
            pull = inverse @ values
            value = 0.5 * values @ pull + np.log(np.diag(factor[0])).sum()
            slope = 0.5 * (inverse - np.outer(pull, pull))
            gradient = np.concatenate(
                [
                    shared.gradient(common, slope),
                    own.gradient(private, slope * same),
                    [2 * sizes.noise * (np.diag(slope) * noise).sum()],
                ]
            )
            away = logs - start.logs
            return float(value + 0.5 * (away**2).sum()), gradient + away

        found = minimize(loss, start.logs, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS}).x
        return cls(Sizes(np.clip(found, -9, 4), start.shared, start.own))

    def covariance(self, rows: Rows, others: Rows) -> Array:
        """Between any rows, without noise."""
        common, private = self.sizes.halves
        same = rows.job[:, None] == others.job[None]
        return np.asarray(
            _Pairs(rows.shared, others.shared).kernel(common)
            + same * _Pairs(rows.own, others.own).kernel(private)
        )

    def given(self, known: Rows, values: Array, noise: Array, asked: Rows) -> tuple[Array, Array]:
        """Mean and covariance at the asked rows, knowing values with relative noise elsewhere."""
        prior = self.covariance(asked, asked)
        if not len(known):
            return np.zeros(len(asked)), prior
        across = self.covariance(asked, known)
        among = self.covariance(known, known) + np.diag(self.sizes.noise * noise + _TINY)
        gain = np.linalg.solve(among, across.T).T
        return gain @ values, prior - gain @ across.T


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Two sets of coordinates, of which every pair is compared."""

    rows: Array
    others: Array

    def kernel(self, logs: Array) -> Array:
        """Level, slopes and wiggle together."""
        count = self.rows.shape[1]
        slopes = (self.rows * np.exp(2 * logs[1 : count + 1])) @ self.others.T
        return np.asarray(np.exp(2 * logs[0]) + slopes + self._wiggle(logs))

    def gradient(self, logs: Array, slope: Array) -> Array:
        """By each size, of a loss whose derivative by the kernel is `slope`."""
        count = self.rows.shape[1]
        weighed = slope * self._wiggle(logs)
        products = np.einsum("ip,ip->p", self.rows, slope @ self.others)
        # The sum over all pairs of weight · (row - other)².
        apart = (
            weighed.sum(axis=1) @ self.rows**2
            + weighed.sum(axis=0) @ self.others**2
            - 2 * np.einsum("ip,ip->p", self.rows, weighed @ self.others)
        )
        return np.concatenate(
            [
                [2 * np.exp(2 * logs[0]) * slope.sum()],
                2 * np.exp(2 * logs[1 : count + 1]) * products,
                [2 * weighed.sum()],
                np.exp(-2 * logs[count + 2 :]) * apart,
            ]
        )

    def _wiggle(self, logs: Array) -> Array:
        count = self.rows.shape[1]
        near = np.exp(-logs[count + 2 :])
        left, right = self.rows * near, self.others * near
        squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
        return np.asarray(np.exp(2 * logs[count + 1] - 0.5 * np.maximum(squares, 0.0)))
