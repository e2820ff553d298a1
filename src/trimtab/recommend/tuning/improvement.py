"""Expected improvement: how much lower than the best so far a configuration is likely to be."""

import numpy as np

from trimtab.predict.fewshot import Array


def expected_improvement(best: float, mean: Array, deviation: Array) -> Array:
    """E[max(best - y, 0)] for normally distributed y; where there is no doubt, the plain difference."""
    from scipy.stats import norm

    spread = np.maximum(deviation, 1e-12)
    ahead = (best - mean) / spread
    return np.asarray((best - mean) * norm.cdf(ahead) + spread * norm.pdf(ahead))
