"""Network resources that a plan gives values: each is read, written, and printed as a shell command."""

import os
from dataclasses import dataclass
from ipaddress import IPv4Interface
from typing import Any, Protocol

from trimtab.fabric.machine import Link, Machine, Tunneled

THERE = "there"
"""The value of a resource that is made rather than set: a device, an address."""
OTHERWISE = "otherwise"
"""The value of a device that has the right name and is something else."""
VXLAN_PORT = 4789
_BY_KERNEL, _ON_LINK = 2, 253  # RTPROT_KERNEL, RT_SCOPE_LINK
_RTO_MIN = 13  # RTAX_RTO_MIN


class NetworkResource(Protocol):
    """A device, address or setting. Its value is None where it does not exist."""

    @property
    def device(self) -> str:
        """The device it concerns; "" when it concerns all of them."""

    def read(self, machine: Machine) -> str | None:
        """Its value in the kernel."""

    def put(self, machine: Machine, value: str | None) -> None:
        """Write a value; None removes a resource that is made, and leaves one that is only set."""

    def command(self, value: str | None) -> str:
        """The shell command for `put`; "" where `put` does nothing."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A resource and its desired value."""

    resource: NetworkResource
    desired: str = THERE

    @property
    def command(self) -> str:
        return self.resource.command(self.desired)

    def is_done(self, machine: Machine) -> bool:
        return self.resource.read(machine) == self.desired


@dataclass(frozen=True, slots=True)
class DeviceAddress:
    """An address with its network, as in 10.100.0.1/24, on a device."""

    device: str
    address: str
    namespace: str = ""

    def read(self, machine: Machine) -> str | None:
        addresses = machine.state(self.namespace).addresses
        return THERE if (self.device, IPv4Interface(self.address)) in addresses else None

    def put(self, machine: Machine, value: str | None) -> None:
        ip, length = self.address.split("/")
        index = machine.index(self.device, self.namespace)
        machine.netlink(self.namespace).addr(
            "add" if value else "del", index=index, address=ip, prefixlen=int(length)
        )

    def command(self, value: str | None) -> str:
        return f"{_ip(self.namespace)} addr {'add' if value else 'del'} {self.address} dev {self.device}"


@dataclass(frozen=True, slots=True)
class LinkSetting:
    """An attribute of a device: mtu, address (the MAC), state (up, down) or master ("" is none)."""

    device: str
    name: str
    namespace: str = ""

    def read(self, machine: Machine) -> str | None:
        link = machine.state(self.namespace).links.get(self.device)
        if link is None:
            return None
        state = "up" if link.up else "down"
        return {"mtu": str(link.mtu), "address": link.mac, "state": state, "master": link.master}[self.name]

    def put(self, machine: Machine, value: str | None) -> None:
        if value is None:
            return
        attribute: Any = value
        if self.name == "mtu":
            attribute = int(value)
        elif self.name == "master":
            attribute = machine.index(value) if value else 0
        index = machine.index(self.device, self.namespace)
        machine.netlink(self.namespace).link("set", index=index, **{self.name: attribute})

    def command(self, value: str | None) -> str:
        if value is None:
            return ""
        setting = value if self.name == "state" else f"{self.name} {value}"
        return f"{_ip(self.namespace)} link set {self.device} {setting if value else 'nomaster'}"


@dataclass(frozen=True, slots=True)
class LeastTimeout:
    """TCP's least retransmission timeout, as in 20ms, toward a device's own network.

    The kernel's route of the address is replaced by one that has it: the new one is added behind the old one,
    which is then removed, so that there always is one, and others to the same network stay as they are.
    """

    device: str
    address: str
    namespace: str = ""

    def read(self, machine: Machine) -> str | None:
        network = IPv4Interface(self.address).network
        for route in machine.state(self.namespace).routes:
            if route.network == network and route.devices == (self.device,) and route.rto_min is not None:
                return f"{route.rto_min}ms"
        return None

    def put(self, machine: Machine, value: str | None) -> None:
        interface = IPv4Interface(self.address)
        route: dict[str, Any] = {
            "dst": str(interface.network),
            "oif": machine.index(self.device, self.namespace),
            "prefsrc": str(interface.ip),
            "proto": _BY_KERNEL,
            "scope": _ON_LINK,
        }
        # Without the lock TCP would ignore it.
        metrics = {"rto_min": int(value.removesuffix("ms")), "lock": 1 << _RTO_MIN} if value else None
        socket = machine.netlink(self.namespace)
        socket.route("append", **route, **({"metrics": metrics} if metrics else {}))
        socket.route("del", **route)

    def command(self, value: str | None) -> str:
        interface = IPv4Interface(self.address)
        route = f"{interface.network} dev {self.device} proto kernel scope link src {interface.ip}"
        ip = f"{_ip(self.namespace)} route"
        return f"{ip} append {route}{f' rto_min {value}' if value else ''} && {ip} del {route}"


