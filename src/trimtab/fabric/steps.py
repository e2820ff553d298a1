"""Places on the machine that a fabric gives values, a small step each: read, written, said as commands."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Interface
from typing import Any, Protocol

from trimtab.fabric.machine import Link, Machine, Tunneled

THERE = "there"
"""The value of what is made rather than set: a device, an address."""
OTHERWISE = "otherwise"
"""The value of a device that has the right name and is something else."""
_BY_KERNEL, _ON_LINK = 2, 253  # RTPROT_KERNEL, RT_SCOPE_LINK
_RTO_MIN = 13  # RTAX_RTO_MIN


class Place(Protocol):
    """Something that has a value. None is no value: it is not there, or nothing can be said about it."""

    @property
    def device(self) -> str:
        """The device it is about; "" when it is about all of them."""

    def now(self, machine: Machine) -> str | None:
        """Its value as the kernel has it."""

    def put(self, machine: Machine, value: str | None) -> None:
        """Give it a value; None removes what was made, and leaves alone what was only set."""

    def words(self, value: str | None) -> str:
        """The command that does the same; "" where there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Step:
    """A place and what it should be."""

    place: Place
    wanted: str

    @property
    def words(self) -> str:
        """The command that does the same."""
        return self.place.words(self.wanted)

    def is_done(self, machine: Machine) -> bool:
        """Whether it is so already."""
        return self.place.now(machine) == self.wanted


@dataclass(frozen=True, slots=True)
class Address:
    """An address with its network, as in 10.100.0.1/24, on a device."""

    device: str
    address: str
    namespace: str = ""

    def now(self, machine: Machine) -> str | None:
        """Whether the device has it."""
        found = machine.space(self.namespace).addresses
        return THERE if any(d == self.device and str(a) == self.address for d, a in found) else None

    def put(self, machine: Machine, value: str | None) -> None:
        """Add or remove it."""
        ip, length = self.address.split("/")
        index = machine.index(self.device, self.namespace)
        machine.netlink(self.namespace).addr(
            "add" if value else "del", index=index, address=ip, prefixlen=int(length)
        )

    def words(self, value: str | None) -> str:
        """As for `ip addr`."""
        return f"{_ip(self.namespace)} addr {'add' if value else 'del'} {self.address} dev {self.device}"


@dataclass(frozen=True, slots=True)
class Setting:
    """An attribute of a device: mtu, address (the MAC), state (up, down) or master ("" is none)."""

    device: str
    name: str
    namespace: str = ""

    def now(self, machine: Machine) -> str | None:
        """Its value, if the device is there."""
        link = machine.space(self.namespace).links.get(self.device)
        if link is None:
            return None
        values = {
            "mtu": str(link.mtu),
            "address": link.mac,
            "state": "up" if link.up else "down",
            "master": link.master,
        }
        return values[self.name]

    def put(self, machine: Machine, value: str | None) -> None:
        """Set it."""
        if value is None:
            return
        known: dict[str, Any] = {self.name: value}
        if self.name == "mtu":
            known["mtu"] = int(value)
        elif self.name == "master":
            known["master"] = machine.index(value) if value else 0
        index = machine.index(self.device, self.namespace)
        machine.netlink(self.namespace).link("set", index=index, **known)

    def words(self, value: str | None) -> str:
        """As for `ip link`."""
        if value is None:
            return ""
        what = value if self.name == "state" else f"{self.name} {value}"
        return f"{_ip(self.namespace)} link set {self.device} {what if value else 'nomaster'}"


