"""A host's YAML file. Whether the machine has these devices is checked by the plan."""

import re
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from trimtab.core import Seconds, StrictModel, validate
from trimtab.fabric.topology import (
    TUNNEL_OVERHEAD,
    Echo,
    FabricHost,
    TenantNetwork,
    Timers,
    Uplink,
    VirtualFunction,
    WorkerDevice,
)
from trimtab.kernel import read_yaml

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_LONGEST = 1e6  # s


def _check(is_right: Callable[[Any], Any], expected: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not is_right(value):
            raise ValueError(f"it should be {expected}")
        return value

    return check


def _matching(pattern: str, expected: str) -> BeforeValidator:
    return BeforeValidator(
        _check(lambda value: isinstance(value, str) and re.fullmatch(pattern, value), expected)
    )


def _reachable(value: Any) -> IPv4Address:
    try:
        address = IPv4Address(str(value))
    except ValueError:
        raise ValueError("it should be an IPv4 address") from None
    if address.is_loopback or address.is_multicast or address.is_reserved or address.is_unspecified:
        raise ValueError("it should be an address that other machines can reach")
    return address


def _of_one_machine(value: Any) -> IPv4Interface:
    try:
        interface = IPv4Interface(str(value)) if "/" in str(value) else None
    except ValueError:
        interface = None
    if interface is None:
        raise ValueError("it should be an IPv4 address with its network, such as 10.100.0.1/24")
    network = interface.network
    if network.prefixlen < 31 and interface.ip in (network.network_address, network.broadcast_address):
        raise ValueError(f"it should be the address of one machine, which {interface.ip} in {network} is not")
    _reachable(interface.ip)
    return interface


HostName = Annotated[
    str, _matching(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}", "a name of letters, digits, dots and dashes")
]
DeviceName = Annotated[
    str,
    _matching(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}",
        "a device: at most 15 letters, digits, dots and dashes",  # the kernel's limit
    ),
]
Address = Annotated[IPv4Address, BeforeValidator(_reachable)]
Interface = Annotated[IPv4Interface, BeforeValidator(_of_one_machine)]
AutonomousSystem = Annotated[int, Strict(), Field(ge=1, le=2**32 - 2)]
Duration = Annotated[
    Seconds, AfterValidator(_check(lambda value: 0 < value < _LONGEST, "a duration above zero, such as 10ms"))
]


class UplinkFields(StrictModel):
    """An uplink: one port of the host and the switch it is plugged into."""

    device: DeviceName
    address: Interface
    peer: Address
    peer_asn: AutonomousSystem

    @model_validator(mode="after")
    def _peer_is_a_neighbour(self) -> Self:
        if self.peer not in self.address.network or self.peer == self.address.ip:
            raise ValueError(f"the peer {self.peer} should be another address in {self.address.network}")
        return self


class FunctionFields(StrictModel):
    """A virtual function of a network card."""

    device: DeviceName
    index: Annotated[int, Strict(), Field(ge=0, le=255)]
    representor: DeviceName


class WorkerFields(StrictModel):
    """A device that a worker binds to."""

    name: DeviceName
    address: Interface
    mac: str = ""
    namespace: Annotated[HostName | None, BeforeValidator(lambda value: value or None)] = None
    vf: FunctionFields | None = None

    @model_validator(mode="after")
    def _mac_is_of_one_device(self) -> Self:
        mac = self.mac.lower()
        if mac and (not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1):
            raise ValueError(f"mac is {mac:.40}; it should be of one device, such as 02:00:0a:64:00:01")
        return self

    def device(self) -> WorkerDevice:
        """The device, with a MAC made from its address if the file gives none."""
        function = VirtualFunction(**self.vf.model_dump()) if self.vf else None
        mac = self.mac.lower() or local_mac(self.address.ip)
        return WorkerDevice(self.name, self.address, mac, self.namespace or "", function)


class TenantFields(StrictModel):
    """A tenant's network."""

    vni: Annotated[int, Strict(), Field(ge=1, le=2**24 - 1)]
    devices: tuple[WorkerFields, ...] = Field(min_length=1)


class BfdFields(StrictModel):
    """BFD sessions; FRR's bounds of an interval are 10 ms and 4294 s."""

    interval: Annotated[
        Seconds, AfterValidator(_check(lambda value: 0.010 <= value <= 4.0, "10ms to 4s"))
    ] = Timers().interval
    multiplier: Annotated[int, Strict(), Field(ge=2, le=255)] = Timers().multiplier


class EchoFields(StrictModel):
    """Probes; timers are too coarse for an interval below 2 ms, and a pause may lose two."""

    interval: Annotated[Seconds, AfterValidator(_check(lambda value: 0.002 <= value <= 1.0, "2ms to 1s"))] = (
        Echo().interval
    )
    multiplier: Annotated[int, Strict(), Field(ge=3, le=255)] = Echo().multiplier


