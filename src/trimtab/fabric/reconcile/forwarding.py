"""Forwarding databases of bridges and tunnels: which MAC is behind which port, or at which host."""

import struct

from trimtab.kernel import rtnetlink

_BRIDGE_FAMILY = 7
_ENTRY = struct.Struct("=BxxxiHBB")  # family, device, state, flags, type
_OF_THE_DEVICE, _OF_ITS_BRIDGE, _EXTERNAL = 0x02, 0x04, 0x10
_REACHABLE, _STATIC = 0x02, 0x40
_HOST, _MAC, _TIMES = 1, 2, 3
_PLAIN = {_HOST, _MAC, _TIMES}
# A tunnel's usual entry: the above, then a MAC, a host and times of use, each with its length and type.
_USUAL = struct.Struct("=BxxxiHBBI6sxxI4sI16x")
_USUAL_TYPES = (_MAC << 16 | 10, _HOST << 16 | 8, _TIMES << 16 | 20)


def hosts_of(netlink: rtnetlink.Netlink, tunnel: int) -> dict[bytes, bytes]:
    """MACs that a tunnel has at an IPv4 host, with its own port and VNI and no other attributes."""
    hosts = dict[bytes, bytes]()
    for message in _dumped(netlink, tunnel):
        if len(message) == _USUAL.size:  # parsed at once: databases are large
            _, of, _, flags, _, first, mac, second, host, third = _USUAL.unpack(message)
            if (first, second, third) == _USUAL_TYPES:
                if of == tunnel and flags & _OF_THE_DEVICE:
                    hosts[mac] = host
                continue
        _, of, _, flags, _ = _ENTRY.unpack_from(message)
        attributes = rtnetlink.attributes(message, _ENTRY.size)
        is_plain = attributes.keys() <= _PLAIN and len(attributes.get(_HOST, b"")) == 4
        if of == tunnel and flags & _OF_THE_DEVICE and is_plain:
            hosts[attributes[_MAC]] = attributes[_HOST]
    return hosts


def _dumped(netlink: rtnetlink.Netlink, device: int) -> list[bytes]:
    request = _ENTRY.pack(_BRIDGE_FAMILY, device, 0, 0, 0)
    return netlink.dump("list a forwarding database", rtnetlink.GET_NEIGHBOUR, request)


def device_of(message: bytes) -> int | None:
    """The device of a neighbour message about forwarding; None for any other."""
    family, device, _, _, _ = _ENTRY.unpack_from(message)
    return device if family == _BRIDGE_FAMILY else None


def pin(netlink: rtnetlink.Netlink, port: int, mac: bytes) -> bool:
    """Make a static entry for a MAC behind a bridge's port; whether it is new."""
    for message in _dumped(netlink, port):
        _, of, state, flags, _ = _ENTRY.unpack_from(message)
        is_static = of == port and state & _STATIC and not flags & _OF_THE_DEVICE
        if is_static and rtnetlink.attributes(message, _ENTRY.size).get(_MAC) == mac:
            return False
    body = _ENTRY.pack(_BRIDGE_FAMILY, port, _REACHABLE | _STATIC, _OF_ITS_BRIDGE, 0)
    body += rtnetlink.attribute(_MAC, mac)
    netlink.request(
        "pin a worker's MAC to its port", rtnetlink.NEW_NEIGHBOUR, rtnetlink.CREATE | rtnetlink.REPLACE, body
    )
    return True


def learn(netlink: rtnetlink.Netlink, tunnel: int, mac: bytes, host: bytes) -> None:
    """Set the host of a MAC, as zebra does when it is announced or has moved."""
    body = _ENTRY.pack(_BRIDGE_FAMILY, tunnel, _REACHABLE | _STATIC, _OF_THE_DEVICE | _EXTERNAL, 0)
    body += rtnetlink.attribute(_MAC, mac) + rtnetlink.attribute(_HOST, host)
    netlink.request("set a MAC's host", rtnetlink.NEW_NEIGHBOUR, rtnetlink.CREATE | rtnetlink.REPLACE, body)


def unlearn(netlink: rtnetlink.Netlink, tunnel: int, mac: bytes) -> None:
    """Remove the host of a MAC, as zebra does when it is withdrawn."""
    body = _ENTRY.pack(_BRIDGE_FAMILY, tunnel, 0, _OF_THE_DEVICE, 0) + rtnetlink.attribute(_MAC, mac)
    netlink.request("forget a MAC's host", rtnetlink.DELETE_NEIGHBOUR, 0, body)