@dataclass(frozen=True, slots=True)
class PortSetting:
    """A setting of a bridge's port: learning or neigh_suppress; on or off."""

    device: str
    name: str

    def read(self, machine: Machine) -> str | None:
        link = machine.state().links.get(self.device)
        if link is None or self.name not in link.port:
            return None
        return "on" if link.port[self.name] else "off"

    def put(self, machine: Machine, value: str | None) -> None:
        if value is not None:
            index = machine.index(self.device)
            machine.netlink().brport("set", index=index, **{self.name: int(value == "on")})

    def command(self, value: str | None) -> str:
        return f"bridge link set dev {self.device} {self.name} {value}" if value else ""


@dataclass(frozen=True, slots=True)
class Sysctl:
    """A kernel setting; `key` has slashes, because names of devices may have dots."""

    key: str
    namespace: str = ""

    @property
    def device(self) -> str:
        parts = self.key.split("/")
        return parts[3] if parts[2] == "conf" else ""

    def read(self, machine: Machine) -> str | None:
        return machine.sysctl(self.key, self.namespace)

    def put(self, machine: Machine, value: str | None) -> None:
        if value is not None:
            machine.set_sysctl(self.key, value, self.namespace)

    def command(self, value: str | None) -> str:
        if value is None:
            return ""
        key = self.key if "." in self.key else self.key.replace("/", ".")
        prefix = f"ip netns exec {self.namespace} " if self.namespace else ""
        return f"{prefix}sysctl -w {key}={value}"


@dataclass(frozen=True, slots=True)
class Bridge:
    """A device that joins others."""

    device: str

    def read(self, machine: Machine) -> str | None:
        link = machine.state().links.get(self.device)
        return _presence(link, link is not None and link.kind == "bridge")

    def put(self, machine: Machine, value: str | None) -> None:
        _remove(machine, self.device)
        if value:
            machine.netlink().link("add", ifname=self.device, kind="bridge")

    def command(self, value: str | None) -> str:
        return f"ip link add {self.device} type bridge" if value else f"ip link del {self.device}"


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A VXLAN device that does not learn its peers: the control plane sets them."""

    device: str
    vni: int
    local: str

    def read(self, machine: Machine) -> str | None:
        link = machine.state().links.get(self.device)
        desired = Tunneled(self.vni, self.local, VXLAN_PORT, learning=False, external=False)
        return _presence(link, link is not None and link.tunneled == desired)

    def put(self, machine: Machine, value: str | None) -> None:
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

    def command(self, value: str | None) -> str:
        if not value:
            return f"ip link del {self.device}"
        options = f"id {self.vni} local {self.local} dstport {VXLAN_PORT} nolearning"
        return f"ip link add {self.device} type vxlan {options}"


@dataclass(frozen=True, slots=True)
class Pair:
    """A veth pair: one end here, its peer here or in another namespace.

    The peer has its MAC from the beginning, so that no program that gives new devices MACs changes it.
    """

    device: str
    peer: str
    mac: str
    namespace: str = ""

    def read(self, machine: Machine) -> str | None:
        ends = (machine.state().links.get(self.device), machine.state(self.namespace).links.get(self.peer))
        return _presence(ends[0], all(link is not None and link.kind == "veth" for link in ends))

    def put(self, machine: Machine, value: str | None) -> None:
        _remove(machine, self.device)
        if value:
            peer = {"ifname": self.peer, "address": self.mac}
            namespace = {"net_ns_fd": self.namespace} if self.namespace else {}
            machine.netlink().link("add", ifname=self.device, kind="veth", peer={**peer, **namespace})

    def command(self, value: str | None) -> str:
        if not value:
            return f"ip link del {self.device}"
        namespace = f" netns {self.namespace}" if self.namespace else ""
        return f"ip link add {self.device} type veth peer name {self.peer} address {self.mac}{namespace}"


MADE = (Bridge, Tunnel, Pair)
"""Devices that a plan makes; their settings and addresses disappear with them."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A device of the machine that is moved into another namespace, and moved back at the end."""

    device: str
    namespace: str

    def read(self, machine: Machine) -> str | None:
        return THERE if self.device in machine.state(self.namespace).links else None

    def put(self, machine: Machine, value: str | None) -> None:
        if value:
            index = machine.index(self.device)
            machine.netlink().link("set", index=index, net_ns_fd=self.namespace)
            return
        own = os.open(machine.namespace_file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            index = machine.index(self.device, self.namespace)
            machine.netlink(self.namespace).link("set", index=index, net_ns_fd=own)
        finally:
            os.close(own)

    def command(self, value: str | None) -> str:
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

    def read(self, machine: Machine) -> str | None:
        link = machine.state().links.get(self.device)
        return link.functions.get(self.index) if link else None

    def put(self, machine: Machine, value: str | None) -> None:
        if value is not None:
            index = machine.index(self.device)
            machine.netlink().link("set", index=index, vf={"vf": self.index, "mac": value})

    def command(self, value: str | None) -> str:
        return f"ip link set {self.device} vf {self.index} mac {value}" if value else ""


def _ip(namespace: str) -> str:
    return f"ip -n {namespace}" if namespace else "ip"


def _presence(link: Link | None, is_right: bool) -> str | None:
    return None if link is None else THERE if is_right else OTHERWISE


def _remove(machine: Machine, device: str) -> None:
    index = machine.find(device)
    if index is not None:
        machine.netlink().link("del", index=index)
