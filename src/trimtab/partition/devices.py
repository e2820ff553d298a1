"""Devices that may all be unequal, the machines they are in, and the links between them."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import Accelerator, accelerator, find_accelerator, link_constants
from trimtab.core import BadInputError, format_bandwidth, format_duration, one_line, parse_bandwidth


@dataclass(frozen=True, slots=True)
class Device:
    """One device. `kind` is an accelerator of the catalog, or "cpu" with `cores`; `memory` in bytes.

    `peak` is FLOP/s by number format and `memory_bandwidth` B/s, from the catalog or the devices file;
    `machine` is the number of its machine; `price` is dollars per second, None if unknown.
    """

    name: str
    kind: str
    memory: float
    peak: Mapping[str, float]
    memory_bandwidth: float
    machine: int = 0
    price: float | None = None
    cores: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """Devices and their links: `bandwidth[i, j]` from i to j in B/s, zero for none; `latency[i, j]` in s."""

    devices: tuple[Device, ...]
    bandwidth: NDArray[np.float64]
    latency: NDArray[np.float64]

    def __post_init__(self) -> None:
        if not self.devices:
            raise BadInputError("there are no devices to split the model over; --devices a100:2 names two")

    def __len__(self) -> int:
        return len(self.devices)

    def __getitem__(self, index: int) -> Device:
        return self.devices[index]

    @property
    def memory(self) -> NDArray[np.float64]:
        """Bytes of each device."""
        return np.array([device.memory for device in self.devices])

    @property
    def kinds(self) -> tuple[str, ...]:
        """The distinct kinds, in the order of their first device."""
        return tuple(dict.fromkeys(device.kind for device in self.devices))

    def price(self, used: Iterable[int]) -> float | None:
        """Dollars per second of some devices; None where a price is unknown."""
        prices = [self.devices[index].price for index in used]
        known = [price for price in prices if price is not None]
        return sum(known) if len(known) == len(prices) else None

    def only(self, chosen: tuple[int, ...]) -> "Devices":
        """Some of the devices, in the given order."""
        pairs = np.ix_(chosen, chosen)
        devices = tuple(self.devices[i] for i in chosen)
        return Devices(devices, self.bandwidth[pairs], self.latency[pairs])


CPU = "cpu"


@dataclass(frozen=True, slots=True)
class DeviceLink:
    """Bandwidth in B/s (zero: no link) and latency in seconds from one device to another."""

    bandwidth: float
    latency: float


def default_network() -> DeviceLink:
    """The link between machines where the user gives none."""
    links = link_constants()
    return DeviceLink(links.network_bandwidth, links.network_latency)


@dataclass(frozen=True, slots=True)
class DeviceMachine:
    """Devices of one machine; `inside` is the link between them, None for the default of their kinds."""

    name: str
    devices: tuple[Device, ...]
    inside: DeviceLink | None = None


def connected(machines: Sequence[DeviceMachine], network: DeviceLink) -> Devices:
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
    """Sets of devices that can reach one another, over links that exist both ways."""
    from scipy.sparse.csgraph import connected_components

    count, island = connected_components((devices.bandwidth > 0) & (devices.bandwidth.T > 0), directed=False)
    return tuple(tuple(np.flatnonzero(island == number).tolist()) for number in range(count))


def with_more(devices: Devices, kind: str, count: int) -> Devices:
    """Devices with `count` more like the last of a kind, in machines of the same size.

    A new machine is linked to all others like that device's machine, or by the default network.
    """
    model = max(i for i, device in enumerate(devices.devices) if device.kind == kind)
    mates = [i for i, device in enumerate(devices.devices) if device.machine == devices[model].machine]
    outside = [i for i in range(len(devices)) if i not in mates]
    between = default_network()
    if outside:
        to = model, outside[0]
        between = DeviceLink(float(devices.bandwidth[to]), float(devices.latency[to]))
    alike = sum(devices[i].kind == kind for i in mates)
    last, old, new = max(device.machine for device in devices.devices), len(devices), len(devices) + count
    added = [
        replace(devices[model], name=f"{kind}:new-{number}", machine=last + 1 + number // alike)
        for number in range(count)
    ]
    everyone = (*devices.devices, *added)
    bandwidth, latency = np.full((new, new), between.bandwidth), np.full((new, new), between.latency)
    machine = np.array([device.machine for device in everyone])
    inside, link = machine[:, None] == machine[None, :], _inside(kind, kind, neighbours=True)
    bandwidth[inside], latency[inside] = link.bandwidth, link.latency
    bandwidth[:old, :old], latency[:old, :old] = devices.bandwidth, devices.latency
    np.fill_diagonal(bandwidth, np.inf)
    np.fill_diagonal(latency, 0.0)
    return Devices(everyone, bandwidth, latency)


@cache
def _inside(one: str, other: str, neighbours: bool) -> DeviceLink:
    """The link between two kinds of device in a machine; `neighbours` share a bridge if there is one."""
    links = link_constants()
    if one == other == CPU:
        return DeviceLink(links.loopback_bandwidth, links.loopback_latency)
    kinds = [find_accelerator(kind) for kind in (one, other)]
    direct = kinds[0].interconnect if kinds[0] is not None and kinds[0] == kinds[1] else None
    if direct is None or _is_pcie(direct.name) or ("bridge" in direct.name and not neighbours):
        return DeviceLink(min(_pcie(kind) for kind in kinds), links.pcie_latency)
    return DeviceLink(direct.bandwidth, links.direct_latency)


def _is_pcie(name: str) -> bool:
    return name.startswith("PCIe")


def _pcie(kind: Accelerator | None) -> float:
    """B/s to the host: from the catalog, else by the PCIe generation of the device's year."""
    if kind is not None and _is_pcie(kind.interconnect.name):
        return kind.interconnect.bandwidth
    links = link_constants()
    doubled = 0 if kind is None else sum(kind.year >= year for year in links.pcie_doubled_in)
    return links.pcie_bandwidth * 2.0**doubled


