"""When requests are sent, and which: planned before, so that a slow server cannot put them off."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests in order: seconds from the start, and the name of each one's operation."""

    times: list[float]
    names: list[str]


def arrivals(rates: Mapping[str, float], warm_up: float, seconds: float, seed: int) -> Arrivals:
    """As many of each operation as `rates` (per second) say, at random moments that know of no other.

    There are exactly that many in the seconds that follow the warm-up, so that none are short by chance.
    """
    random = np.random.default_rng(seed)
    names, times, chosen = list(rates), [np.empty(0)], [np.empty(0, dtype=np.int64)]
    for begin, length in ((0.0, warm_up), (warm_up, seconds)):
        # Rounding sums keeps the sum of all whole, and that of any first few.
        sums = np.round(np.cumsum([rates[name] * length for name in names])).astype(np.int64)
        counts = np.diff(sums, prepend=0)
        times.append(np.sort(random.uniform(begin, begin + length, int(sums[-1]))))
        chosen.append(random.permutation(np.repeat(np.arange(len(names)), counts)))
    order = np.concatenate(chosen).tolist()
    return Arrivals(np.concatenate(times).tolist(), [names[index] for index in order])


def mixed(shares: Mapping[str, float], rate: float) -> dict[str, float]:
    """Rates of operations by their shares of `rate` per second in all."""
    whole = sum(shares.values())
    return {name: rate * share / whole for name, share in shares.items()}
