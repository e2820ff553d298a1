"""Devices that may all be unequal, the machines they are in, and the links between them."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from trimtab.catalog import Accelerator, accelerator, find_accelerator
from trimtab.core import BadInputError, format_bandwidth, format_duration, one_line, parse_bandwidth


@dataclass(frozen=True, slots=True)
class Device:
    """One device. `kind` is an accelerator of the catalog, or "cpu" with `cores`; `memory` in bytes.

    `peak` is FLOP/s by number format and `memory_bandwidth` B/s, from the catalog or the devices file;
    `machine` numbers the machine it sits in; `price` is dollars per second, None where nobody knows.
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
    """Devices and their links: `bandwidth[i, j]` B/s from i to j, zero where none is; `latency[i, j]` s."""

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
        """The kinds there are, in the order of their first device."""
        return tuple(dict.fromkeys(device.kind for device in self.devices))

    def only(self, chosen: "tuple[int, ...]") -> "Devices":
        """Some of the devices, in the given order."""
        index = np.array(chosen, dtype=np.int64)
        return Devices(
            tuple(self.devices[i] for i in chosen),
            self.bandwidth[np.ix_(index, index)],
            self.latency[np.ix_(index, index)],
        )


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
class DeviceLink:
    """B/s (zero: there is none) and seconds from one device to another."""

    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class DeviceMachine:
    """Devices that sit together; `inside` is the link between them, None for the usual one."""

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
    """Devices with `count` more like the last of a kind, in machines as large as its own.

    A new machine is joined to all others as the kind's own machine is, or as the first two machines are.
    """
    model = max(i for i, device in enumerate(devices.devices) if device.kind == kind)
    mates = [i for i, device in enumerate(devices.devices) if device.machine == devices[model].machine]
    outside = [i for i in range(len(devices)) if i not in mates]
    between = (
        DeviceLink(float(devices.bandwidth[model, outside[0]]), float(devices.latency[model, outside[0]]))
        if outside
        else DeviceLink(parse_bandwidth(NETWORK), NETWORK_LATENCY)
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
def _inside(one: str, other: str, neighbours: bool) -> DeviceLink:
    """Between two kinds of device in a machine; `neighbours` share a bridge where there are bridges."""
    if one == other == CPU:
        return DeviceLink(LOOPBACK, LOOPBACK_LATENCY)
    kinds = [find_accelerator(kind) for kind in (one, other)]
    direct = kinds[0].interconnect if kinds[0] is not None and kinds[0] == kinds[1] else None
    if direct is None or _is_pcie(direct.name) or ("bridge" in direct.name and not neighbours):
        return DeviceLink(min(_pcie(kind) for kind in kinds), PCIE_LATENCY)
    return DeviceLink(direct.bandwidth, NVLINK_LATENCY)


def _is_pcie(name: str) -> bool:
    return name.startswith("PCIe")


def _pcie(kind: Accelerator | None) -> float:
    """B/s to the host: as the catalog has it, else by the generation of the device's year."""
    if kind is None:
        return PCIE
    if _is_pcie(kind.interconnect.name):
        return kind.interconnect.bandwidth
    return PCIE * 2.0 ** sum(kind.year >= year for year in _PCIE_DOUBLED_IN)


MOST_DEVICES = 4096
"""A matrix of links between more is no longer something that one machine plans."""
_RIGHT = "write kinds and counts like a100-40:2,t4:4, or name a YAML file"
_GROUP = re.compile(r"(?P<kind>[^:/]+?)(?::(?P<count>\d+)(?:x(?P<cores>\d+))?)?(?:/(?P<per>\d+))?")


@dataclass(frozen=True, slots=True)
class ParsedDevices:
    """The devices, and in words what was assumed about them."""

    devices: Devices
    assumed: tuple[str, ...] = ()


def devices_of(text: str, network: str | None = None, per_machine: int | None = None) -> Devices:
    """The devices alone; see `parse_devices`."""
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
    devices = connected(machines, DeviceLink(parse_network(network or NETWORK), NETWORK_LATENCY))
    return ParsedDevices(devices, _assumed(machines, network))


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
    """One accelerator of the catalog with its cheapest price; it has no name yet."""
    facts = accelerator(name)
    return Device("", facts.name, facts.memory, facts.peak, facts.memory_bandwidth, price=_price(facts.name))


def cpu_device(cores: float, memory: float) -> Device:
    """A share of this machine's processors; its speed is what the model of CPUs says for its cores."""
    return Device("", CPU, memory, {}, 0.0, cores=cores)


def this_machine() -> tuple[float, float]:
    """Cores and bytes of memory that this process may use."""
    from trimtab.kernel import cpu_limit, memory_limit

    cores = float(len(os.sched_getaffinity(0)))
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(cores, cpu_limit() or cores), min(memory, memory_limit() or memory)


def named(machines: Iterable[DeviceMachine]) -> list[DeviceMachine]:
    """The machines with their numbers in their devices, and a name like T4:0 for each that has none."""
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
    found: list[DeviceMachine] = []
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
            found.append(DeviceMachine("", (device,) * min(together, count - start)))
    return named(found)


def _device(match: re.Match[str], count: int, group: str) -> Device:
    kind = match["kind"].strip()
    if kind.lower() != CPU:
        if match["cores"]:
            raise BadInputError(f'--devices has "{group}"; only CPUs are given cores, like cpu:2x8')
        return catalog_device(kind)
    cores, memory = this_machine()
    each = float(match["cores"] or max(1, cores // max(1, count)))
    if each < 1:
        raise BadInputError(f'--devices has "{group}"; a CPU computes with at least one core')
    return cpu_device(each, memory / max(1, count))


def _price(kind: str) -> float | None:
    """Dollars per second of one such accelerator, as part of the cheapest machine that has it."""
    import numpy as np

    from trimtab.catalog import load_offers

    offers = load_offers().where(accelerator=kind, min_accelerators=1)
    return float(np.min(offers.price / offers.accelerators)) if len(offers) else None


def _assumed(machines: list[DeviceMachine], network: str | None) -> tuple[str, ...]:
    notes = []
    if len(machines) > 1 and network is None:
        notes.append(f"{NETWORK} between machines, since --network does not say")
    if any(device.kind == CPU for machine in machines for device in machine.devices):
        link = f"{format_bandwidth(LOOPBACK)} and {format_duration(LOOPBACK_LATENCY)}"
        notes.append(f"{link} between processes on one CPU")
    return tuple(notes)
