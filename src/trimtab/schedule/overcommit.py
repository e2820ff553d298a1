"""Promising more than a node has, because workloads do not peak together, and reclaiming it when they do.

Seed 004 (sharing): requests are ceilings, and the peak of a sum is well below the sum of the peaks. What a
node can promise follows from how high the sum of its workloads has been. Memory cannot be taken back from who
holds it, so it is counted at its very peak and with more in reserve.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.schedule.cluster import Floats


@dataclass(frozen=True, slots=True)
class Overcommit:
    """How bold to be about one resource."""

    percentile: float = 99.0
    """Percentile over time of the sum of usage that counts as its peak."""
    reserve: float = 0.05
    """Share of the node that is never counted on."""
    limit: float = 2.0
    """Most that may be promised, as a multiple of what the node has."""
    samples: int = 30
    """With fewer samples, a workload counts with its request."""


CPU_OVERCOMMIT = Overcommit()
MEMORY_OVERCOMMIT = Overcommit(percentile=100.0, reserve=0.1, limit=1.3)


def common_peak(usage: Floats, requests: Floats, rule: Overcommit = CPU_OVERCOMMIT) -> float:
    """How much of a node its workloads take when they take much.

    `usage` is (samples, workloads), NaN where a workload was not there yet; who was seen too seldom counts
    with what it asked for, and everybody does while little was seen.
    """
    known = np.count_nonzero(~np.isnan(usage), axis=0) >= rule.samples
    unknown = float(requests[~known].sum())
    if not known.any():
        return unknown
    # Who was not there at a time would have added something: what it asked for is the most that can be.
    together = np.where(np.isnan(usage), requests, usage)[:, known].sum(axis=1)
    return unknown + float(np.percentile(together, rule.percentile))


def promisable(capacity: float, usage: Floats, requests: Floats, rule: Overcommit = CPU_OVERCOMMIT) -> float:
    """Amount that may still be promised to new workloads, which count with their requests."""
    by_usage = (1.0 - rule.reserve) * capacity - common_peak(usage, requests, rule)
    by_limit = rule.limit * capacity - float(requests.sum())
    return max(0.0, min(by_usage, by_limit))


@dataclass(frozen=True, slots=True)
class Occupant:
    """A workload on a node: its usage, and what it keeps when reclaimed from.

    `borrowed` is beyond its tenant's guarantee. `divisible` ones give back as much as is needed, like CPU
    time; others all they can or nothing, like the memory of a process that has to be stopped.
    """

    id: str
    used: float
    keeps: float = 0.0
    borrowed: bool = False
    priority: float = 0.0
    started: float = 0.0
    divisible: bool = True

    @property
    def gives(self) -> float:
        """Amount that can be reclaimed."""
        return max(0.0, self.used - self.keeps)


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Amounts reclaimed by workload, in this order, and the amount still missing."""

    parts: tuple[tuple[str, float], ...]
    missing: float

    @property
    def amount(self) -> float:
        """All that is given back."""
        return sum(part for _, part in self.parts)


def excess_use(used: float, capacity: float, rule: Overcommit = CPU_OVERCOMMIT) -> float:
    """How much must come back from a node that runs hot, into its reserve; 0 if it does not."""
    return max(0.0, used - (1.0 - rule.reserve) * capacity)


def reclaim(occupants: Sequence[Occupant], needed: float) -> Reclaimed:
    """Take back `needed`: from borrowers first, then the low in priority, then the youngest."""
    parts, missing = [], needed
    for occupant in sorted(occupants, key=_order):
        if missing <= 0.0:
            break
        given = min(occupant.gives, missing) if occupant.divisible else occupant.gives
        if given > 0.0:
            parts.append((occupant.id, given))
            missing -= given
    return Reclaimed(tuple(parts), max(0.0, missing))


def _order(occupant: Occupant) -> tuple[bool, float, float, str]:
    return (not occupant.borrowed, occupant.priority, -occupant.started, occupant.id)
