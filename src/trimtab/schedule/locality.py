"""How far a job is from its data: seconds to fetch it and dollars to move it, for every group of nodes.

A gang fetches its data once, before its first useful step, from the nearest copy; its nodes then share it.
Real input pipelines hide part of that behind computing. How much differs from job to job, so nothing is
taken off here: the seconds are an upper bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from trimtab.schedule.cluster import Floats, Group
from trimtab.schedule.job import DataSet


class Tier(IntEnum):
    """Where the nearest copy is, seen from a node; a smaller one is nearer."""

    MEMORY = 0
    DISK = 1
    ZONE = 2
    REGION = 3
    CLOUD = 4
    ELSEWHERE = 5


@dataclass(frozen=True, slots=True)
class Distance:
    """Bytes per second that one node reads at, and dollars per byte that crosses."""

    bandwidth: float
    egress: float = 0.0


_GB = 1e9
_GBIT = 1e9 / 8

DISTANCES: Mapping[Tier, Distance] = {
    # A single thread copies about 10 GB/s out of the page cache of a server with DDR4.
    Tier.MEMORY: Distance(10 * _GB),
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
    in_memory: Mapping[int, frozenset[str]] | None = None,
    distances: Mapping[Tier, Distance] = DISTANCES,
) -> Fetch:
    """What getting there costs each job in each group; nothing where it has no data.

    `node_group` says which group each node belongs to, by name, and `in_memory` which nodes hold a job's data
    (by its row) in memory. A node with a copy serves the others of its zone.
    """
    tier = _by_zone(data, groups)
    places = node_group or {}
    for row, wanted in enumerate(data):
        if wanted is not None and wanted.nodes:
            _nearer(tier[row], groups, [places[n] for n in wanted.nodes if n in places], Tier.DISK)
    for row, nodes in (in_memory or {}).items():
        _nearer(tier[row], groups, [places[n] for n in nodes if n in places], Tier.MEMORY)
    size = np.array([0.0 if wanted is None else wanted.bytes for wanted in data])[:, None]
    bandwidth = np.array([distances[t].bandwidth for t in Tier])
    egress = np.array([distances[t].egress for t in Tier])
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
