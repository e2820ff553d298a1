"""How a pool's caps of CPU and memory are shared among its containers; vectorised over all pools at once.

Sums by pool never exceed the cap, and no container is to have less memory than it uses. Limits change in two
steps: first those that are to have less shrink; only what is then free, according to limits that are known to
be in force, is given to others. So the sum stays below the cap between any two writes as well.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
MIB = 2**20
_PAGE = 4096.0


def floors_within(floor: Array, pool: Indices, cap: Array) -> Array:
    """Everyone's least share: the floor, or an equal part of the cap where so many floors do not fit."""
    count = np.bincount(pool, minlength=len(cap))
    return np.minimum(floor, (cap / np.maximum(count, 1))[pool])


def fair_limits(wanted: Array, floor: Array, pool: Indices, cap: Array) -> Array:
    """Max-min fair limits above the floors: everything wanted if it fits, else up to a common level.

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


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The paper's margin is 50 MiB, looked at every 5 s (section 2.4.3)."""

    margin: float = 50.0 * MIB  # δ: bytes above use that stay when memory is taken back
    every: float = 5.0  # s between two rounds of taking back
    block: float = 16.0 * MIB  # bytes that a container which ran out is given at least
    growth: float = 0.25  # of its limit, if that is more: fewer stops on the way up
    urgent_margin: float = 4.0 * MIB  # bytes above use that stay when somebody else stands still


def reclaimed(limit: Array, used: Array, floor: Array, margin: float) -> Array:
    """Limits after taking back what lies more than the margin above use."""
    keep = np.maximum(np.ceil((used + margin) / _PAGE) * _PAGE, floor)
    return np.minimum(limit, keep)


def granted(
    asks: Indices, limit: Array, pool: Indices, cap: Array, settings: MemorySettings
) -> tuple[Array, Array]:
    """New limits of the containers numbered `asks`, which ran out; and by pool what is missing for the rest.

    All who ask get the same part of what they would get if there were enough, but no less than a page: half
    a grant lets a container go on for a while. Who gets less than a page gets nothing.
    """
    wish = np.maximum(settings.block, settings.growth * limit[asks])
    left = cap - np.bincount(pool, limit, len(cap))  # below zero where some came with more than there was
    free = np.maximum(left, 0.0)
    wished = np.bincount(pool[asks], wish, len(cap))
    part = np.minimum(np.divide(free, wished, out=np.ones_like(free), where=wished > 0), 1.0)
    more = np.floor(wish * part[pool[asks]] / _PAGE) * _PAGE
    return limit[asks] + more, np.where(wished > 0, np.maximum(wished - left, 0.0), 0.0)


def urgently_reclaimed(
    missing: Array, limit: Array, used: Array, floor: Array, pool: Indices, settings: MemorySettings
) -> Array:
    """Limits after taking what is missing in each pool, from everyone in proportion to what is unused."""
    least = reclaimed(limit, used, floor, settings.urgent_margin)
    spare = limit - least
    total = np.bincount(pool, spare, len(missing))
    part = np.minimum(np.divide(missing, total, out=np.zeros(len(missing)), where=total > 0), 1.0)
    return limit - np.floor(spare * part[pool] / _PAGE) * _PAGE
