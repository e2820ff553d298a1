"""Faults of a simulated cluster, from one seed: nodes are lost, reclaimed or slow, and jobs fail.

Users write them as "node-loss=1/30d,spot=0.1/h,slow=2%,job-failure=0.01/h".
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from trimtab.core import BadInputError, did_you_mean, parse_duration, parse_rate
from trimtab.schedule.cluster import Floats, Group, Ints, Market
from trimtab.schedule.placing import Placement


@dataclass(frozen=True, slots=True, order=True)
class NodeFault:
    """A node goes away, or comes back."""

    time: float
    group: int
    node: int
    back: bool = False


class Faults(Protocol):
    """Where faults come from."""

    any: bool

    def until(self, now: float) -> Iterable[NodeFault]:
        """Nodes that went or came back since the last time, in order of time."""
        ...

    def slowness(self, placement: Placement) -> float:
        """How many times slower the slowest of these nodes is than it should be."""
        ...

    def hazard(self, placement: Placement) -> float:
        """How often per second a job that is placed so loses what it has not saved."""
        ...

    def lifetimes(self, jobs: Ints) -> Floats:
        """For how many more seconds each of these jobs can run before it fails."""
        ...

    def lived(self, jobs: Ints, seconds: Floats) -> None:
        """These jobs have run so long."""
        ...


class NoFaults:
    """Nothing ever goes wrong."""

    any = False

    def until(self, now: float) -> Iterable[NodeFault]:
        return ()

    def slowness(self, placement: Placement) -> float:
        return 1.0

    def hazard(self, placement: Placement) -> float:
        return 0.0

    def lifetimes(self, jobs: Ints) -> Floats:
        return np.full(len(jobs), np.inf)

    def lived(self, jobs: Ints, seconds: Floats) -> None:
        pass


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
    """Faults at these rates, the same ones for the same seed whatever the policy does.

    Nodes go at the same moments; a job fails whenever it has run for the same times.
    """

    groups: Sequence[Group]
    rates: FaultRates
    seed: int = 0
    any: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng((self.seed, 1))
        self._left: dict[int, float] = {}
        self._failures: Counter[int] = Counter()
        self._slow = [self._random.random(group.nodes) < self.rates.slow for group in self.groups]
        self._ahead: list[NodeFault] = []
        for group, one in enumerate(self.groups):
            for node in range(one.nodes):
                self._next_loss(0.0, group, node)

    def until(self, now: float) -> Iterable[NodeFault]:
        while self._ahead and self._ahead[0].time <= now:
            fault = heappop(self._ahead)
            if fault.back:
                self._next_loss(fault.time, fault.group, fault.node)
            else:
                spot = self.groups[fault.group].market is Market.SPOT
                away = self.rates.refill if spot else self.rates.repair
                heappush(self._ahead, NodeFault(fault.time + away, fault.group, fault.node, back=True))
            yield fault

    def slowness(self, placement: Placement) -> float:
        slow = self._slow[placement.group]
        return self.rates.slowness if any(slow[node] for node, _ in placement.parts) else 1.0

    def hazard(self, placement: Placement) -> float:
        return len(placement.parts) * self._loss(placement.group) + self.rates.job_failure

    def lifetimes(self, jobs: Ints) -> Floats:
        if self.rates.job_failure == 0.0:
            return np.full(len(jobs), np.inf)
        return np.array([self._lifetime(job) for job in jobs.tolist()])

    def lived(self, jobs: Ints, seconds: Floats) -> None:
        if self.rates.job_failure == 0.0:
            return
        for job, passed in zip(jobs.tolist(), seconds.tolist(), strict=True):
            left = self._lifetime(job) - passed
            if left > 0:
                self._left[job] = left
            else:
                del self._left[job]
                self._failures[job] += 1

    def _lifetime(self, job: int) -> float:
        if job not in self._left:
            draw = np.random.default_rng((self.seed, 2, job, self._failures[job]))
            self._left[job] = draw.exponential(1 / self.rates.job_failure)
        return self._left[job]

    def _loss(self, group: int) -> float:
        """How often per second a node of a group goes away."""
        spot = self.groups[group].market is Market.SPOT
        return self.rates.node_loss + (self.groups[group].reclaims if spot else 0.0)

    def _next_loss(self, after: float, group: int, node: int) -> None:
        rate = self._loss(group)
        if rate > 0:
            heappush(self._ahead, NodeFault(after + self._random.exponential(1 / rate), group, node))


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """How often what goes wrong; `reclaims`, per second, replaces what spot groups say of themselves."""

    rates: FaultRates = field(default_factory=FaultRates)
    reclaims: float | None = None

    def groups(self, groups: Sequence[Group]) -> tuple[Group, ...]:
        """The groups, their spot nodes reclaimed as told."""
        if self.reclaims is None:
            return tuple(groups)
        spot = [group.market is Market.SPOT for group in groups]
        if not any(spot):
            raise BadInputError("spot is told as a fault, but no group of the cluster is of the market spot")
        return tuple(
            replace(group, reclaims=self.reclaims) if is_spot else group
            for group, is_spot in zip(groups, spot, strict=True)
        )

    def source(self, groups: Sequence[Group], seed: int) -> Faults:
        """Where a simulation's faults come from: spot nodes are reclaimed even if nothing else is told."""
        reclaimed = any(group.market is Market.SPOT and group.reclaims > 0 for group in groups)
        return (
            RandomFaults(groups, self.rates, seed) if reclaimed or self.rates != FaultRates() else NoFaults()
        )


def parse_faults(text: str) -> FaultSettings:
    """Names with values, separated by commas."""
    values: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _FAULT_PARSERS or not equals:
            hint = did_you_mean(name, _FAULT_PARSERS) or f"; there are {', '.join(_FAULT_PARSERS)}"
            raise BadInputError(f'faults: "{part.strip()}" is none{hint}, written name=value')
        try:
            values[name] = _FAULT_PARSERS[name](value)
        except BadInputError as error:
            raise BadInputError(f"faults: {name}: {error}") from None
    reclaims = values.pop("spot", None)
    return FaultSettings(
        FaultRates(**{name.replace("-", "_"): each for name, each in values.items()}), reclaims
    )


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise BadInputError(f'"{text}" is not a share of nodes; write it like 0.02 or 2%')
    return share


def _times(text: str) -> float:
    try:
        times = float(text)
    except ValueError:
        times = 0.0
    if not 1 <= times < float("inf"):
        raise BadInputError(f'"{text}" must be a number of at least 1: how many times slower slow nodes are')
    return times


def _away(text: str) -> float:
    seconds = parse_duration(text)
    if seconds == 0:
        raise BadInputError("a node that is back at once was never gone; write a duration like 30m")
    return seconds


_FAULT_PARSERS: Mapping[str, Callable[[str], float]] = {
    "node-loss": parse_rate,
    "repair": _away,
    "spot": parse_rate,
    "refill": _away,
    "slow": _share,
    "slowness": _times,
    "job-failure": parse_rate,
}
