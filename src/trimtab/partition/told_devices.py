"""Devices as somebody names them: "a100-40:2,t4:4" on the command line, or a YAML file."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from trimtab.catalog import accelerator
from trimtab.core import BadInputError, format_bandwidth, format_duration, one_line, parse_bandwidth
from trimtab.partition.devices import Device, Devices
from trimtab.partition.machines import (
    CPU,
    LOOPBACK,
    LOOPBACK_LATENCY,
    NETWORK,
    NETWORK_LATENCY,
    Link,
    Machine,
    connected,
)

MOST_DEVICES = 4096
"""A matrix of links between more is no longer something that one machine plans."""
_RIGHT = "write kinds and counts like a100-40:2,t4:4, or name a YAML file"
_GROUP = re.compile(r"(?P<kind>[^:/]+?)(?::(?P<count>\d+)(?:x(?P<cores>\d+))?)?(?:/(?P<per>\d+))?")


@dataclass(frozen=True, slots=True)
class ToldDevices:
    """The devices, and in words what was assumed about them."""

    devices: Devices
    assumed: tuple[str, ...] = ()


def devices_of(text: str, network: str | None = None, per_machine: int | None = None) -> Devices:
    """The devices alone; see `devices_told`."""
    return devices_told(text, network, per_machine).devices


def devices_told(text: str, network: str | None = None, per_machine: int | None = None) -> ToldDevices:
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
    devices = connected(machines, Link(parse_network(network or NETWORK), NETWORK_LATENCY))
    return ToldDevices(devices, _assumed(machines, network))


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


def named(machines: Iterable[Machine]) -> list[Machine]:
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


def _machines(text: str, per_machine: int | None) -> list[Machine]:
    groups = [part.strip() for part in text.split(",") if part.strip()]
    found: list[Machine] = []
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
            found.append(Machine("", (device,) * min(together, count - start)))
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


def _assumed(machines: list[Machine], network: str | None) -> tuple[str, ...]:
    notes = []
    if len(machines) > 1 and network is None:
        notes.append(f"{NETWORK} between machines, since --network does not say")
    if any(device.kind == CPU for machine in machines for device in machine.devices):
        link = f"{format_bandwidth(LOOPBACK)} and {format_duration(LOOPBACK_LATENCY)}"
        notes.append(f"{link} between processes on one CPU")
    return tuple(notes)