@dataclass(frozen=True, slots=True)
class LeastTimeout:
    """TCP's least retransmission timeout, as in 20ms, toward a device's own network.

    The kernel's route of the address is replaced by one that has it: the new one is added behind the old one,
    which then goes, so that there is always one, and others to the same network stay as they are.
    """

    device: str
    address: str
    namespace: str = ""

    def now(self, machine: Machine) -> str | None:
        """Its value, if the route has one."""
        network = IPv4Interface(self.address).network
        for route in machine.space(self.namespace).routes:
            if route.network == network and route.devices == (self.device,) and route.rto_min is not None:
                return f"{route.rto_min}ms"
        return None

    def put(self, machine: Machine, value: str | None) -> None:
        """Give the route this one; None leaves it to the kernel."""
        at = IPv4Interface(self.address)
        route: dict[str, Any] = {
            "dst": str(at.network),
            "oif": machine.index(self.device, self.namespace),
            "prefsrc": str(at.ip),
            "proto": _BY_KERNEL,
            "scope": _ON_LINK,
        }
        # Without the lock TCP would not look at it.
        metrics = {"rto_min": int(value.removesuffix("ms")), "lock": 1 << _RTO_MIN} if value else None
        socket = machine.netlink(self.namespace)
        socket.route("append", **route, **({"metrics": metrics} if metrics else {}))
        socket.route("del", **route)

    def words(self, value: str | None) -> str:
        """As for `ip route`."""
        at = IPv4Interface(self.address)
        route = f"{at.network} dev {self.device} proto kernel scope link src {at.ip}"
        ip = f"{_ip(self.namespace)} route"
        return f"{ip} append {route}{f' rto_min {value}' if value else ''} && {ip} del {route}"


@dataclass(frozen=True, slots=True)
class PortSetting:
    """What a bridge does at one of its ports: learning, neigh_suppress; on or off."""

    device: str
    name: str

    def now(self, machine: Machine) -> str | None:
        """Its value, if the device is in a bridge."""
        link = machine.space().links.get(self.device)
        if link is None or self.name not in link.port:
            return None
        return "on" if link.port[self.name] else "off"

    def put(self, machine: Machine, value: str | None) -> None:
        """Set it."""
        if value is not None:
            index = machine.index(self.device)
            machine.netlink().brport("set", index=index, **{self.name: int(value == "on")})

    def words(self, value: str | None) -> str:
        """As for `bridge link`."""
        return f"bridge link set dev {self.device} {self.name} {value}" if value else ""


@dataclass(frozen=True, slots=True)
class Sysctl:
    """A value of the kernel's; `key` is with slashes, because names of devices may have dots."""

    key: str
    namespace: str = ""

    @property
    def device(self) -> str:
        """The device it is about; "" when it is about all of them."""
        parts = self.key.split("/")
        return parts[3] if parts[2] == "conf" else ""

    def now(self, machine: Machine) -> str | None:
        """Its value, where the kernel has it."""
        return machine.sysctl(self.key, self.namespace)

    def put(self, machine: Machine, value: str | None) -> None:
        """Set it."""
        if value is not None:
            machine.set_sysctl(self.key, value, self.namespace)

    def words(self, value: str | None) -> str:
        """As for `sysctl`."""
        if value is None:
            return ""
        key = self.key if "." in self.key else self.key.replace("/", ".")
        where = f"ip netns exec {self.namespace} " if self.namespace else ""
        return f"{where}sysctl -w {key}={value}"


def _ip(namespace: str) -> str:
    return f"ip -n {namespace}" if namespace else "ip"


VXLAN_PORT = 4789