def _switched(value: Any) -> Any:
    """`on` and `off`, which YAML reads as true and false, as the fields they stand for."""
    return ({} if value else None) if isinstance(value, bool) else value


def _whole_milliseconds(value: float) -> float:
    """Seconds in whole milliseconds, as the kernel takes them; 0 is off."""
    rounded = round(value, 3)
    if value and not 0.001 <= rounded <= 120.0:
        raise ValueError("it should be off, or 1ms to 120s")
    return rounded


class HostFields(StrictModel):
    """A host file."""

    host: HostName
    loopback: Address
    asn: AutonomousSystem
    uplinks: tuple[UplinkFields, ...] = Field(min_length=1)
    tenants: dict[HostName, TenantFields] | None = None
    mtu: Annotated[int, Strict(), Field(ge=1280 + TUNNEL_OVERHEAD, le=65535)] = 9000
    bfd: BfdFields = BfdFields()
    echo: Annotated[EchoFields | None, BeforeValidator(_switched)] = EchoFields()
    hold: Duration = Timers().hold
    management: Annotated[
        tuple[DeviceName, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
    ] = ()
    settle: Duration = Timers().settle
    rto_min: Annotated[
        Seconds,
        BeforeValidator(lambda value: 0.0 if value is False else value),
        AfterValidator(_whole_milliseconds),
    ] = 0.020

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        host = self.described()
        _check_uplinks(host)
        _check_devices(host)
        _check_addresses(host)
        return self

    def described(self) -> FabricHost:
        """The host that the file describes."""
        echo = Echo(self.echo.interval, self.echo.multiplier) if self.echo else None
        return FabricHost(
            self.host,
            self.loopback,
            self.asn,
            tuple(Uplink(*(value for _, value in uplink)) for uplink in self.uplinks),
            tuple(
                TenantNetwork(name, tenant.vni, tuple(worker.device() for worker in tenant.devices))
                for name, tenant in (self.tenants or {}).items()
            ),
            self.mtu,
            Timers(self.bfd.interval, self.bfd.multiplier, self.hold, self.settle, echo),
            self.management,
            self.rto_min,
        )


def read_host(path: Path) -> FabricHost:
    """The host that a file describes."""
    return host_of(str(path), read_yaml(path, "that describes a host"))


def host_of(where: str, data: Any) -> FabricHost:
    """A host from plain data; `where` begins the message if it is invalid."""
    return validate(HostFields, data, where).described()


def local_mac(address: IPv4Address) -> str:
    """A locally administered MAC that holds the address."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x00, *address.packed))


def _check_uplinks(host: FabricHost) -> None:
    if len(host.uplinks) < 2:
        raise ValueError("there is one uplink; failover needs two")
    for uplink in host.uplinks:
        if uplink.device in host.management:
            raise ValueError(
                f"{uplink.device} is the management interface, which is never changed; "
                f"name the ports that carry training traffic as uplinks"
            )
        if uplink.peer_asn == host.asn:
            raise ValueError(f"the switch at {uplink.peer} has the host's own asn {host.asn}")


def _check_devices(host: FabricHost) -> None:
    """Names of devices, VNIs and MACs must be unique."""
    workers = [device for tenant in host.tenants for device in tenant.devices]
    names = [*(uplink.device for uplink in host.uplinks), *host.management]
    names += [name for tenant in host.tenants for name in (tenant.bridge, tenant.tunnel)]
    names += [device.port for device in workers] + [device.name for device in workers if not device.namespace]
    for kind, values in (
        ("the device", names),
        ("the MAC", [device.mac for device in workers]),
        ("the vni", [str(tenant.vni) for tenant in host.tenants]),
    ):
        repeated = _repeated(values)
        if repeated is not None:
            raise ValueError(f"{kind} {repeated} is used twice; each needs its own")


def _check_addresses(host: FabricHost) -> None:
    """Networks in one namespace must not overlap."""
    networks: list[tuple[str, str, IPv4Network]] = [("", "the loopback", IPv4Network(host.loopback))]
    networks += [("", f"uplink {uplink.device}", uplink.address.network) for uplink in host.uplinks]
    addresses = [host.loopback, *(uplink.address.ip for uplink in host.uplinks)]
    for tenant in host.tenants:
        addresses += [device.address.ip for device in tenant.devices]
        spaces = {(device.namespace, device.address.network) for device in tenant.devices}
        networks += [(namespace, f"tenant {tenant.name}", network) for namespace, network in spaces]
    repeated = _repeated([str(address) for address in addresses])
    if repeated is not None:
        raise ValueError(f"the address {repeated} is used twice")
    for place, (namespace, name, network) in enumerate(networks):
        for other_namespace, other, taken in networks[:place]:
            if namespace == other_namespace and network.overlaps(taken):
                raise ValueError(f"{network} of {name} overlaps {taken} of {other}")


def _repeated(values: Sequence[str]) -> str | None:
    return next((value for place, value in enumerate(values) if value in values[:place]), None)
