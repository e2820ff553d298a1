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

from trimtab.core import BadInputError, format_bytes, format_duration
from trimtab.schedule.job import Job, JobData, Worker, speeds_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Market(StrEnum):
    """How nodes are paid for: by use, always, or by use at a discount until they are reclaimed."""

    ON_DEMAND = "on-demand"
    RESERVED = "reserved"
    SPOT = "spot"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes in one zone and market: accelerators, CPUs, bytes and dollars per second of each node.

    `nodes` counts the usable ones. `reclaims` is the rate per second at which a spot node is taken away.
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
class GangShape:
    """A number of workers on as few nodes of one group as hold them."""

    group: int
    workers: int


@dataclass(frozen=True)
class Cluster:
    """Groups, and the shapes a policy may choose from, with columns of both."""

    groups: tuple[NodeGroup, ...]
    shapes: tuple[GangShape, ...]

    @cached_property
    def shape_group(self) -> Ints:
        return np.array([shape.group for shape in self.shapes], dtype=np.int64)

    @cached_property
    def shape_workers(self) -> Ints:
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


def usual_shapes(groups: Sequence[NodeGroup], most: int | None = None) -> tuple[GangShape, ...]:
    """Powers of two within a node and whole nodes beyond: workers of one accelerator pack without holes."""
    shapes = []
    for index, group in enumerate(groups):
        size = max(1, group.gpus)
        total = min(size * group.nodes, most or size * group.nodes)
        within = [1 << power for power in range(size.bit_length()) if 1 << power <= min(size, total)]
        beyond = range(2 * size, total + 1, size)
        shapes += [
            GangShape(index, workers) for workers in sorted({*within, *beyond, min(size, total)} - {0})
        ]
    return tuple(shapes)


class Tier(IntEnum):
    """Where the nearest copy of data is, seen from a node; smaller is nearer."""

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
    """The tier between two zones written cloud/region/zone; names without slashes are zones of one region.

    An empty zone is taken to be the same, as on a single site.
    """
    if not origin or not zone or origin == zone:
        return Tier.ZONE
    start, end = origin.split("/"), zone.split("/")
    if len(start) != len(end):
        return Tier.ELSEWHERE
    apart = len(start) - next(i for i, (a, b) in enumerate(zip(start, end, strict=True)) if a != b)
    return (Tier.REGION, Tier.CLOUD, Tier.ELSEWHERE)[min(apart, 3) - 1]


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """By job (row) and group (column): the tier, seconds and dollars to fetch the data."""

    tier: NDArray[np.int64]
    seconds: Floats
    dollars: Floats


def fetch(
    data: Sequence[JobData | None],
    groups: Sequence[NodeGroup],
    node_group: Mapping[str, int] | None = None,
) -> Fetch:
    """Seconds and dollars to fetch each job's data to each group; zero for jobs without data.

    `node_group` is the group of each node, by name. A node with a copy serves the others of its zone.
    """
    if all(part is None for part in data):
        none = np.zeros((len(data), len(groups)))
        return Fetch(np.full(none.shape, int(Tier.ZONE), dtype=np.int64), none, none.copy())
    zones = {part.zone for part in data if part is not None} | {""}
    by_zone = {zone: [int(tier_between(zone, group.zone)) for group in groups] for zone in zones}
    rows = [by_zone["" if part is None else part.zone] for part in data]
    tier = np.array(rows, dtype=np.int64).reshape(len(data), len(groups))
    for row, part in enumerate(data):
        holders = (
            {node_group[node] for node in part.nodes if node in node_group} if part and node_group else ()
        )
        for holder in holders:
            for other, group in enumerate(groups):
                nearest = Tier.DISK if other == holder else tier_between(groups[holder].zone, group.zone)
                tier[row, other] = min(tier[row, other], nearest)
    size = np.array([0.0 if part is None else part.bytes for part in data])[:, None]
    bandwidth = np.array([DISTANCES[t].bandwidth for t in Tier])
    egress = np.array([DISTANCES[t].egress for t in Tier])
    return Fetch(tier, size / bandwidth[tier], size * egress[tier])


_SLACK = 1e-9


