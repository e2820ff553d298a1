"""Groups of equal nodes, the shapes in which workers are put on them, and how far data is from each group.

A gang fetches its data once, before its first useful step, from the nearest copy; its nodes then share it.
Real input pipelines hide part of that behind computing. How much differs from job to job, so nothing is
subtracted here: the seconds are an upper bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError, format_bytes
from trimtab.schedule.job import DataSet, Job, Worker

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Market(StrEnum):
    """How nodes are paid for: by use, always, or by use at a discount until somebody else wants them."""

    ON_DEMAND = "on-demand"
    RESERVED = "reserved"
    SPOT = "spot"


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are alike, in one zone and market. Each has accelerators, CPUs, bytes, dollars per second.

    `nodes` is how many are usable now. `reclaims` is how often per second a spot node is taken away.
    """

    name: str
    accelerator: str
    nodes: int
    gpus: int
    cpus: float
    memory: float
    price: float = 0.0
    market: Market = Market.ON_DEMAND
    reclaims: float = 0.0
    zone: str = ""

    @property
    def gpu_price(self) -> float:
        """Dollars per second of one accelerator; of a node where it has none."""
        return self.price / max(1, self.gpus)


@dataclass(frozen=True, slots=True)
class Shape:
    """So many workers on nodes of one group, on as few of them as hold them."""

    group: int
    workers: int


@dataclass(frozen=True)
class Cluster:
    """Groups, and the shapes a policy may choose from; columns of both for those who decide."""

    groups: tuple[Group, ...]
    shapes: tuple[Shape, ...]

    @cached_property
    def shape_group(self) -> Ints:
        """The group of each shape."""
        return np.array([shape.group for shape in self.shapes], dtype=np.int64)

    @cached_property
    def shape_workers(self) -> Ints:
        """The workers of each shape."""
        return np.array([shape.workers for shape in self.shapes], dtype=np.int64)

    @cached_property
    def capacity(self) -> Floats:
        """Accelerators, CPUs and bytes of each group, as rows."""
        rows = [(g.nodes * g.gpus, g.nodes * g.cpus, g.nodes * g.memory) for g in self.groups]
        return np.array(rows, dtype=float).reshape(-1, 3)

    @cached_property
    def gpu_price(self) -> Floats:
        """Dollars per second of one accelerator of each group; of one node where it has none."""
        return np.array([group.gpu_price for group in self.groups])


def usual_shapes(groups: Sequence[Group], most: int | None = None) -> tuple[Shape, ...]:
    """Powers of two within a node and whole nodes beyond: workers of one accelerator pack without holes."""
    shapes = []
    for index, group in enumerate(groups):
        size = max(1, group.gpus)
        total = min(size * group.nodes, most or size * group.nodes)
        within = [1 << power for power in range(size.bit_length()) if 1 << power <= min(size, total)]
        beyond = range(2 * size, total + 1, size)
        shapes += [Shape(index, workers) for workers in sorted({*within, *beyond, min(size, total)} - {0})]
    return tuple(shapes)


class Tier(IntEnum):
    """Where the nearest copy is, seen from a node; a smaller one is nearer."""

    DISK = 0
    ZONE = 1
    REGION = 2
    CLOUD = 3
    ELSEWHERE = 4


@dataclass(frozen=True, slots=True)
class Distance:
    """Bytes per second that one node reads at, and dollars per byte that crosses."""

    bandwidth: float
    egress: float = 0.0


_GB = 1e9
_GBIT = 1e9 / 8

DISTANCES: Mapping[Tier, Distance] = {
    # One data-centre NVMe drive behind PCIe 3.0 x4 (3.9 GB/s at most); data sheets say 3.0 to 3.5.
    Tier.DISK: Distance(3.2 * _GB),
    # 10 Gbit/s, what instances with one accelerator get (Amazon EC2 user guide: inside a region traffic may
    # use an instance's whole bandwidth). Reading inside a zone is free.
    Tier.ZONE: Distance(10 * _GBIT),
    # Amazon EC2 price list: $0.01 per GB leaving a zone and $0.01 entering the other. Same bandwidth.
    Tier.REGION: Distance(10 * _GBIT, 0.02 / _GB),
    # EC2 user guide: 5 Gbit/s to other regions below 32 vCPUs; price list: $0.02 per GB between US regions.
    Tier.CLOUD: Distance(5 * _GBIT, 0.02 / _GB),
    # The same limit through an internet gateway; $0.09 per GB for the first 10 TB of a month.
    Tier.ELSEWHERE: Distance(5 * _GBIT, 0.09 / _GB),
}


def tier_between(origin: str, zone: str) -> Tier:
    """How far apart two zones are, written cloud/region/zone; names without slashes are zones of one region.

    A zone that is not told is taken to be the same: nobody would say otherwise of a single site.
    """
    if not origin or not zone or origin == zone:
        return Tier.ZONE
    ours, theirs = origin.split("/"), zone.split("/")
    if len(ours) != len(theirs):
        return Tier.ELSEWHERE
    apart = len(ours) - next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
    return (Tier.REGION, Tier.CLOUD, Tier.ELSEWHERE)[min(apart, 3) - 1]


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """For every job (row) and group (column): the tier, seconds until the data is there, dollars it takes."""

    tier: NDArray[np.int64]
    seconds: Floats
    dollars: Floats


