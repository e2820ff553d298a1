"""Forwarding databases of bridges and tunnels: which MAC is behind which port, or at which host."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab.fabric.reconcile.netlink import CREATE, REPLACE, Netlink, attribute, attributes

_NEW, _DELETE, _GET = 28, 29, 30
_BRIDGE_FAMILY = 7
_ENTRY = struct.Struct("=BxxxiHBB")  # family, device, state, flags, type
_OF_THE_DEVICE, _OF_ITS_BRIDGE, _TOLD = 0x02, 0x04, 0x10
_REACHABLE, _STATIC = 0x02, 0x40
_HOST, _MAC = 1, 2
_ELSEWHERE = (6, 7, 8, 13)  # another port, tunnel number, device or a group of next hops


@dataclass(frozen=True, slots=True)
class Entry:
    """A MAC at a host of a tunnel, or (host empty) behind a bridge's port; `plain`: nothing is special."""

    device: int
    mac: bytes
    host: bytes
    of_bridge: bool
    static: bool
    plain: bool


def forwarding(netlink: Netlink, device: int) -> Iterator[Entry]:
    """All entries of a device, those of its bridge about it too."""
    asked = _ENTRY.pack(_BRIDGE_FAMILY, device, 0, 0, 0)
    for message in netlink.dump("list a forwarding database", _GET, asked):
        _, of_device, state, flags, _ = _ENTRY.unpack_from(message)
        if of_device != device:
            continue
        found = attributes(message, _ENTRY.size)
        yield Entry(
            device,
            found.get(_MAC, b""),
            found.get(_HOST, b""),
            not flags & _OF_THE_DEVICE,
            bool(state & _STATIC),
            not any(kind in found for kind in _ELSEWHERE),
        )


def device_of(message: bytes) -> int | None:
    """The device that a message about neighbours speaks of, if it is one about forwarding."""
    family, device, _, _, _ = _ENTRY.unpack_from(message)
    return device if family == _BRIDGE_FAMILY else None


def pin(netlink: Netlink, device: int, mac: bytes) -> bool:
    """See that a bridge never forgets that a MAC is behind a port, though it sees no frames of it."""
    if any(entry.mac == mac and entry.static and entry.of_bridge for entry in forwarding(netlink, device)):
        return False
    body = _ENTRY.pack(_BRIDGE_FAMILY, device, _REACHABLE | _STATIC, _OF_ITS_BRIDGE, 0) + attribute(_MAC, mac)
    netlink.request("pin a worker's MAC to its port", _NEW, CREATE | REPLACE, body)
    return True


def learn(netlink: Netlink, tunnel: int, mac: bytes, host: bytes) -> None:
    """What zebra does on hearing that a MAC is at a host, or has moved there."""
    told = attribute(_MAC, mac) + attribute(_HOST, host)
    body = _ENTRY.pack(_BRIDGE_FAMILY, tunnel, _REACHABLE | _STATIC, _OF_THE_DEVICE | _TOLD, 0) + told
    netlink.request("take a MAC's host", _NEW, CREATE | REPLACE, body)


def unlearn(netlink: Netlink, tunnel: int, mac: bytes) -> None:
    """What zebra does on hearing that it is gone."""
    body = _ENTRY.pack(_BRIDGE_FAMILY, tunnel, 0, _OF_THE_DEVICE, 0) + attribute(_MAC, mac)
    netlink.request("forget a MAC's host", _DELETE, 0, body)