def accepts(worker: Worker, group: NodeGroup) -> bool:
    """Whether a group's kind of accelerator is accepted; a worker without accelerators can run anywhere."""
    if worker.gpus == 0:
        return True
    return group.gpus > 0 and (not worker.accelerators or group.accelerator in worker.accelerators)


def largest_gang(worker: Worker, group: NodeGroup) -> int:
    """The number of such workers that all nodes of a group hold when empty."""
    return group.nodes * _on_one_node(worker, group) if accepts(worker, group) else 0


def impossible(job: Job, groups: Sequence[NodeGroup]) -> str | None:
    """Why these groups can never run a job, and what they could run; None where they can."""
    worker = job.worker
    if any(largest_gang(worker, group) >= job.least for group in groups):
        return None
    if not groups:
        return "no nodes are known"
    any_kind = Worker(worker.gpus, worker.cpus, worker.memory)
    largest: dict[str, int] = {}
    for group in groups:
        largest[group.accelerator] = max(largest.get(group.accelerator, 0), largest_gang(any_kind, group))
    amounts = _amounts(worker.gpus, "accelerator", worker.cpus, worker.memory)
    workers = (
        f"{job.least} worker{'s' if job.least > 1 else ''} with {amounts}{' each' if job.least > 1 else ''}"
    )
    total = job.least * worker.gpus
    kinds = " or ".join(worker.accelerators) or f"accelerator{'' if total == 1 else 's'}"
    needed = f"it needs {total:g} {kinds} ({workers})" if worker.gpus else f"it needs {workers}"
    if worker.gpus:
        fitting = [f"{n * worker.gpus:g} {kind}" for kind, n in sorted(largest.items()) if kind and n]
    else:
        fitting = [f"{max(largest.values())} of them"] if any(largest.values()) else []
    if fitting:
        return f"{needed}; at most {' or '.join(fitting)} fit here"
    nodes = " or ".join(_amounts(group.gpus, group.accelerator, group.cpus, group.memory) for group in groups)
    return f"{needed}; no node here holds one worker, they have {nodes}"


def refuse_impossible(job: Job, groups: Sequence[NodeGroup]) -> None:
    """Raise where the fleet can never run it, or not before its hard deadline."""
    sentence = impossible(job, groups) or _too_late(job, groups)
    if sentence is not None:
        raise BadInputError(f'the job "{job.workload.name}" cannot run here: {sentence}')


def _too_late(job: Job, groups: Sequence[NodeGroup]) -> str | None:
    """Why a hard deadline cannot be met even on an empty fleet; None where it can, or nobody knows."""
    deadline = job.workload.deadline
    if not job.hard or deadline is None or job.work is None or not job.speeds:
        return None
    speeds = speeds_of(job, {})
    largest = ((group.accelerator, min(job.most, largest_gang(job.worker, group))) for group in groups)
    fastest = max(
        (speeds.of(kind, workers) for kind, workers in largest if workers >= job.least), default=0.0
    )
    if fastest * deadline >= job.work:
        return None
    return (
        f"its {job.work:g} units of work take {format_duration(job.work / fastest)} at best, and its hard"
        f" deadline is {format_duration(deadline)} after submission"
    )


def _on_one_node(worker: Worker, group: NodeGroup) -> int:
    fitting = [10**9]
    if worker.gpus >= 1:
        fitting.append(int(group.gpus / worker.gpus + _SLACK))
    elif worker.gpus > 0:
        fitting.append(group.gpus * int(1 / worker.gpus + _SLACK))
    if worker.cpus > 0:
        fitting.append(int(group.cpus / worker.cpus + _SLACK))
    if worker.memory > 0:
        fitting.append(int(group.memory / worker.memory + _SLACK))
    return min(fitting)


def _amounts(gpus: float, kind: str, cpus: float, memory: float) -> str:
    """Amounts with units, such as "8 a100, 64 CPUs and 512 GiB"."""
    counted = [(gpus, kind if kind != "accelerator" or gpus == 1 else "accelerators")] if gpus else []
    parts = [f"{count:g} {unit}" for count, unit in (*counted, (cpus, "CPU" if cpus == 1 else "CPUs"))]
    parts += [format_bytes(memory)] if memory else []
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
