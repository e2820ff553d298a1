"""Devices as somebody wrote them down in YAML: machines, what sits in them, and links that differ."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.catalog import FORMATS, find_accelerator
from trimtab.core import (
    BadInputError,
    did_you_mean,
    one_line,
    parse_bandwidth,
    parse_bytes,
    parse_duration,
    parse_flop_rate,
    parse_price,
    refuse_unknown,
)
from trimtab.kernel import read_yaml
from trimtab.partition.devices import (
    CPU,
    MOST_DEVICES,
    NETWORK,
    NETWORK_LATENCY,
    PCIE_LATENCY,
    Device,
    Devices,
    Link,
    Machine,
    ParsedDevices,
    catalog_device,
    connected,
    cpu_device,
    named,
    parse_network,
    this_machine,
)

_FILE = ("network", "latency", "machines", "links")
_MACHINE = ("name", "count", "devices", "bandwidth", "latency")
_DEVICE = ("kind", "name", "count", "memory", "peak", "memory_bandwidth", "price", "cores")
_LINK = ("from", "to", "bandwidth", "latency")
_EXAMPLE = "machines: [{devices: [{kind: a100-40, count: 2}]}]"


def read_devices(path: str, network: str | None = None) -> ParsedDevices:
    """The devices of a file; a `network` told beside it counts more than the file's."""
    told = _entry(path, read_yaml(Path(path), "of devices"), _FILE, _EXAMPLE)
    machines = named(
        machine
        for number, each in enumerate(_list(f"{path}: machines", told.get("machines"), _EXAMPLE), 1)
        for machine in _machines(f"{path}: machines[{number}]", each, number)
    )
    names = [device.name for machine in machines for device in machine.devices]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInputError(f"{path}: two devices are called {twice}; every device needs a name of its own")
    between = network or (str(told["network"]) if told.get("network") is not None else None)
    latency = _amount(f"{path}: latency", told.get("latency"), parse_duration, "like 30us", NETWORK_LATENCY)
    devices = connected(machines, Link(parse_network(between or NETWORK), latency))
    if told.get("links") is not None:
        devices = _overridden(devices, machines, path, told["links"])
    assumed = len(machines) > 1 and between is None and told.get("links") is None
    return ParsedDevices(devices, (f"{NETWORK} between machines, since {path} does not say",) * assumed)


def _machines(where: str, told: Any, number: int) -> list[Machine]:
    entry = _entry(where, told, _MACHINE, "devices: [{kind: t4, count: 4}]")
    listed = _list(f"{where}.devices", entry.get("devices"), "[{kind: t4, count: 4}]")
    devices = tuple(
        device
        for place, each in enumerate(listed, 1)
        for device in _devices(f"{where}.devices[{place}]", each)
    )
    inside = None
    if entry.get("bandwidth") is not None:
        inside = Link(
            _bandwidth(f"{where}.bandwidth", entry["bandwidth"]),
            _amount(f"{where}.latency", entry.get("latency"), parse_duration, "like 5us", PCIE_LATENCY),
        )
    elif entry.get("latency") is not None:
        raise BadInputError(f"{where}.latency needs a bandwidth beside it")
    count = _count(f"{where}.count", entry.get("count"))
    if count * len(devices) > MOST_DEVICES:
        raise BadInputError(f"{where} has more than {MOST_DEVICES:,} devices; plan a part of them")
    name = _name(f"{where}.name", entry.get("name")) or f"machine-{number}"
    if count > 1 and any(device.name for device in devices):
        raise BadInputError(f"{where}: {count} machines cannot share one device's name; leave the name out")
    return [Machine(name if count == 1 else f"{name}.{k}", devices, inside) for k in range(1, count + 1)]


def _devices(where: str, told: Any) -> tuple[Device, ...]:
    entry = _entry(where, told, _DEVICE, "kind: t4, count: 4")
    kind = _name(f"{where}.kind", entry.get("kind"))
    if not kind:
        raise BadInputError(f"{where}.kind is missing; name an accelerator of the catalog, cpu, or your own")
    count = _count(f"{where}.count", entry.get("count"))
    name = _name(f"{where}.name", entry.get("name"))
    if name and count > 1:
        raise BadInputError(
            f"{where}: {count} devices cannot share the name {name}; leave it or the count out"
        )
    if count > MOST_DEVICES:
        raise BadInputError(f"{where} has more than {MOST_DEVICES:,} devices; plan a part of them")
    if entry.get("cores") is not None and kind.lower() != CPU:
        raise BadInputError(f"{where}.cores is for kind: cpu; {kind} has none")
    device = _known(where, kind, entry, count)
    return (replace(device, name=name, **_told_facts(where, entry)),) * count


