"""Which configuration to try next, and which to recommend, from what is believed of all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.core import BadInputError
from trimtab.predict.fewshot import Array
from trimtab.predict.jobs.training.labels import is_top
from trimtab.predict.jobs.training.ours import Belief, Trial
from trimtab.predict.jobs.training.table import Configurations

_WAYS = 500  # drawn from a belief


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """What is wanted small: dollars ("cost") or seconds ("time") of a job of so many samples."""

    where: Configurations
    samples: float
    objective: str

    def __post_init__(self) -> None:
        if self.objective not in ("cost", "time"):
            raise BadInputError(f"{self.objective!r:.40} is no objective; there are cost and time")

    @property
    def per_step_second(self) -> Array:
        """Dollars or seconds of the whole job for each second that a step takes."""
        steps = self.where.steps(self.samples)
        return np.asarray(steps * self.where.price_per_second if self.objective == "cost" else steps)


def expected(belief: Belief, wanted: Wanted, trials: Sequence[Trial] = ()) -> Array:
    """The objective as thought, or measured; the chance that it does not fit counts as the dearest does."""
    values = np.exp(belief.mean) * wanted.per_step_second
    for trial in trials:
        if trial.ok and trial.fidelity >= 1:
            values[trial.row] = trial.step_seconds * wanted.per_step_second[trial.row]
    return np.asarray(belief.fits * values + (1.0 - belief.fits) * values.max())


def recommended(belief: Belief, wanted: Wanted, trials: Sequence[Trial] = ()) -> int:
    """The best of what was measured and what is only believed."""
    return int(expected(belief, wanted, trials).argmin())


def chance_of_top(belief: Belief, wanted: Wanted, seed: int = 0) -> Array:
    """How often each configuration would be a top one, of many ways things may be."""
    random = np.random.default_rng(seed)
    own = belief.covariance + belief.noise * np.eye(len(belief.mean))
    ways = random.multivariate_normal(belief.mean, own, _WAYS, method="eigh")
    values = np.exp(ways) * wanted.per_step_second
    # One draw decides for all: if a configuration fits, so does any that was more likely to.
    fits = random.uniform(size=(_WAYS, 1)) < belief.fits
    tops = np.stack([is_top(each) for each in np.where(fits, values, np.nan)])
    # Of those that never are, the better one is still the likelier.
    order = np.argsort(np.argsort(expected(belief, wanted)))
    return np.asarray(tops.mean(axis=0) + 0.5 / _WAYS * (1.0 - order / len(order)))


def next_trial(belief: Belief, wanted: Wanted, trials: Sequence[Trial] = ()) -> tuple[int, float]:
    """The row worth trying most, and by which part of the best so far it is expected to be better.

    Before anything is tried, that is what would be recommended: then the gain is not known, and NaN.
    """
    from scipy.special import ndtr

    settled = [trial.row for trial in trials if not trial.ok or trial.fidelity >= 1]
    left = np.setdiff1d(np.arange(len(belief.mean)), settled)
    if not len(left):
        raise BadInputError("every configuration has been tried; there is none to try next")
    values = expected(belief, wanted, trials)
    done = [trial.row for trial in trials if trial.ok]
    if not done:
        return int(left[values[left].argmin()]), float("nan")
    best = float(np.log(values[done].min()))
    middle = belief.mean[left] + np.log(wanted.per_step_second[left])
    deviation = belief.deviation[left]
    below = (best - middle) / deviation
    # E[max(1 - e^(x - best), 0)] of a log-normal e^x
    gain = ndtr(below) - np.exp(middle - best + deviation**2 / 2) * ndtr(below - deviation)
    gains = belief.fits[left] * np.maximum(gain, 0.0)
    return int(left[gains.argmax()]), float(gains.max())
