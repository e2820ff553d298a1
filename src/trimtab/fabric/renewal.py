"""What interruptions cost a job that saves its work now and then: exactly, in the mean.

Interruptions come at a constant rate λ, without notice, and may hit anything but the time until the last one
is noticed. A job does W useful seconds, saves for C, and so on. An interruption costs what was done since the
last save, D seconds until somebody notices and R to start again; one during those R starts them again. With
T the seconds that an interval of W takes in the mean,

    T = (e^(λ(W + C)) - 1) e^(λR) (1/λ + D)

because the job renews itself at every save and every restart: it tries W + C until one try is not hit. W/T is
the share of time that is useful, and is largest where λW = 1 - e^(-λ(W + C)), whatever D and R are. Young's
rule W = sqrt(2C/λ) is its first order for small λC, Daly's adds the next two.
"""

import math
from dataclasses import dataclass
from typing import Any

_ROUNDS = 60  # of Newton's method, which needs about six


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: to save (C), until an interruption is noticed (D), to start again (R). Numbers or columns."""

    saving: Any
    noticing: Any
    restarting: Any


def useful_share(interval: Any, rate: Any, costs: Costs) -> Any:
    """Useful over all time, from 0 to 1; `rate` is interruptions per second."""
    import numpy as np

    useful, hazard = np.asarray(interval, dtype=float), np.asarray(rate, dtype=float)
    safe = useful / (useful + costs.saving)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        tries = np.expm1(hazard * (useful + costs.saving)) * np.exp(hazard * costs.restarting)
        taken = tries * (1.0 / hazard + costs.noticing)
        return np.where(hazard > 0.0, np.where(np.isfinite(taken), useful / taken, 0.0), safe)[()]


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Shares of all time, which add up to one.

    `redone` is work that was lost, with saves and restarts that were broken off.
    """

    useful: float
    saving: float
    noticing: float
    restarting: float
    redone: float


def time_split(interval: float, rate: float, costs: Costs) -> TimeSplit:
    """Where the time goes, in the mean. Interruptions come at their rate but for what is spent noticing."""
    share = float(useful_share(interval, rate, costs))
    taken = interval / share
    noticing = costs.noticing * rate * taken / (1.0 + rate * costs.noticing)
    restarting = costs.restarting * math.expm1(rate * (interval + costs.saving))
    redone = taken - interval - costs.saving - noticing - restarting
    return TimeSplit(
        share, costs.saving / taken, noticing / taken, restarting / taken, max(redone, 0.0) / taken
    )


def best_interval(saving: Any, rate: Any) -> Any:
    """Useful seconds between saves for the largest useful share; infinite where nothing interrupts.

    With x = λW and c = λC this is the root of x - 1 + e^(-(x + c)), which rises from below 0 at x = 0 to
    above 0 at x = 1 and bends upwards: Newton's method from x = 1 comes down to it.
    """
    import numpy as np

    hazard = np.asarray(rate, dtype=float)
    cost = hazard * np.asarray(saving, dtype=float)
    x = np.ones_like(cost)
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(_ROUNDS):
            value, slope = x + np.expm1(-(x + cost)), -np.expm1(-(x + cost))
            x = np.maximum(np.where(slope > 0.0, x - value / slope, x), 0.0)
        return np.where(hazard > 0.0, x / hazard, np.inf)[()]
