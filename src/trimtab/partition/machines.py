"""Machines with devices in them, and the links that come with that: what nobody says is assumed here."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from trimtab.catalog import Accelerator, find_accelerator
from trimtab.core import parse_bandwidth
from trimtab.partition.devices import Device, Devices

NETWORK = "10Gbit"
"""Between machines, where nobody says."""
NETWORK_LATENCY = 30e-6
NVLINK_LATENCY = 5e-6
"""Of NVLink and its like: links between devices that do not pass the host."""
PCIE_LATENCY = 10e-6
PCIE = 16e9
"""B/s of 16 lanes of the third generation; each later one doubles it."""
_PCIE_DOUBLED_IN = (2020, 2022)
LOOPBACK = 1.5e9
"""B/s between two processes of one machine that compute on its CPU."""
LOOPBACK_LATENCY = 100e-6

CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Link:
    """B/s (zero: there is none) and seconds from one device to another."""

    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class Machine:
    """Devices that sit together; `inside` is what joins them where somebody said."""

    name: str
    devices: tuple[Device, ...]
    inside: Link | None = None


def connected(machines: Sequence[Machine], network: Link) -> Devices:
    """All devices with a link for every pair: that of the machine, or the network between machines."""
    devices = [device for machine in machines for device in machine.devices]
    bandwidth = np.full((len(devices), len(devices)), network.bandwidth)
    latency = np.full((len(devices), len(devices)), network.latency)
    first = 0
    for machine in machines:
        for i, one in enumerate(machine.devices):
            for j, other in enumerate(machine.devices):
                link = machine.inside or _inside(one.kind, other.kind, i // 2 == j // 2)
                bandwidth[first + i, first + j], latency[first + i, first + j] = link.bandwidth, link.latency
        first += len(machine.devices)
    np.fill_diagonal(bandwidth, np.inf)
    np.fill_diagonal(latency, 0.0)
    return Devices(tuple(devices), bandwidth, latency)


def islands(devices: Devices) -> tuple[tuple[int, ...], ...]:
    """Devices that can reach one another, by links both ways, island by island."""
    joined = (devices.bandwidth > 0) & (devices.bandwidth.T > 0)
    left, found = set(range(len(devices))), []
    while left:
        reached, edge = set[int](), {min(left)}
        while edge:
            reached |= edge
            edge = {int(j) for i in edge for j in np.flatnonzero(joined[i])} - reached
        found.append(tuple(sorted(reached)))
        left -= reached
    return tuple(found)


def with_more(devices: Devices, kind: str, count: int) -> Devices:
    """The same with `count` more devices like the last of a kind, in machines as large as its own.

    A new machine is joined to all others as the kind's own machine is, or as the first two machines are.
    """
    model = max(i for i, device in enumerate(devices.devices) if device.kind == kind)
    mates = [i for i, device in enumerate(devices.devices) if device.machine == devices[model].machine]
    outside = [i for i in range(len(devices)) if i not in mates]
    between = (
        Link(float(devices.bandwidth[model, outside[0]]), float(devices.latency[model, outside[0]]))
        if outside
        else Link(parse_bandwidth(NETWORK), NETWORK_LATENCY)
    )
    alike = sum(devices[i].kind == kind for i in mates)
    added, last = [], max(device.machine for device in devices.devices)
    for number in range(count):
        machine = last + 1 + number // alike
        added.append(replace(devices[model], name=f"{kind}:new-{number}", machine=machine))
    everyone = (*devices.devices, *added)
    old, new = len(devices), len(everyone)
    bandwidth, latency = np.full((new, new), between.bandwidth), np.full((new, new), between.latency)
    bandwidth[:old, :old], latency[:old, :old] = devices.bandwidth, devices.latency
    for i in range(old, new):
        for j in range(old, new):
            if everyone[i].machine == everyone[j].machine:
                link = _inside(kind, kind, neighbours=True)
                bandwidth[i, j], latency[i, j] = link.bandwidth, link.latency
    np.fill_diagonal(bandwidth, np.inf)
    np.fill_diagonal(latency, 0.0)
    return Devices(everyone, bandwidth, latency)


@cache
def _inside(one: str, other: str, neighbours: bool) -> Link:
    """Between two kinds of device in a machine; `neighbours` share a bridge where there are bridges."""
    if one == other == CPU:
        return Link(LOOPBACK, LOOPBACK_LATENCY)
    kinds = [find_accelerator(kind) for kind in (one, other)]
    direct = kinds[0].interconnect if kinds[0] is not None and kinds[0] == kinds[1] else None
    if direct is None or _is_pcie(direct.name) or ("bridge" in direct.name and not neighbours):
        return Link(min(_pcie(kind) for kind in kinds), PCIE_LATENCY)
    return Link(direct.bandwidth, NVLINK_LATENCY)


def _is_pcie(name: str) -> bool:
    return name.startswith("PCIe")


def _pcie(kind: Accelerator | None) -> float:
    """B/s to the host: as the catalog has it, else by the generation of the device's year."""
    if kind is None:
        return PCIE
    if _is_pcie(kind.interconnect.name):
        return kind.interconnect.bandwidth
    return PCIE * 2.0 ** sum(kind.year >= year for year in _PCIE_DOUBLED_IN)
