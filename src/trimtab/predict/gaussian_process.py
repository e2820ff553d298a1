"""Gaussian processes: conditioning on noisy values, exactly or through inducing points, and fitting kernels.

With y observed at n points of prior mean m and covariance K, and L the Cholesky factor of K + diag(noise):

    posterior mean        m* + k* (L L')⁻¹ (y - m)
    posterior covariance  k** - (L⁻¹ k*')' (L⁻¹ k*')
    log likelihood        -½ |L⁻¹ (y - m)|² - Σ log L_ii - ½ n log 2π
    leave-one-out         residual α_i / P_ii and variance 1 / P_ii, for α = P (y - m) and P = (L L')⁻¹

Rasmussen and Williams, Gaussian Processes for Machine Learning, equations 2.25, 2.26, 2.30, 5.12.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.predict.tables import Array

# Added to the diagonal, relative to its mean, when rounding has made a covariance indefinite.
_JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)


@dataclass(frozen=True, slots=True, eq=False)
class Conditioned:
    """A Gaussian given `n` noisy values; leading dimensions are batches and broadcast.

    `across` is always (..., targets, n): the prior covariance of the targets with the observed points.
    """

    inverse_factor: Array  # (..., n, n), L⁻¹
    whitened: Array  # (..., n), L⁻¹ (y - m)

    def mean(self, across: Array) -> Array:
        """Posterior mean of the targets minus their prior mean, (..., targets)."""
        weights = np.einsum("...ij,...i->...j", self.inverse_factor, self.whitened)
        return np.asarray(np.einsum("...tn,...n->...t", across, weights))

    def variance(self, prior: Array, across: Array) -> Array:
        """Posterior variance of the targets whose prior variances are `prior`; at least zero."""
        return np.asarray(np.maximum(prior - (self._explaining(across) ** 2).sum(axis=-1), 0.0))

    def covariance(self, prior: Array, across: Array) -> Array:
        """Posterior covariance of the targets whose prior covariance is `prior`."""
        explaining = self._explaining(across)
        return np.asarray(prior - explaining @ np.swapaxes(explaining, -1, -2))

    @property
    def log_likelihood(self) -> Array:
        """Log density of the observed values under the prior, by batch."""
        log_diagonal = np.log(np.diagonal(self.inverse_factor, axis1=-2, axis2=-1)).sum(axis=-1)
        constant = 0.5 * self.whitened.shape[-1] * math.log(2.0 * math.pi)
        return np.asarray(log_diagonal - 0.5 * (self.whitened**2).sum(axis=-1) - constant)

    @property
    def loss_gradient(self) -> Array:
        """Derivative of the negative log likelihood by the covariance of the observed points."""
        weights = np.einsum("...ij,...i->...j", self.inverse_factor, self.whitened)
        return np.asarray(0.5 * (self._precision - weights[..., :, None] * weights[..., None, :]))

    @property
    def leave_one_out(self) -> tuple[Array, Array]:
        """For every observed point, its residual and variance as predicted from all other points."""
        precision = np.diagonal(self._precision, axis1=-2, axis2=-1)
        weights = np.einsum("...ij,...i->...j", self.inverse_factor, self.whitened)
        return np.asarray(weights / precision), np.asarray(1.0 / precision)

    @property
    def _precision(self) -> Array:
        return np.asarray(np.swapaxes(self.inverse_factor, -1, -2) @ self.inverse_factor)

    def _explaining(self, across: Array) -> Array:
        return np.asarray(across @ np.swapaxes(self.inverse_factor, -1, -2))


def condition(covariance: Array, residuals: ArrayLike, noise: ArrayLike = 0.0) -> Conditioned:
    """Condition on values minus their prior mean, (..., n); `noise` are variances, one or one per value."""
    variances, diagonal = np.asarray(noise, dtype=float), np.eye(covariance.shape[-1])
    noisy = covariance + (variances[..., None] if variances.ndim else variances) * diagonal
    scale = float(np.trace(noisy, axis1=-2, axis2=-1).mean()) / max(len(diagonal), 1)
    for jitter in _JITTERS:
        try:
            factor = np.linalg.cholesky(noisy + jitter * scale * diagonal if jitter else noisy)
        except np.linalg.LinAlgError:
            continue
        inverse: Array = np.linalg.inv(factor).astype(float)
        values = np.asarray(residuals, dtype=float)
        return Conditioned(inverse, np.einsum("...ij,...j->...i", inverse, values))
    raise np.linalg.LinAlgError("a covariance is indefinite by more than rounding explains")


def inducing_rows(covariance: Array, count: int) -> NDArray[np.intp]:
    """Pivots of a Cholesky decomposition: each is the row that those before it explain least."""
    from scipy.linalg.lapack import dpstrf  # late: only learning needs SciPy

    _, order, rank, _ = dpstrf(covariance, tol=1e-9)
    return np.asarray(order[: min(rank, count)] - 1, dtype=np.intp)


def inducing_weights(
    among: Array, across: Array, values: Array, groups: NDArray[np.str_], shared: float, own: float
) -> Array:
    """Weights w of inducing points: the posterior mean at x is k(x, points) w (subset of regressors).

    `among` is the covariance of the points, `across` that of the points with the observed ones. Values of one
    group share noise of variance `shared` beside their `own`; its inverse is applied by group (Woodbury).
    """
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    columns = np.column_stack([across.T, values])
    sums = np.zeros((len(counts), columns.shape[1]))
    np.add.at(sums, group, columns)
    part = shared / (own + counts * shared)
    solved = (columns - (part[:, None] * sums)[group]) / own
    return np.asarray(np.linalg.solve(among + across @ solved[:, :-1], across @ solved[:, -1]))


def squared_distance(rows: Array, columns: Array) -> Array:
    """Squared Euclidean distance of every row of the one to every row of the other."""
    squares = (rows**2).sum(axis=1)[:, None] + (columns**2).sum(axis=1) - 2 * rows @ columns.T
    return np.asarray(np.maximum(squares, 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class TrendKernel:
    """Covariance of a level, a slope in every coordinate and a smooth deviation over all of them.

    k(x, x') = level² + Σ_p slope_p² x_p x'_p + smooth² exp(-½ Σ_p (x_p - x'_p)² / length_p²); its `sizes` are
    the logarithms of level, slopes, smooth and lengths, in this order.
    """

    rows: Array  # (rows, coordinates)
    columns: Array  # (columns, coordinates)

    @staticmethod
    def sizes(level: float, slope: float, smooth: float, length: float, coordinates: int) -> Array:
        """Sizes with one slope and one length for every coordinate."""
        return np.log([level, *[slope] * coordinates, smooth, *[length] * coordinates])

    def covariance(self, sizes: Array) -> Array:
        """(rows, columns)."""
        slopes = np.exp(2 * sizes[1 : self._count + 1])
        return np.asarray(np.exp(2 * sizes[0]) + (self.rows * slopes) @ self.columns.T + self._smooth(sizes))

    def gradient(self, sizes: Array, by_covariance: Array) -> Array:
        """Derivative by the sizes of a loss whose derivative by the covariance is given."""
        weighed = by_covariance * self._smooth(sizes)
        products = np.einsum("ip,ip->p", self.rows, by_covariance @ self.columns)
        # Σ weight (row - column)², expanded.
        apart = (
            weighed.sum(axis=1) @ self.rows**2
            + weighed.sum(axis=0) @ self.columns**2
            - 2 * np.einsum("ip,ip->p", self.rows, weighed @ self.columns)
        )
        return np.concatenate(
            [
                [2 * np.exp(2 * sizes[0]) * by_covariance.sum()],
                2 * np.exp(2 * sizes[1 : self._count + 1]) * products,
                [2 * weighed.sum()],
                np.exp(-2 * sizes[self._count + 2 :]) * apart,
            ]
        )

    @property
    def _count(self) -> int:
        return int(self.rows.shape[1])

    def _smooth(self, sizes: Array) -> Array:
        near = np.exp(-sizes[self._count + 2 :])
        squares = squared_distance(self.rows * near, self.columns * near)
        return np.asarray(np.exp(2 * sizes[self._count + 1] - 0.5 * squares))


def fit_sizes(
    loss: Callable[[Array], tuple[float, Array]], start: Array, iterations: int, bounds: tuple[float, float]
) -> Array:
    """Logarithms of sizes within bounds that minimise a negative log likelihood (value and gradient).

    A log-normal prior of width one holds them near the start.
    """
    from scipy.optimize import minimize  # late: only learning needs SciPy

    def penalised(sizes: Array) -> tuple[float, Array]:
        value, gradient = loss(np.clip(sizes, *bounds))
        away = sizes - start
        return float(value + 0.5 * (away**2).sum()), gradient + away

    solution = minimize(penalised, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return np.asarray(np.clip(solution.x, *bounds))
