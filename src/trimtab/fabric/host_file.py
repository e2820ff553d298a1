"""A host's YAML file, checked in itself; whether the machine has these devices is the plan's question."""

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Interface, IPv4Network, NetmaskValueError
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, one_line, parse_duration, quoted, refuse_unknown
from trimtab.fabric.topology import (
    TUNNEL_OVERHEAD,
    Echo,
    Host,
    Tenant,
    Timers,
    Uplink,
    VirtualFunction,
    WorkerDevice,
)
from trimtab.kernel import read_yaml

_NAMES = (
    *("host", "loopback", "asn", "uplinks", "tenants", "mtu"),
    *("bfd", "echo", "hold", "management", "settle", "rto_min"),
)
_OF_AN_UPLINK = ("device", "address", "peer", "peer_asn")
_OF_A_TENANT = ("vni", "devices")
_OF_A_DEVICE = ("name", "address", "mac", "namespace", "vf")
_OF_A_VF = ("device", "index", "representor")
_OF_BFD = _OF_ECHO = ("interval", "multiplier")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")  # the kernel's limit
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_MOST_ASN, _MOST_VNI = 2**32 - 2, 2**24 - 1
_LEAST_MTU, _MOST_MTU = 1280 + TUNNEL_OVERHEAD, 65535
_LEAST_INTERVAL, _MOST_INTERVAL = 0.010, 4.0  # s; FRR's own bounds are 10 ms and 4294 s
_LEAST_ECHO, _MOST_ECHO = 0.002, 1.0  # s; the least is what can be waited for on time
_LEAST_RTO, _MOST_RTO = 0.001, 120.0  # s; TCP's own bound is the latter
_MULTIPLIERS = range(2, 256)
_ECHO_MULTIPLIERS = range(3, 256)  # two may be missing by where a pause falls


def read_host(path: Path) -> Host:
    """The file's content, checked."""
    return host_of(str(path), read_yaml(path, "that describes a host"))


def host_of(where: str, told: Any) -> Host:
    """A host from plain values; `where` begins what is said when something is wrong with them."""
    told = _mapping(where, told, "a host, its loopback, asn and uplinks", _NAMES)
    _need(where, told, ("host", "loopback", "asn", "uplinks"))
    mtu = _whole(where, "mtu", told.get("mtu", 9000), range(_LEAST_MTU, _MOST_MTU + 1))
    host = Host(
        _named(where, "host", told["host"], _NAME),
        _address(where, "loopback", told["loopback"]),
        _asn(where, "asn", told["asn"]),
        tuple(_uplink(where, number, each) for number, each in _list(where, "uplinks", told["uplinks"])),
        tuple(_tenants(where, told.get("tenants") or {})),
        mtu,
        _timers(where, told),
        tuple(_managed(where, told.get("management", []))),
        _rto_min(where, told.get("rto_min", "20ms")),
    )
    _check_uplinks(where, host)
    _check_devices(where, host)
    _check_addresses(where, host)
    return host


def _uplink(where: str, number: int, told: Any) -> Uplink:
    where = f"{where}, uplink {number}"
    told = _mapping(where, told, "device, address, peer and peer_asn", _OF_AN_UPLINK)
    _need(where, told, _OF_AN_UPLINK)
    uplink = Uplink(
        _named(where, "device", told["device"], _DEVICE),
        _interface(where, "address", told["address"]),
        _address(where, "peer", told["peer"]),
        _asn(where, "peer_asn", told["peer_asn"]),
    )
    if uplink.peer not in uplink.address.network or uplink.peer == uplink.address.ip:
        raise BadInputError(
            f"{where}: the peer {uplink.peer} should be another address in {uplink.address.network}"
        )
    return uplink


def _tenants(where: str, told: Any) -> Iterator[Tenant]:
    if not isinstance(told, Mapping):
        raise BadInputError(f"{where}, tenants: tenants by name are expected, not {quoted(told):.40}")
    for name, each in told.items():
        here = f"{where}, tenant {one_line(name):.40}"
        each = _mapping(here, each, "vni and devices", _OF_A_TENANT)
        _need(here, each, _OF_A_TENANT)
        devices = _list(here, "devices", each["devices"])
        vni = _whole(here, "vni", each["vni"], range(1, _MOST_VNI + 1))
        yield Tenant(
            _named(here, "tenant", name, _NAME), vni, tuple(_device(here, n, told) for n, told in devices)
        )


