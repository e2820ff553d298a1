"""Faults of a simulated cluster, from one seed: nodes are lost, reclaimed or slow, and jobs fail.

Users write them as "node-loss=1/30d,spot=0.1/h,slow=2%,job-failure=0.01/h".
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

import numpy as np

from trimtab.core import BadInputError, did_you_mean, parse_duration, parse_rate
from trimtab.schedule.cluster import Floats, Ints, Market, NodeGroup
from trimtab.schedule.placing import Placement


@dataclass(frozen=True, slots=True, order=True)
class NodeFault:
    """A node is lost, or comes `back`."""

    time: float
    group: int
    node: int
    back: bool = False


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Rates per second: a node is lost, a running job fails. Spot nodes are reclaimed at their group's rate.

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
    """Faults at these rates, the same for the same seed whatever the policy does; none without groups.

    Nodes are lost at the same moments; a job fails whenever it has run for the same times.
    """

    groups: Sequence[NodeGroup] = ()
    rates: FaultRates = field(default_factory=FaultRates)
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = np.random.default_rng((self.seed, 1))
        self._lifetimes: dict[int, float] = {}
        self._failures: Counter[int] = Counter()
        self._slow = [self._random.random(group.nodes) < self.rates.slow for group in self.groups]
        self._ahead: list[NodeFault] = []
        for group, size in enumerate(group.nodes for group in self.groups):
            for node in range(size):
                self._next_loss(0.0, group, node)

    @property
    def active(self) -> bool:
        """Whether anything can go wrong."""
        lost = any(self._loss(group) > 0 for group in range(len(self.groups)))
        return lost or bool(self.groups and (self.rates.slow or self.rates.job_failure))

    def until(self, now: float) -> Iterable[NodeFault]:
        """Losses and returns of nodes since the last call, in order of time."""
        while self._ahead and self._ahead[0].time <= now:
            fault = heappop(self._ahead)
            if fault.back:
                self._next_loss(fault.time, fault.group, fault.node)
            else:
                spot = self.groups[fault.group].market is Market.SPOT
                seconds = self.rates.refill if spot else self.rates.repair
                heappush(self._ahead, NodeFault(fault.time + seconds, fault.group, fault.node, back=True))
            yield fault

    def slowness(self, placement: Placement) -> float:
        """The factor by which the slowest of these nodes is slower than it should be."""
        slow = self._slow[placement.group] if self.rates.slow else ()
        return self.rates.slowness if len(slow) and any(slow[node] for node, _ in placement.parts) else 1.0

    def hazard(self, placement: Placement) -> float:
        """The rate per second at which a job on these nodes loses its unsaved work."""
        if not self.groups:
            return 0.0
        return len(placement.parts) * self._loss(placement.group) + self.rates.job_failure

    def lifetimes(self, jobs: Ints) -> Floats:
        """Seconds that each of these jobs can still run before it fails."""
        if self.rates.job_failure == 0.0:
            return np.full(len(jobs), np.inf)
        return np.array([self._lifetime(job) for job in jobs.tolist()])

    def lived(self, jobs: Ints, seconds: Floats) -> None:
        """Account for the seconds that these jobs have run."""
        if self.rates.job_failure == 0.0:
            return
        for job, passed in zip(jobs.tolist(), seconds.tolist(), strict=True):
            remaining = self._lifetime(job) - passed
            if remaining > 0:
                self._lifetimes[job] = remaining
            else:
                del self._lifetimes[job]
                self._failures[job] += 1

    def _lifetime(self, job: int) -> float:
        if job not in self._lifetimes:
            draw = np.random.default_rng((self.seed, 2, job, self._failures[job]))
            self._lifetimes[job] = draw.exponential(1 / self.rates.job_failure)
        return self._lifetimes[job]

    def _loss(self, group: int) -> float:
        """The rate per second at which a node of a group is lost or reclaimed."""
        spot = self.groups[group].market is Market.SPOT
        return self.rates.node_loss + (self.groups[group].reclaims if spot else 0.0)

    def _next_loss(self, after: float, group: int, node: int) -> None:
        rate = self._loss(group)
        if rate > 0:
            heappush(self._ahead, NodeFault(after + self._random.exponential(1 / rate), group, node))


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """Rates of faults; `reclaims`, per second, replaces the rate of spot groups."""

    rates: FaultRates = field(default_factory=FaultRates)
    reclaims: float | None = None

    def groups(self, groups: Sequence[NodeGroup]) -> tuple[NodeGroup, ...]:
        """The groups, with the rate of reclaims of these settings."""
        if self.reclaims is None:
            return tuple(groups)
        spot = [group.market is Market.SPOT for group in groups]
        if not any(spot):
            raise BadInputError(
                "faults: spot is set, but no group of the cluster has market: spot; add it to a group"
            )
        return tuple(
            replace(group, reclaims=self.reclaims) if is_spot else group
            for group, is_spot in zip(groups, spot, strict=True)
        )

    def source(self, groups: Sequence[NodeGroup], seed: int) -> RandomFaults:
        """The faults of a simulation; spot nodes are reclaimed even without other faults."""
        return RandomFaults(groups, self.rates, seed)


def parse_faults(text: str) -> FaultSettings:
    """Settings from names with values, separated by commas."""
    values: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _FAULT_PARSERS or not equals:
            hint = did_you_mean(name, _FAULT_PARSERS) or f"; the faults are {', '.join(_FAULT_PARSERS)}"
            raise BadInputError(f'faults: "{part.strip()}" is not a fault{hint}; write name=value')
        try:
            values[name] = _FAULT_PARSERS[name](value)
        except BadInputError as error:
            raise BadInputError(f"faults: {name}: {error}") from None
    reclaims = values.pop("spot", None)
    return FaultSettings(
        FaultRates(**{name.replace("-", "_"): value for name, value in values.items()}), reclaims
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


def _return_time(text: str) -> float:
    seconds = parse_duration(text)
    if seconds == 0:
        raise BadInputError("the time until a node is back must be above 0; write a duration like 30m")
    return seconds


_FAULT_PARSERS: Mapping[str, Callable[[str], float]] = {
    "node-loss": parse_rate,
    "repair": _return_time,
    "spot": parse_rate,
    "refill": _return_time,
    "slow": _share,
    "slowness": _times,
    "job-failure": parse_rate,
}