MOST_DEVICES = 4096
"""The matrix of links between more would be too large to plan with on one machine."""
_RIGHT = "write kinds and counts like a100-40:2,t4:4, or name a YAML file"
_GROUP = re.compile(r"(?P<kind>[^:/]+?)(?::(?P<count>\d+)(?:x(?P<cores>\d+))?)?(?:/(?P<per>\d+))?")


@dataclass(frozen=True, slots=True)
class ParsedDevices:
    """The devices, and sentences on what was assumed about them."""

    devices: Devices
    assumed: tuple[str, ...] = ()


def devices_of(text: str, network: str | None = None, per_machine: int | None = None) -> Devices:
    """Devices of `parse_devices`, without its notes."""
    return parse_devices(text, network, per_machine).devices


def parse_devices(text: str, network: str | None = None, per_machine: int | None = None) -> ParsedDevices:
    """Devices from "a100-40:2,t4:4" (each kind one machine), "t4:4/2" (two to a machine), or a YAML file.

    "cpu:2x8" is two processes of this machine with 8 cores each, "cpu:2" shares its cores out. `network` is
    the bandwidth between machines ("25Gbit"; "none" where they are not joined), `per_machine` how many
    devices fit into one.
    """
    if text.strip().endswith((".yaml", ".yml")):
        from trimtab.partition.devices_file import read_devices

        if per_machine is not None:
            raise BadInputError("--per-machine is for devices named by kind; a file says which sit together")
        return read_devices(text.strip(), network)
    if per_machine is not None and per_machine < 1:
        raise BadInputError(f"--per-machine is {per_machine}; a machine holds at least one device")
    machines = _machines(text, per_machine)
    link, links, notes = default_network(), link_constants(), []
    if network is not None:
        link = replace(link, bandwidth=parse_network(network))
    elif len(machines) > 1:
        notes.append(f"{format_network(link.bandwidth)} between machines, since --network does not say")
    if any(device.kind == CPU for machine in machines for device in machine.devices):
        bandwidth = format_bandwidth(links.loopback_bandwidth)
        latency = format_duration(links.loopback_latency)
        notes.append(f"{bandwidth} and {latency} between processes on one CPU")
    return ParsedDevices(connected(machines, link), tuple(notes))


