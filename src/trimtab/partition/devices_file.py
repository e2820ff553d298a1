"""Reads devices from a YAML file of machines, devices and links; see docs/reference/partition.md."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, create_model, model_validator

from trimtab.catalog import FORMATS, accelerators, find_accelerator, link_constants
from trimtab.core import (
    BadInputError,
    Bytes,
    Number,
    Seconds,
    StrictModel,
    Whole,
    did_you_mean,
    one_line,
    parse_bandwidth,
    parse_flop_rate,
    parse_price,
    quantity,
)
from trimtab.kernel import read_user_file
from trimtab.partition.devices import (
    CPU,
    MOST_DEVICES,
    Device,
    DeviceLink,
    DeviceMachine,
    Devices,
    ParsedDevices,
    catalog_device,
    connected,
    cpu_device,
    default_network,
    format_network,
    named,
    parse_network,
)


def _name(value: Any) -> str:
    if not isinstance(value, str | int) or isinstance(value, bool) or not 0 < len(str(value).strip()) <= 63:
        raise ValueError("it should be a name")
    return one_line(str(value))


def _link_bandwidth(text: str) -> float:
    """B/s, zero for "none" and 0."""
    if text.strip().lower() in ("none", "0"):
        return 0.0
    if (amount := parse_bandwidth(text)) <= 0.0:
        raise ValueError
    return amount


_Name = Annotated[str, BeforeValidator(_name)]
_Count = Annotated[Whole, Field(ge=1, le=MOST_DEVICES)]
_Latency = Annotated[Seconds, Field(gt=0)]
_Bandwidth = Annotated[float, quantity(parse_bandwidth, "a bandwidth like 300GB/s or 25Gbit"), Field(gt=0)]
_Network = Annotated[float, quantity(parse_network, "a bandwidth like 25Gbit or 3GB/s, or none for no link")]
_LinkBandwidth = Annotated[float, quantity(_link_bandwidth, "a bandwidth like 25Gbit, or none for no link")]
_FlopRate = Annotated[float, quantity(parse_flop_rate, "a rate like 65 TFLOP/s"), Field(gt=0)]
_Price = Annotated[float, quantity(parse_price, "a price like $0.35/h"), Field(ge=0)]
_RATES: dict[str, Any] = dict.fromkeys(FORMATS, (_FlopRate | None, None))
_Peak: Any = create_model("_Peak", __base__=StrictModel, **_RATES)


class _DeviceEntry(StrictModel):
    """Devices of a kind; the entry's values override the catalog's."""

    kind: _Name
    name: _Name = ""
    count: _Count = 1
    memory: Annotated[Bytes, Field(gt=0)] | None = None
    peak: _Peak | None = None
    memory_bandwidth: _Bandwidth | None = None
    price: _Price | None = None
    cores: Annotated[Number, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _can_be_known(self) -> "_DeviceEntry":
        if self.name and self.count > 1:
            raise ValueError(
                f"{self.count} devices cannot share the name {self.name}; leave it or the count out"
            )
        if self.cores is not None and self.kind.lower() != CPU:
            raise ValueError(f"cores is for kind: cpu; {self.kind} has none")
        if self.peak is not None and not self.rates:
            raise ValueError("peak is empty; give a rate by number format, like fp32: 8 TFLOP/s")
        if self.kind.lower() != CPU and find_accelerator(self.kind) is None:
            missing = [name for name in ("memory", "peak", "memory_bandwidth") if getattr(self, name) is None]
            near = did_you_mean(self.kind, [known.name for known in accelerators()])
            if missing:
                raise ValueError(
                    f"the catalog has no {self.kind:.40}{near}; a kind of your own needs"
                    f" {' and '.join(missing)}"
                )
        return self

    @property
    def rates(self) -> dict[str, float]:
        """FLOP/s by number format that the entry gives."""
        return {} if self.peak is None else self.peak.model_dump(exclude_none=True)

    def devices(self) -> tuple[Device, ...]:
        """The devices, not yet numbered or, without `name`, named."""
        if self.kind.lower() == CPU:
            device = cpu_device(self.count, self.cores)
        elif find_accelerator(self.kind) is not None:
            device = catalog_device(self.kind)
        else:
            device = Device("", self.kind, 0.0, {}, 0.0)
        values = self.model_dump(include={"memory", "memory_bandwidth", "price"}, exclude_none=True)
        if self.rates:
            values["peak"] = self.rates
        return (replace(device, name=self.name, **values),) * self.count


class _MachineEntry(StrictModel):
    """`count` machines with equal devices."""

    devices: Annotated[list[_DeviceEntry], Field(min_length=1)]
    name: _Name = ""
    count: _Count = 1
    bandwidth: _Bandwidth | None = None
    latency: _Latency | None = None

    @model_validator(mode="after")
    def _can_be_built(self) -> "_MachineEntry":
        if self.latency is not None and self.bandwidth is None:
            raise ValueError("latency needs a bandwidth beside it")
        if self.count * sum(entry.count for entry in self.devices) > MOST_DEVICES:
            raise ValueError(f"it has more than {MOST_DEVICES:,} devices; plan a part of them")
        if self.count > 1 and any(entry.name for entry in self.devices):
            raise ValueError(f"{self.count} machines cannot share one device's name; leave the name out")
        return self

    def machines(self, number: int) -> list[DeviceMachine]:
        """The machines; one without a name is named for its number in the file."""
        latency = self.latency or link_constants().pcie_latency
        inside = None if self.bandwidth is None else DeviceLink(self.bandwidth, latency)
        devices = tuple(device for entry in self.devices for device in entry.devices())
        name = self.name or f"machine-{number}"
        names = [name] if self.count == 1 else [f"{name}.{k}" for k in range(1, self.count + 1)]
        return [DeviceMachine(name, devices, inside) for name in names]


class _LinkEntry(StrictModel):
    """A link between two devices or machines; its latency defaults to the network's."""

    source: str = Field(alias="from")
    target: str = Field(alias="to")
    bandwidth: _LinkBandwidth
    latency: _Latency | None = None


