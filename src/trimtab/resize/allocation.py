"""Sharing of a pool's CPU and memory caps among its containers; vectorised over all pools.

Sums by pool never exceed the cap, and no container gets less memory than it uses. Limits change in two steps:
first some shrink; only what is then free, by the limits known to be in force, is given to others. So the sum
stays below the cap between any two writes as well.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
MIB = 2**20
_PAGE = 4096.0


def floors_within(floor: Array, pool: Indices, cap: Array) -> Array:
    """Least share of each container: the floor, or an equal part of the cap where the floors do not fit."""
    count = np.bincount(pool, minlength=len(cap))
    return np.minimum(floor, (cap / np.maximum(count, 1))[pool])


def fair_limits(target: Array, floor: Array, pool: Indices, cap: Array) -> Array:
    """Max-min fair limits above the floors, which must fit: all targets, or up to a common level.

    The level is an equal part of the budget; containers with smaller targets are served, and the others share
    the rest, until no target is below the level.
    """
    extra = np.maximum(target - floor, 0.0)
    budget = np.maximum(cap - np.bincount(pool, floor, len(cap)), 0.0)
    level = np.where(np.bincount(pool, extra, len(cap)) <= budget, np.inf, 0.0)
    waiting = level[pool] == 0
    while waiting.any():
        served = np.bincount(pool, np.where(waiting, 0.0, extra), len(cap))
        count = np.bincount(pool[waiting], minlength=len(cap))
        level[count > 0] = ((budget - served) / np.maximum(count, 1))[count > 0]
        still = waiting & (extra > level[pool])
        if still.sum() == waiting.sum():
            break
        waiting = still
    return np.asarray(floor + np.minimum(extra, np.maximum(level[pool], 0.0)))


def grown(limit: Array, in_force: Array, pool: Indices, cap: Array) -> Array:
    """Limits raised towards `limit` out of what is free, in proportion where not all of it is free yet.

    `in_force` is the most that the kernel may be enforcing now: where a write has failed or is not confirmed,
    the old limit.
    """
    need = np.maximum(limit - in_force, 0.0)
    free = cap - np.bincount(pool, in_force, len(cap))
    wished = np.bincount(pool, need, len(cap))
    scarce = (wished > 0) & (wished > free)
    part = np.maximum(np.divide(free, wished, out=np.ones_like(free), where=scarce), 0.0)
    return np.asarray(in_force + need * part[pool])


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Settings of memory limits; the paper reclaims every 5 s with a margin of 50 MiB (section 2.4.3)."""

    margin: float = 50.0 * MIB  # δ: bytes above use that remain when memory is reclaimed
    every: float = 5.0  # s between two rounds of reclaiming
    block: float = 16.0 * MIB  # least bytes of a grant
    growth: float = 0.25  # of its limit, if that is more: fewer traps on the way up
    urgent_margin: float = 4.0 * MIB  # bytes above use that remain when another container is paused


def reclaimed(limit: Array, used: Array, floor: Array, margin: float) -> Array:
    """Limits after reclaiming what is more than the margin above use."""
    keep = np.maximum(np.ceil((used + margin) / _PAGE) * _PAGE, floor)
    return np.minimum(limit, keep)


def granted(
    asks: Indices, limit: Array, pool: Indices, cap: Array, settings: MemorySettings
) -> tuple[Array, Array]:
    """New limits of the containers with indices `asks`, which ran out; and the bytes missing, by pool.

    All get the same part of a full grant, rounded down to pages: half a grant lets a container go on for a
    while.
    """
    wish = np.maximum(settings.block, settings.growth * limit[asks])
    left = cap - np.bincount(pool, limit, len(cap))  # below zero where containers came with more than the cap
    free = np.maximum(left, 0.0)
    wished = np.bincount(pool[asks], wish, len(cap))
    part = np.minimum(np.divide(free, wished, out=np.ones_like(free), where=wished > 0), 1.0)
    more = np.floor(wish * part[pool[asks]] / _PAGE) * _PAGE
    return limit[asks] + more, np.where(wished > 0, np.maximum(wished - left, 0.0), 0.0)


def urgently_reclaimed(
    missing: Array, limit: Array, used: Array, floor: Array, pool: Indices, settings: MemorySettings
) -> Array:
    """Limits after reclaiming the missing bytes of each pool, in proportion to unused memory."""
    least = reclaimed(limit, used, floor, settings.urgent_margin)
    spare = limit - least
    total = np.bincount(pool, spare, len(missing))
    part = np.minimum(np.divide(missing, total, out=np.zeros(len(missing)), where=total > 0), 1.0)
    return limit - np.floor(spare * part[pool] / _PAGE) * _PAGE
