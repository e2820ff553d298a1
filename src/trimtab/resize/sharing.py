"""A pool's cap shared among its containers: vectorised over all pools at once, and never more than the cap.

Limits change in two steps. First those who give up something shrink; only what is then free, according to
limits that are known to be in force, may be given to others. So the sum stays below the cap between any two
writes as well.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


def floors_within(floor: Array, pool: Indices, cap: Array) -> Array:
    """Everyone's least share: the floor, or an equal part of the cap where so many floors do not fit."""
    count = np.bincount(pool, minlength=len(cap))
    return np.minimum(floor, (cap / np.maximum(count, 1))[pool])


def fair_limits(wanted: Array, floor: Array, pool: Indices, cap: Array) -> Array:
    """What everyone wants if it fits; else a common level, so that who wants little gets all of it.

    That is max-min fairness above the floors, which must fit. The level is an equal part of what there is;
    whoever wants less than that is served, and the others share what is left, until nobody is below it.
    """
    extra = np.maximum(wanted - floor, 0.0)
    budget = np.maximum(cap - np.bincount(pool, floor, len(cap)), 0.0)
    level = np.where(np.bincount(pool, extra, len(cap)) <= budget, np.inf, 0.0)
    waiting = level[pool] == 0
    while waiting.any():
        theirs = pool[waiting]
        served = np.bincount(pool, np.where(waiting, 0.0, extra), len(cap))
        count = np.bincount(theirs, minlength=len(cap))
        level[count > 0] = ((budget - served) / np.maximum(count, 1))[count > 0]
        still = waiting & (extra > level[pool])
        if still.sum() == waiting.sum():
            break
        waiting = still
    return np.asarray(floor + np.minimum(extra, np.maximum(level[pool], 0.0)))


def grown(limit: Array, in_force: Array, pool: Indices, cap: Array) -> Array:
    """Once everyone who is to have less has less: who is to have more gets it, in proportion where not all
    of it is free yet.

    `in_force` is the most that the kernel may be enforcing now: where a write has failed or has not been
    confirmed, the old limit.
    """
    need = np.maximum(limit - in_force, 0.0)
    free = cap - np.bincount(pool, in_force, len(cap))
    wished = np.bincount(pool, need, len(cap))
    scarce = (wished > 0) & (wished > free)
    part = np.maximum(np.divide(free, wished, out=np.ones_like(free), where=scarce), 0.0)
    return np.asarray(in_force + need * part[pool])