@dataclass(frozen=True, slots=True)
class Bridge:
    """A device that joins others."""

    device: str

    def now(self, machine: Machine) -> str | None:
        """Whether it is there."""
        return _there(machine.space().links.get(self.device), lambda link: link.kind == "bridge")

    def put(self, machine: Machine, value: str | None) -> None:
        """Make or remove it."""
        _remove(machine, self.device)
        if value:
            machine.netlink().link("add", ifname=self.device, kind="bridge")

    def words(self, value: str | None) -> str:
        """As for `ip link`."""
        return f"ip link add {self.device} type bridge" if value else f"ip link del {self.device}"


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A VXLAN device that is told its peers, and learns none by itself."""

    device: str
    vni: int
    local: str

    def now(self, machine: Machine) -> str | None:
        """Whether it is there, with that number and address."""
        wanted = Tunneled(self.vni, self.local, VXLAN_PORT, learning=False, external=False)
        return _there(machine.space().links.get(self.device), lambda link: link.tunneled == wanted)

    def put(self, machine: Machine, value: str | None) -> None:
        """Make or remove it."""
        _remove(machine, self.device)
        if value:
            machine.netlink().link(
                "add",
                ifname=self.device,
                kind="vxlan",
                vxlan_id=self.vni,
                vxlan_local=self.local,
                vxlan_port=VXLAN_PORT,
                vxlan_learning=False,
            )

    def words(self, value: str | None) -> str:
        """As for `ip link`."""
        if not value:
            return f"ip link del {self.device}"
        return (
            f"ip link add {self.device} type vxlan id {self.vni} local {self.local} "
            f"dstport {VXLAN_PORT} nolearning"
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """Two devices that are each other's cable: one here, its peer here or in another namespace.

    The peer has its MAC from the beginning, so that nobody who gives new devices MACs finds one to give.
    """

    device: str
    peer: str
    mac: str
    namespace: str = ""

    def now(self, machine: Machine) -> str | None:
        """Whether both are there."""
        peer = machine.space(self.namespace).links.get(self.peer)
        return _there(
            machine.space().links.get(self.device),
            lambda link: link.kind == "veth" and peer is not None and peer.kind == "veth",
        )

    def put(self, machine: Machine, value: str | None) -> None:
        """Make or remove both."""
        _remove(machine, self.device)
        if value:
            peer = {"ifname": self.peer, "address": self.mac}
            where = {"net_ns_fd": self.namespace} if self.namespace else {}
            machine.netlink().link("add", ifname=self.device, kind="veth", peer={**peer, **where})

    def words(self, value: str | None) -> str:
        """As for `ip link`."""
        if not value:
            return f"ip link del {self.device}"
        where = f" netns {self.namespace}" if self.namespace else ""
        return f"ip link add {self.device} type veth peer name {self.peer} address {self.mac}{where}"


MADE = (Bridge, Tunnel, Pair)
"""Devices that are there because of us, and go with all that is about them."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A device of the machine's that is given to another namespace, and taken back at the end."""

    device: str
    namespace: str

    def now(self, machine: Machine) -> str | None:
        """Whether it is in the other namespace."""
        return THERE if self.device in machine.space(self.namespace).links else None

    def put(self, machine: Machine, value: str | None) -> None:
        """Move it there or back."""
        if value:
            index = machine.index(self.device)
            machine.netlink().link("set", index=index, net_ns_fd=self.namespace)
            return
        home = machine.own_namespace()
        try:
            index = machine.index(self.device, self.namespace)
            machine.netlink(self.namespace).link("set", index=index, net_ns_fd=home)
        finally:
            os.close(home)

    def words(self, value: str | None) -> str:
        """As for `ip link`."""
        if value:
            return f"ip link set {self.device} netns {self.namespace}"
        return f"ip -n {self.namespace} link set {self.device} netns $$"


@dataclass(frozen=True, slots=True)
class FunctionMac:
    """The MAC that a card's port gives to one of its virtual functions.

    Written after the documented interface of `ip link set PORT vf NUMBER mac MAC`; not tried on a card.
    """

    device: str
    index: int

    def now(self, machine: Machine) -> str | None:
        """The MAC it has."""
        link = machine.space().links.get(self.device)
        return link.functions.get(self.index) if link else None

    def put(self, machine: Machine, value: str | None) -> None:
        """Give it that MAC."""
        if value is not None:
            index = machine.index(self.device)
            machine.netlink().link("set", index=index, vf={"vf": self.index, "mac": value})

    def words(self, value: str | None) -> str:
        """As for `ip link`."""
        return f"ip link set {self.device} vf {self.index} mac {value}" if value else ""


def _there(link: Link | None, as_wanted: Callable[[Link], bool]) -> str | None:
    if link is None:
        return None
    return THERE if as_wanted(link) else OTHERWISE


def _remove(machine: Machine, device: str) -> None:
    index = machine.find(device)
    if index is not None:
        machine.netlink().link("del", index=index)
