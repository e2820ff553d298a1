"""Devices that a fabric makes or takes: bridges, tunnels, pairs, and virtual functions of a card."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from trimtab.fabric.machine import Machine
from trimtab.fabric.spaces import Link, Tunneled
from trimtab.fabric.steps import OTHERWISE, THERE

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