def _device(where: str, number: int, told: Any) -> WorkerDevice:
    where = f"{where}, device {number}"
    told = _mapping(where, told, "name and address", _OF_A_DEVICE)
    _need(where, told, ("name", "address"))
    address = _interface(where, "address", told["address"])
    mac = str(told.get("mac") or local_mac(address.ip)).lower()
    if not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1:
        raise BadInputError(
            f"{where}: {one_line(mac):.40} is not the MAC of one device, as in 02:00:0a:64:00:01"
        )
    namespace = told.get("namespace", "")
    return WorkerDevice(
        _named(where, "name", told["name"], _DEVICE),
        address,
        mac,
        _named(where, "namespace", namespace, _NAME) if namespace else "",
        _function(where, told["vf"]) if "vf" in told else None,
    )


def local_mac(address: IPv4Address) -> str:
    """A MAC of its own where addresses are: locally administered, with the address in it."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x00, *address.packed))


def _function(where: str, told: Any) -> VirtualFunction:
    where = f"{where}, vf"
    told = _mapping(where, told, "device, index and representor", _OF_A_VF)
    _need(where, told, _OF_A_VF)
    return VirtualFunction(
        _named(where, "device", told["device"], _DEVICE),
        _whole(where, "index", told["index"], range(256)),
        _named(where, "representor", told["representor"], _DEVICE),
    )


def _timers(where: str, told: Mapping[Any, Any]) -> Timers:
    usual = Timers()
    bfd = _mapping(f"{where}, bfd", told.get("bfd", {"multiplier": 3}), "interval and multiplier", _OF_BFD)
    interval = _seconds(f"{where}, bfd", "interval", bfd.get("interval", usual.interval))
    if not _LEAST_INTERVAL <= interval <= _MOST_INTERVAL:
        raise BadInputError(f"{where}, bfd: an interval is 10 ms to 4 s, not {interval * 1000:g} ms")
    return Timers(
        interval,
        _whole(f"{where}, bfd", "multiplier", bfd.get("multiplier", usual.multiplier), _MULTIPLIERS),
        _seconds(where, "hold", told.get("hold", usual.hold)),
        _seconds(where, "settle", told.get("settle", usual.settle)),
        _echo(f"{where}, echo", told.get("echo", True)),
    )


def _echo(where: str, told: Any) -> Echo | None:
    """`on`, `off`, or how; YAML reads the first two as true and false."""
    usual = Echo()
    if isinstance(told, bool):
        return usual if told else None
    told = _mapping(where, told, "off, or interval and multiplier", _OF_ECHO)
    interval = _seconds(where, "interval", told.get("interval", usual.interval))
    if not _LEAST_ECHO <= interval <= _MOST_ECHO:
        raise BadInputError(f"{where}: an interval is 2 ms to 1 s, not {interval * 1000:g} ms")
    return Echo(
        interval, _whole(where, "multiplier", told.get("multiplier", usual.multiplier), _ECHO_MULTIPLIERS)
    )


def _rto_min(where: str, told: object) -> float:
    """In whole milliseconds, as the kernel takes it; `off`, which YAML reads as false, is 0."""
    if told is False:
        return 0.0
    seconds = round(_seconds(where, "rto_min", told), 3)
    if not _LEAST_RTO <= seconds <= _MOST_RTO:
        raise BadInputError(f"{where}: rto_min is off or 1 ms to 120 s, not {quoted(told):.40}")
    return seconds


def _managed(where: str, told: Any) -> Iterator[str]:
    devices = [told] if isinstance(told, str) else told
    if not isinstance(devices, list):
        raise BadInputError(f"{where}: management is a device or a list of them, not {quoted(told):.40}")
    for device in devices:
        yield _named(where, "management", device, _DEVICE)


def _check_uplinks(where: str, host: Host) -> None:
    if len(host.uplinks) < 2:
        raise BadInputError(
            f"{where}: there is one uplink; two are needed for one to take over from the other"
        )
    for uplink in host.uplinks:
        if uplink.device in host.management:
            raise BadInputError(
                f"{where}: {uplink.device} is the management interface, which is never touched; "
                f"name the ports that carry training traffic as uplinks"
            )
        if uplink.peer_asn == host.asn:
            raise BadInputError(f"{where}: the switch at {uplink.peer} has the host's own asn {host.asn}")


def _check_devices(where: str, host: Host) -> None:
    """Names, tunnels' numbers and MACs are of one thing each."""
    workers = [device for tenant in host.tenants for device in tenant.devices]
    names = [*(uplink.device for uplink in host.uplinks), *host.management]
    names += [name for tenant in host.tenants for name in (tenant.bridge, tenant.tunnel)]
    names += [device.port for device in workers] + [device.name for device in workers if not device.namespace]
    for what, values in (
        ("the device", names),
        ("the MAC", [device.mac for device in workers]),
        ("the vni", [str(tenant.vni) for tenant in host.tenants]),
    ):
        twice = _repeated(values)
        if twice is not None:
            raise BadInputError(f"{where}: {what} {twice} is there twice; everything needs one of its own")


