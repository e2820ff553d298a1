"""When requests are sent, and which: planned before, so that a slow server cannot put them off."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests in order: seconds from the start, and the name of each one's operation."""

    times: list[float]
    names: list[str]


def arrivals(rates: Mapping[str, float], seconds: float, seed: int) -> Arrivals:
    """As many of each operation as `rates` (per second) say on average, at moments that know of no other."""
    random = np.random.default_rng(seed)
    names = list(rates)
    weights = np.array([rates[name] for name in names], dtype=np.float64)
    count = int(random.poisson(weights.sum() * seconds))
    times = np.sort(random.uniform(0.0, seconds, count))
    chosen = random.choice(len(names), size=count, p=weights / weights.sum())
    return Arrivals(times.tolist(), [names[index] for index in chosen.tolist()])


def mixed(shares: Mapping[str, float], rate: float) -> dict[str, float]:
    """Rates of operations by their shares of `rate` per second in all."""
    whole = sum(shares.values())
    return {name: rate * share / whole for name, share in shares.items()}