def fetch(
    data: Sequence[DataSet | None],
    groups: Sequence[Group],
    node_group: Mapping[str, int] | None = None,
) -> Fetch:
    """Seconds and dollars to fetch each job's data to each group; zero for jobs without data.

    `node_group` is the group of each node, by name. A node with a copy serves the others of its zone.
    """
    tier = _by_zone(data, groups)
    places = node_group or {}
    for row, wanted in enumerate(data):
        if wanted is not None and wanted.nodes:
            _nearer(tier[row], groups, [places[n] for n in wanted.nodes if n in places], Tier.DISK)
    size = np.array([0.0 if wanted is None else wanted.bytes for wanted in data])[:, None]
    bandwidth = np.array([DISTANCES[t].bandwidth for t in Tier])
    egress = np.array([DISTANCES[t].egress for t in Tier])
    return Fetch(tier, size / bandwidth[tier], size * egress[tier])


def _by_zone(data: Sequence[DataSet | None], groups: Sequence[Group]) -> NDArray[np.int64]:
    """The tier between each job's data and each group, from where the data is kept."""
    zones = {wanted.zone for wanted in data if wanted is not None} | {""}
    rows = {zone: [int(tier_between(zone, group.zone)) for group in groups] for zone in zones}
    found = [rows[wanted.zone if wanted is not None else ""] for wanted in data]
    return np.array(found, dtype=np.int64).reshape(len(data), len(groups))


def _nearer(tier: NDArray[np.int64], groups: Sequence[Group], holders: Sequence[int], held: Tier) -> None:
    """Account for copies on nodes of the groups `holders`: at hand there, and near in their zones."""
    for group in set(holders):
        for other, there in enumerate(groups):
            nearest = held if other == group else tier_between(groups[group].zone, there.zone)
            tier[other] = min(tier[other], nearest)


_SLACK = 1e-9


def accepts(worker: Worker, group: Group) -> bool:
    """Whether nodes of a group are of a kind that will do; one without accelerators can run anywhere."""
    if worker.gpus == 0:
        return True
    return group.gpus > 0 and (not worker.accelerators or group.accelerator in worker.accelerators)


def largest_gang(worker: Worker, group: Group) -> int:
    """How many such workers all nodes of a group hold when they are empty."""
    return group.nodes * _on_one_node(worker, group) if accepts(worker, group) else 0


def impossible(job: Job, groups: Sequence[Group]) -> str | None:
    """Why these groups can never run a job, and what they could run; None where they can."""
    if any(largest_gang(job.worker, group) >= job.least for group in groups):
        return None
    if not groups:
        return "no nodes are known"
    worker = job.worker
    best = {
        kind: max(largest_gang(_of_any_kind(worker), g) for g in groups if g.accelerator == kind)
        for kind in dict.fromkeys(group.accelerator for group in groups)
    }
    if worker.gpus == 0:
        most = max(best.values())
        words = f"{_many(job.least, 'worker')} with {_rest(worker)} each asked"
        return f"{words}; the largest this fleet can give is {most}" if most else _too_large(worker, groups)
    wanted = " or ".join(worker.accelerators) or "accelerators"
    given = {kind: count * worker.gpus for kind, count in best.items() if kind and count}
    if not given:
        return _too_large(worker, groups)
    shown = ", or ".join(f"{count:g} {kind}" for kind, count in sorted(given.items()))
    return f"{job.least * worker.gpus:g} {wanted} asked; the largest this fleet can give is {shown}"


def refuse_impossible(job: Job, groups: Sequence[Group]) -> None:
    """Raise where the fleet can never run it."""
    sentence = impossible(job, groups)
    if sentence is not None:
        raise BadInputError(f'the job "{job.workload.name}" is impossible here: {sentence}')


def _of_any_kind(worker: Worker) -> Worker:
    return Worker(worker.gpus, worker.cpus, worker.memory)


def _on_one_node(worker: Worker, group: Group) -> int:
    rooms = [(10**9)]
    if worker.gpus >= 1:
        rooms.append(int(group.gpus / worker.gpus + _SLACK))
    elif worker.gpus > 0:
        rooms.append(group.gpus * int(1 / worker.gpus + _SLACK))
    if worker.cpus > 0:
        rooms.append(int(group.cpus / worker.cpus + _SLACK))
    if worker.memory > 0:
        rooms.append(int(group.memory / worker.memory + _SLACK))
    return min(rooms)


def _too_large(worker: Worker, groups: Sequence[Group]) -> str:
    largest = ", or ".join(
        f"{f'{group.gpus} {group.accelerator}, ' if group.gpus else ''}{_many(group.cpus, 'CPU')} and"
        f" {format_bytes(group.memory)}"
        for group in groups
    )
    gpus = f"{_many(worker.gpus, 'accelerator')}, " if worker.gpus else ""
    return f"a worker with {gpus}{_rest(worker)} asked; a node here has {largest}"


def _rest(worker: Worker) -> str:
    memory = f" and {format_bytes(worker.memory)}" if worker.memory else ""
    return f"{_many(worker.cpus, 'CPU')}{memory}"


def _many(count: float, what: str) -> str:
    return f"{count:g} {what}{'' if count == 1 else 's'}"