class _DevicesFile(StrictModel):
    machines: Annotated[list[_MachineEntry], Field(min_length=1)]
    network: _Network | None = None
    latency: _Latency | None = None
    links: Annotated[list[_LinkEntry], Field(min_length=1)] | None = None


def read_devices(path: str, network: str | None = None) -> ParsedDevices:
    """The devices of a file; `network` overrides the file's."""
    file = read_user_file(Path(path), _DevicesFile, "that describes devices")
    machines = named(
        machine for number, entry in enumerate(file.machines, 1) for machine in entry.machines(number)
    )
    names = [device.name for machine in machines for device in machine.devices]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInputError(f"{path}: two devices are called {twice}; every device needs a name of its own")
    between = parse_network(network) if network is not None else file.network
    link, notes = default_network(), []
    if between is None and len(machines) > 1 and file.links is None:
        notes.append(f"{format_network(link.bandwidth)} between machines, since {path} does not say")
    bandwidth = link.bandwidth if between is None else between
    devices = connected(machines, DeviceLink(bandwidth, file.latency or link.latency))
    if file.links:
        devices = _with_links(devices, machines, path, file.links)
    return ParsedDevices(devices, tuple(notes))


def _with_links(
    devices: Devices, machines: Sequence[DeviceMachine], path: str, entries: Sequence[_LinkEntry]
) -> Devices:
    """The devices with the file's links; one direction counts for both, unless both are given."""
    ends: dict[str, tuple[int, ...]] = {}  # numbers of devices, by the device's or the machine's name
    first = 0
    for machine in machines:
        places = tuple(range(first, first + len(machine.devices)))
        ends[machine.name] = places
        ends |= {device.name: (place,) for device, place in zip(machine.devices, places, strict=True)}
        first += len(places)
    bandwidth, latency = np.array(devices.bandwidth), np.array(devices.latency)
    links = []
    for number, entry in enumerate(entries):
        where = f"{path}: links[{number}]"
        source, target = _end(f"{where}.from", entry.source, ends), _end(f"{where}.to", entry.target, ends)
        pairs = [(i, j) for i in source for j in target if i != j]
        if not pairs:
            raise BadInputError(f"{where} joins {one_line(entry.source)} with itself; name two ends")
        links.append((pairs, entry))
    for backwards in (True, False):
        for pairs, entry in links:
            for i, j in pairs:
                place = (j, i) if backwards else (i, j)
                bandwidth[place] = entry.bandwidth
                latency[place] = latency[place] if entry.latency is None else entry.latency
    return Devices(devices.devices, bandwidth, latency)


def _end(where: str, name: str, ends: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    if name not in ends:
        raise BadInputError(
            f"{where} is {one_line(name):.40}, which is neither a device nor a machine of this file"
            f"{did_you_mean(name, list(ends))};"
            f" there are {', '.join(list(ends)[:6])}{' …' if len(ends) > 6 else ''}"
        )
    return ends[name]