def _known(where: str, kind: str, entry: Mapping[str, Any], count: int) -> Device:
    """The device before what the file says of it: a CPU, an accelerator of the catalog, or somebody's own."""
    if kind.lower() == CPU:
        cores, memory = this_machine()
        return cpu_device(
            _positive(f"{where}.cores", entry.get("cores"), max(1, cores // count)), memory / count
        )
    if find_accelerator(kind) is not None:
        return catalog_device(kind)
    missing = [name for name in ("memory", "peak", "memory_bandwidth") if entry.get(name) is None]
    if missing:
        from trimtab.catalog import accelerators

        near = did_you_mean(kind, [a.name for a in accelerators()])
        raise BadInputError(
            f"{where}: the catalog has no {one_line(kind):.40}{near};"
            f" a kind of your own needs {' and '.join(missing)}"
        )
    return Device("", kind, 0.0, {}, 0.0)


def _told_facts(where: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says of a device, in place of what is known."""
    facts: dict[str, Any] = {}
    if entry.get("memory") is not None:
        facts["memory"] = _amount(f"{where}.memory", entry["memory"], parse_bytes, "like 16GB")
    if entry.get("memory_bandwidth") is not None:
        facts["memory_bandwidth"] = _bandwidth(f"{where}.memory_bandwidth", entry["memory_bandwidth"])
    if entry.get("price") is not None:
        facts["price"] = _amount(f"{where}.price", entry["price"], parse_price, "like $0.35/h", least=0.0)
    if entry.get("peak") is not None:
        rates = _entry(f"{where}.peak", entry["peak"], FORMATS, "{fp32: 8 TFLOP/s, fp16: 65 TFLOP/s}")
        facts["peak"] = {
            name: _amount(f"{where}.peak.{name}", rate, parse_flop_rate, "like 65 TFLOP/s")
            for name, rate in rates.items()
        }
        if not facts["peak"]:
            raise BadInputError(f"{where}.peak is empty; give a rate by number format, like fp32: 8 TFLOP/s")
    return facts


def _overridden(devices: Devices, machines: Sequence[Machine], path: str, told: Any) -> Devices:
    """The same devices with told links; one told one way counts for both, unless the other is told too."""
    ends = _ends(machines)
    bandwidth, latency = np.array(devices.bandwidth), np.array(devices.latency)
    links = []
    for number, each in enumerate(_list(f"{path}: links", told, "[{from: A, to: B, bandwidth: 25Gbit}]"), 1):
        where = f"{path}: links[{number}]"
        entry = _entry(where, each, _LINK, "from: T4:0, to: T4:1, bandwidth: 25Gbit")
        source, target = (_end(f"{where}.{side}", entry.get(side), ends) for side in ("from", "to"))
        if entry.get("bandwidth") is None:
            raise BadInputError(f"{where}.bandwidth is missing; write it like 25Gbit, or none for no link")
        link = Link(
            _bandwidth(f"{where}.bandwidth", entry["bandwidth"], none=True),
            _amount(f"{where}.latency", entry.get("latency"), parse_duration, "like 30us", -1.0),
        )
        pairs = [(i, j) for i in source for j in target if i != j]
        if not pairs:
            raise BadInputError(f"{where} joins {one_line(entry['from'])} with itself; name two ends")
        links.append((pairs, link))
    for backwards in (True, False):
        for pairs, link in links:
            for i, j in pairs:
                place = (j, i) if backwards else (i, j)
                bandwidth[place] = link.bandwidth
                latency[place] = link.latency if link.latency >= 0 else latency[place]
    return Devices(devices.devices, bandwidth, latency)


def _ends(machines: Sequence[Machine]) -> dict[str, tuple[int, ...]]:
    """Devices by their own name, and by their machine's."""
    ends: dict[str, tuple[int, ...]] = {}
    first = 0
    for machine in machines:
        places = tuple(range(first, first + len(machine.devices)))
        ends[machine.name] = places
        ends |= {device.name: (place,) for device, place in zip(machine.devices, places, strict=True)}
        first += len(places)
    return ends


def _end(where: str, told: Any, ends: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    if not isinstance(told, str) or told not in ends:
        near = did_you_mean(told, list(ends)) if isinstance(told, str) else ""
        raise BadInputError(
            f"{where} is {one_line(told):.40}, which is no device and no machine of this file{near};"
            f" there are {', '.join(list(ends)[:6])}{' …' if len(ends) > 6 else ''}"
        )
    return ends[told]


def _entry(where: str, told: Any, names: Sequence[str], example: str) -> Mapping[str, Any]:
    if not isinstance(told, Mapping):
        raise BadInputError(f"{where} is {one_line(told):.40}; it should be names and values: {example}")
    refuse_unknown(where, told, names)
    return told


def _list(where: str, told: Any, example: str) -> list[Any]:
    if not isinstance(told, list) or not told:
        raise BadInputError(f"{where} should be a list of at least one, such as {example}")
    return told


def _name(where: str, told: Any) -> str:
    if told is None:
        return ""
    if not isinstance(told, str | int) or isinstance(told, bool) or not 0 < len(str(told).strip()) <= 63:
        raise BadInputError(f"{where} is {one_line(told):.40}; it should be a name")
    return one_line(str(told))


def _count(where: str, told: Any) -> int:
    if told is None:
        return 1
    if not isinstance(told, int) or isinstance(told, bool) or told < 1:
        raise BadInputError(f"{where} is {one_line(told):.40}; it should be a whole number of at least 1")
    return told


def _positive(where: str, told: Any, default: float) -> float:
    return _amount(where, told, float, "a number like 8", default)


def _bandwidth(where: str, told: Any, none: bool = False) -> float:
    if none and (told == 0 or str(told).strip().lower() == "none"):
        return 0.0
    return _amount(where, told, parse_bandwidth, "like 300GB/s or 25Gbit")


def _amount(
    where: str,
    told: Any,
    parse: Callable[[str], float],
    right: str,
    default: float = math.nan,
    least: float = math.ulp(0.0),
) -> float:
    """A quantity in its own unit, of at least `least`; the default where nothing is told."""
    if told is None and not math.isnan(default):
        return default
    try:
        value = math.nan if isinstance(told, bool) else parse(str(told))
    except (BadInputError, ValueError):
        value = math.nan
    if not least <= value < math.inf:
        raise BadInputError(f"{where} is {one_line(told):.40}; it should be an amount above 0, {right}")
    return value
