"""What goes wrong in a simulated cluster: nodes lost, spot nodes taken back, slow nodes, jobs that fail.

From one seed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from trimtab.schedule.cluster import Group, Ints, Market
from trimtab.schedule.placing import Floor, Placement


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A node goes away, or comes back."""

    time: float
    group: int
    node: int
    back: bool = False


class Faults(Protocol):
    """Where faults come from."""

    any: bool

    def until(self, now: float, floor: Floor) -> Iterable[Fault]:
        """The faults since the last time."""
        ...

    def slowness(self, placement: Placement) -> float:
        """How many times slower the slowest of these nodes is than it should be."""
        ...

    def hazard(self, placement: Placement) -> float:
        """How often per second a job that is placed so loses what it has not saved."""
        ...

    def failures(self, jobs: Ints, seconds: float) -> Ints:
        """Which of these running jobs fail in that time."""
        ...


class NoFaults:
    """Nothing ever goes wrong."""

    any = False

    def until(self, now: float, floor: Floor) -> Iterable[Fault]:
        return ()

    def slowness(self, placement: Placement) -> float:
        return 1.0

    def hazard(self, placement: Placement) -> float:
        return 0.0

    def failures(self, jobs: Ints, seconds: float) -> Ints:
        return jobs[:0]


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often, per second: a node is lost, a running job fails. Spot nodes go at their group's own rate.

    A lost node is back after `repair` seconds, a reclaimed one after `refill`. A share `slow` of nodes is
    `slowness` times slower than the others.
    """

    node_loss: float = 0.0
    repair: float = 3600.0
    refill: float = 1800.0
    slow: float = 0.0
    slowness: float = 2.0
    job_failure: float = 0.0


@dataclass
class RandomFaults:
    """Faults at these rates, the same ones for the same seed whatever the policy does."""

    groups: Sequence[Group]
    rates: FaultRates
    seed: int = 0
    any: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng((self.seed, 1))
        self._jobs = np.random.default_rng((self.seed, 2))
        self._slow = [self._random.random(group.nodes) < self.rates.slow for group in self.groups]
        self._ahead: list[Fault] = []
        for group, one in enumerate(self.groups):
            for node in range(one.nodes):
                self._next_loss(0.0, group, node)

    def until(self, now: float, floor: Floor) -> Iterable[Fault]:
        while self._ahead and self._ahead[0].time <= now:
            fault = heappop(self._ahead)
            if fault.back:
                self._next_loss(fault.time, fault.group, fault.node)
            else:
                spot = self.groups[fault.group].market is Market.SPOT
                away = self.rates.refill if spot else self.rates.repair
                heappush(self._ahead, Fault(fault.time + away, fault.group, fault.node, back=True))
            yield fault

    def slowness(self, placement: Placement) -> float:
        slow = self._slow[placement.group]
        return self.rates.slowness if any(slow[node] for node, _ in placement.parts) else 1.0

    def hazard(self, placement: Placement) -> float:
        return len(placement.parts) * self._loss(placement.group) + self.rates.job_failure

    def failures(self, jobs: Ints, seconds: float) -> Ints:
        if self.rates.job_failure == 0.0:
            return jobs[:0]
        failing: Ints = jobs[self._jobs.random(len(jobs)) < -np.expm1(-self.rates.job_failure * seconds)]
        return failing

    def _loss(self, group: int) -> float:
        """How often per second a node of a group goes away."""
        spot = self.groups[group].market is Market.SPOT
        return self.rates.node_loss + (self.groups[group].reclaims if spot else 0.0)

    def _next_loss(self, after: float, group: int, node: int) -> None:
        rate = self._loss(group)
        if rate > 0:
            heappush(self._ahead, Fault(after + self._random.exponential(1 / rate), group, node))
