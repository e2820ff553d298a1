"""Forwarding databases of bridges and tunnels: which MAC is behind which port, or at which host."""

import struct

from trimtab.kernel import rtnetlink

_NEW, _DELETE, _GET = 28, 29, 30
_BRIDGE_FAMILY = 7
_ENTRY = struct.Struct("=BxxxiHBB")  # family, device, state, flags, type
_OF_THE_DEVICE, _OF_ITS_BRIDGE, _TOLD = 0x02, 0x04, 0x10
_REACHABLE, _STATIC = 0x02, 0x40
_HOST, _MAC, _TIMES = 1, 2, 3
_PLAIN = {_HOST, _MAC, _TIMES}
# A tunnel's usual entry: the above, then each with its length and type a MAC, a host, and when it was used.
_USUAL = struct.Struct("=BxxxiHBBI6sxxI4sI16x")
_USUAL_TYPES = (_MAC << 16 | 10, _HOST << 16 | 8, _TIMES << 16 | 20)


def hosts_of(netlink: rtnetlink.Netlink, tunnel: int) -> dict[bytes, bytes]:
    """MACs that a tunnel has at an IPv4 host, with its own port and number and nothing else special."""
    found = dict[bytes, bytes]()
    for message in _dumped(netlink, tunnel):
        if len(message) == _USUAL.size:
            _, of, _, flags, _, first, mac, second, host, third = _USUAL.unpack(message)
            if (first, second, third) == _USUAL_TYPES:
                if of == tunnel and flags & _OF_THE_DEVICE:
                    found[mac] = host
                continue
        _, of, _, flags, _ = _ENTRY.unpack_from(message)
        told = rtnetlink.attributes(message, _ENTRY.size)
        is_plain = told.keys() <= _PLAIN and len(told.get(_HOST, b"")) == 4
        if of == tunnel and flags & _OF_THE_DEVICE and is_plain:
            found[told[_MAC]] = told[_HOST]
    return found


def _dumped(netlink: rtnetlink.Netlink, device: int) -> list[bytes]:
    asked = _ENTRY.pack(_BRIDGE_FAMILY, device, 0, 0, 0)
    return netlink.dump("list a forwarding database", _GET, asked)


def device_of(message: bytes) -> int | None:
    """The device that a message about neighbours speaks of, if it is one about forwarding."""
    family, device, _, _, _ = _ENTRY.unpack_from(message)
    return device if family == _BRIDGE_FAMILY else None


def pin(netlink: rtnetlink.Netlink, port: int, mac: bytes) -> bool:
    """See that a bridge never forgets that a MAC is behind a port, though it sees no frames of it."""
    if any(_pins(message, port, mac) for message in _dumped(netlink, port)):
        return False
    body = _ENTRY.pack(_BRIDGE_FAMILY, port, _REACHABLE | _STATIC, _OF_ITS_BRIDGE, 0) + rtnetlink.attribute(
        _MAC, mac
    )
    netlink.request("pin a worker's MAC to its port", _NEW, rtnetlink.CREATE | rtnetlink.REPLACE, body)
    return True


def _pins(message: bytes, port: int, mac: bytes) -> bool:
    _, of, state, flags, _ = _ENTRY.unpack_from(message)
    is_static = of == port and state & _STATIC and not flags & _OF_THE_DEVICE
    return bool(is_static) and rtnetlink.attributes(message, _ENTRY.size).get(_MAC) == mac


def learn(netlink: rtnetlink.Netlink, tunnel: int, mac: bytes, host: bytes) -> None:
    """What zebra does on hearing that a MAC is at a host, or has moved there."""
    told = rtnetlink.attribute(_MAC, mac) + rtnetlink.attribute(_HOST, host)
    body = _ENTRY.pack(_BRIDGE_FAMILY, tunnel, _REACHABLE | _STATIC, _OF_THE_DEVICE | _TOLD, 0) + told
    netlink.request("take a MAC's host", _NEW, rtnetlink.CREATE | rtnetlink.REPLACE, body)


def unlearn(netlink: rtnetlink.Netlink, tunnel: int, mac: bytes) -> None:
    """What zebra does on hearing that it is gone."""
    body = _ENTRY.pack(_BRIDGE_FAMILY, tunnel, 0, _OF_THE_DEVICE, 0) + rtnetlink.attribute(_MAC, mac)
    netlink.request("forget a MAC's host", _DELETE, 0, body)
