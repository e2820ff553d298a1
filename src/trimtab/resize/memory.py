"""Who gets how much memory: grants for those who ran out, and what others can give back.

Everything is vectorised over containers; sums by pool never exceed the cap, and nobody is asked to have less
than it uses.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.resize.sharing import Array, Indices

MIB = 2**20
_PAGE = 4096.0


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