def format_network(bandwidth: float) -> str:
    """A bandwidth in the unit of networks: "10Gbit"."""
    return f"{bandwidth * 8 / 1e9:g}Gbit"


def parse_network(text: str) -> float:
    """B/s between machines; zero for "none"."""
    if text.strip().lower() == "none":
        return 0.0
    try:
        amount = 0.0 if re.fullmatch(r"[\d.eE+-]+", text.strip()) else parse_bandwidth(text)
    except BadInputError:
        amount = 0.0
    if amount <= 0:
        raise BadInputError(
            f'the network "{one_line(text):.40}" is not a bandwidth; write it like 25Gbit or 3GB/s,'
            " or none where machines are not joined"
        )
    return amount


def catalog_device(name: str) -> Device:
    """One accelerator of the catalog without a name, priced as part of the cheapest machine that has it."""
    from trimtab.catalog import load_offers

    facts = accelerator(name)
    offers = load_offers().where(accelerator=facts.name, min_accelerators=1)
    price = float(np.min(offers.price / offers.accelerators)) if len(offers) else None
    return Device("", facts.name, facts.memory, facts.peak, facts.memory_bandwidth, price=price)


def cpu_device(count: int, cores: float | None = None) -> Device:
    """One of `count` equal shares of the CPU cores and the memory that this process may use."""
    from trimtab.kernel import cpu_limit, memory_limit

    available = float(len(os.sched_getaffinity(0)))
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    available, memory = min(available, cpu_limit() or available), min(memory, memory_limit() or memory)
    count = max(1, count)
    return Device("", CPU, memory / count, {}, 0.0, cores=cores or max(1, available // count))


def named(machines: Iterable[DeviceMachine]) -> list[DeviceMachine]:
    """The machines with their devices numbered and, where they lack a name, named like T4:0."""
    counts: dict[str, int] = {}
    result = []
    for number, machine in enumerate(machines):
        devices = []
        for device in machine.devices:
            index = counts[device.kind] = counts.get(device.kind, -1) + 1
            devices.append(replace(device, name=device.name or f"{device.kind}:{index}", machine=number))
        result.append(replace(machine, devices=tuple(devices)))
    return result


def _machines(text: str, per_machine: int | None) -> list[DeviceMachine]:
    groups = [part.strip() for part in text.split(",") if part.strip()]
    machines: list[DeviceMachine] = []
    total = 0
    for group in groups:
        match = _GROUP.fullmatch(group)
        if match is None:
            raise BadInputError(f'--devices has "{one_line(group):.60}"; {_RIGHT}')
        count = int(match["count"] or 1)
        total += count
        if total > MOST_DEVICES:
            raise BadInputError(f"--devices names more than {MOST_DEVICES:,} devices; plan a part of them")
        device = _device(match, count, group)
        together = int(match["per"] or per_machine or count)
        if count and not together:
            raise BadInputError(f'--devices has "{group}"; a machine holds at least one device')
        for start in range(0, count, together or 1):
            machines.append(DeviceMachine("", (device,) * min(together, count - start)))
    return named(machines)


def _device(match: re.Match[str], count: int, group: str) -> Device:
    kind = match["kind"].strip()
    if kind.lower() != CPU:
        if match["cores"]:
            raise BadInputError(f'--devices has "{group}"; only CPUs are given cores, like cpu:2x8')
        return catalog_device(kind)
    if match["cores"] and int(match["cores"]) < 1:
        raise BadInputError(f'--devices has "{group}"; a CPU computes with at least one core')
    return cpu_device(count, float(match["cores"]) if match["cores"] else None)