def _check_addresses(where: str, host: Host) -> None:
    """No network overlaps another, as far as they are in one place."""
    found: list[tuple[str, str, IPv4Network]] = [("", "the loopback", IPv4Network(host.loopback))]
    found += [("", f"uplink {uplink.device}", uplink.address.network) for uplink in host.uplinks]
    addresses = [host.loopback, *(uplink.address.ip for uplink in host.uplinks)]
    for tenant in host.tenants:
        addresses += [device.address.ip for device in tenant.devices]
        networks = {(device.namespace, device.address.network) for device in tenant.devices}
        found += [(space, f"tenant {tenant.name}", network) for space, network in networks]
    twice = _repeated([str(address) for address in addresses])
    if twice is not None:
        raise BadInputError(f"{where}: the address {twice} is there twice")
    for place, (space, name, network) in enumerate(found):
        for other_space, other, taken in found[:place]:
            if space == other_space and network.overlaps(taken):
                raise BadInputError(f"{where}: {network} of {name} overlaps {taken} of {other}")


def _repeated(values: Sequence[str]) -> str | None:
    return next((value for place, value in enumerate(values) if value in values[:place]), None)


def _mapping(where: str, told: Any, what: str, names: Sequence[str]) -> Mapping[Any, Any]:
    if not isinstance(told, Mapping) or not told:
        raise BadInputError(f"{where}: {what} are expected, not {quoted(told):.40}")
    refuse_unknown(where, told, names)
    return told


def _need(where: str, told: Mapping[Any, Any], names: Sequence[str]) -> None:
    for name in names:
        if name not in told:
            raise BadInputError(f"{where}: it does not say {name}")


def _list(where: str, name: str, told: Any) -> list[tuple[int, Any]]:
    if not isinstance(told, list) or not told:
        raise BadInputError(f"{where}: {name} are a list, not {quoted(told):.40}")
    return list(enumerate(told, start=1))


def _named(where: str, what: str, told: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(told, str) or not pattern.fullmatch(told):
        raise BadInputError(
            f"{where}: {what} is a name of letters, digits, dots and dashes"
            f"{', at most 15 of them' if pattern is _DEVICE else ''}, not {quoted(told):.40}"
        )
    return told


def _whole(where: str, name: str, told: object, among: range) -> int:
    if isinstance(told, bool) or not isinstance(told, int) or told not in among:
        raise BadInputError(
            f"{where}: {name} is a whole number from {among[0]} to {among[-1]}, not {quoted(told):.40}"
        )
    return told


def _asn(where: str, name: str, told: object) -> int:
    return _whole(where, name, told, range(1, _MOST_ASN + 1))


def _seconds(where: str, name: str, told: object) -> float:
    if isinstance(told, str):
        told = parse_duration(told)
    if isinstance(told, bool) or not isinstance(told, int | float) or not 0 < told < 1e6:
        raise BadInputError(f"{where}: {name} is a duration, as in 10ms, not {quoted(told):.40}")
    return float(told)


def _address(where: str, name: str, told: object) -> IPv4Address:
    try:
        found = IPv4Address(str(told))
    except AddressValueError:
        raise BadInputError(f"{where}: {name} is an IPv4 address, not {quoted(told):.40}") from None
    if found.is_loopback or found.is_multicast or found.is_reserved or found.is_unspecified:
        raise BadInputError(f"{where}: {name} is an address that other machines can reach, not {found}")
    return found


def _interface(where: str, name: str, told: object) -> IPv4Interface:
    try:
        found = IPv4Interface(str(told))
    except (AddressValueError, NetmaskValueError, ValueError):
        found = None
    if found is None or "/" not in str(told):
        raise BadInputError(
            f"{where}: {name} is an IPv4 address and its network, as 10.100.0.1/24, not {quoted(told):.40}"
        )
    network = found.network
    if network.prefixlen < 31 and found.ip in (network.network_address, network.broadcast_address):
        raise BadInputError(
            f"{where}: {name} is an address of one machine, which {found.ip} in {network} is not"
        )
    _address(where, name, found.ip)
    return found
