"""Keeps a data plane equal to a tunnel's forwarding database, into which zebra writes the control plane."""

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from trimtab.core import BadInputError, TrimtabError
from trimtab.fabric.reconcile.bpf_plane import EGRESS, INGRESS, BpfPlane, Hook, bpf_unavailable, detach
from trimtab.fabric.reconcile.flower_plane import FlowerPlane, flower_unavailable
from trimtab.fabric.reconcile.forwarding import device_of, hosts_of
from trimtab.fabric.reconcile.planes import DataPlane, KernelPlane, Table, difference, mac_bytes
from trimtab.fabric.reconcile.sender import remove_sender
from trimtab.fabric.topology import FabricHost, TenantNetwork
from trimtab.kernel import rtnetlink

_GONE_QDISC, _GONE_FILTER = 37, 45
_TRAFFIC_CONTROL_GROUP = 4  # RTNLGRP_TC
_LINK_HEAD, _LINK_NAME = 16, 3
_NO_DEVICE = 19
_RECEIVE_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class Heard:
    """Possible changes: of entries, or of devices and their programs; of anything if messages were `lost`."""

    entries: bool = False
    devices: bool = False
    lost: int = 0

    def __bool__(self) -> bool:
        return self.entries or self.devices or self.lost > 0


class TunnelView:
    """MACs of one tunnel, without the `local` ones, and events about it and the `watched` devices.

    A MAC counts when the tunnel has it at one host, with the tunnel's own port and VNI: anything else is left
    to the tunnel. A tunnel that does not exist has no MACs.
    """

    def __init__(
        self,
        tunnel: str,
        local: Collection[bytes] = (),
        watched: Collection[str] = (),
        receive_buffer: int = _RECEIVE_BUFFER,
    ) -> None:
        self._tunnel = tunnel
        self._local = frozenset(local)
        self._names = {tunnel, *watched}
        groups = (rtnetlink.LINK_GROUP, rtnetlink.NEIGHBOUR_GROUP, _TRAFFIC_CONTROL_GROUP)
        self._events = rtnetlink.NetlinkEvents(groups, receive_buffer)
        self._netlink = rtnetlink.Netlink()
        self._index = rtnetlink.index_of(tunnel)

    def close(self) -> None:
        self._events.close()
        self._netlink.__exit__()

    def fileno(self) -> int:
        return self._events.fileno()

    def entries(self) -> Table:
        """A new dump, without multicast MACs and the zero MAC, by which zebra says where to flood."""
        self._index = rtnetlink.index_of(self._tunnel)
        if self._index is None:
            return {}
        try:
            hosts = hosts_of(self._netlink, self._index)
        except rtnetlink.NetlinkError as error:
            if error.number == _NO_DEVICE:
                return {}
            raise
        return {
            mac: host for mac, host in hosts.items() if any(mac) and not mac[0] & 1 and mac not in self._local
        }

    def heard(self) -> Heard:
        """Summary of all waiting messages; never waits."""
        entries, devices, lost = False, False, 0
        for event in self._events.waiting():
            if event is None:
                lost += 1
                continue
            kind, body = event
            if kind in (rtnetlink.NEW_NEIGHBOUR, rtnetlink.DELETE_NEIGHBOUR):
                entries = entries or device_of(body) == self._index
            elif kind in (rtnetlink.NEW_LINK, rtnetlink.DELETE_LINK):
                name = rtnetlink.attributes(body, _LINK_HEAD).get(_LINK_NAME, b"").rstrip(b"\0").decode()
                devices = devices or name in self._names
            elif kind in (_GONE_QDISC, _GONE_FILTER):
                with contextlib.suppress(OSError):
                    name = socket.if_indextoname(struct.unpack_from("=i", body, 4)[0])
                    devices = devices or name in self._names
        return Heard(entries, devices, lost)


_QUIET, _PATIENCE = 0.002, 0.020
"""Seconds: a burst of messages is over after so long without one, or so long after the last dump."""
_PERIODS_OF_TRUST, _LEAST_TRUST = 5, 5.0
"""A plane is trusted for so many periods, and at least so many seconds."""


@dataclass(slots=True)
class Counts:
    """Work since the start; `repairs` are changes that the control plane did not cause."""

    dumps: int = 0
    changes: int = 0
    repairs: int = 0
    lost: int = 0
    failures: int = 0


class Reconciler:
    """Reconciles one plane with one view. `run` it in a thread, or call `step` from a loop."""

    def __init__(self, view: TunnelView, plane: DataPlane, period: float) -> None:
        self.plane = plane
        self._view = view
        self.period = period
        self._believed: Table | None = None  # the plane's entries; None if unknown
        self._has_settled = False
        self._due = time.monotonic()
        self._dumped, self._last_dump = 0.0, 0.0  # when, and how long it took
        self._stopping = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.counts = Counts()
        self.problem: str | None = None
        """Why the plane may not be right at the moment; None while it is."""

    def settle(self) -> None:
        """Repair the plane's parts and read its entries back, then `follow`."""
        repaired = self.plane.prepare()
        actual = self.plane.entries()
        if self._has_settled:
            self.counts.repairs += repaired
        if self._believed is not None:
            self.counts.repairs += len(difference(self._believed, actual))
        self._believed, self._has_settled = actual, True
        self.follow()

    def follow(self) -> None:
        """Dump the desired entries, and change those that differ from the believed ones."""
        if self._believed is None:
            self.settle()
            return
        started = time.monotonic()
        desired = self._view.entries()
        self._dumped = time.monotonic()
        self._last_dump = self._dumped - started
        self.counts.dumps += 1
        changes = difference(desired, self._believed)
        if changes:
            self._believed = None  # until it has succeeded
            self.plane.apply(changes)
            self.counts.changes += len(changes)
        self._believed = desired
        self.plane.trust(max(_LEAST_TRUST, _PERIODS_OF_TRUST * self.period))

    def step(self, most: float | None = None) -> None:
        """Wait for messages or for the period's end, `most` seconds at most, and do what is due."""
        left = max(0.0, self._due - time.monotonic())
        self._wait(left if most is None else min(left, most))
        heard = self._burst()
        if heard.devices or heard.lost or time.monotonic() >= self._due:
            self._due = time.monotonic() + self.period
            self._try(self.settle)
        elif heard:
            self._try(self.follow)

    def run(self) -> None:
        """Work until `stop`."""
        while not self._stopping:
            self.step()

    def stop(self) -> None:
        """End `run` soon, from any thread. The plane stays as it is."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close all files once `run` has ended, and leave the plane as it is."""
        os.close(self._wake)
        self._view.close()
        self.plane.close()

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
            self.problem = None
        except (TrimtabError, OSError) as error:  # OSError: a device was removed meanwhile
            self._believed = None
            self.counts.failures += 1
            self.problem = str(error)

    def _wait(self, seconds: float) -> bool:
        """Whether messages came within that time."""
        waiting = select.poll()
        for descriptor in (self._view.fileno(), self._wake):
            waiting.register(descriptor, select.POLLIN)
        return any(descriptor != self._wake for descriptor, _ in waiting.poll(seconds * 1000))

    def _burst(self) -> Heard:
        """Summary of messages: at once after a silence, else when they pause: a burst costs one dump."""
        heard = self._view.heard()
        patience = self._dumped + _PATIENCE + self._last_dump
        while heard and time.monotonic() < patience and self._wait(_QUIET):
            more = self._view.heard()
            heard = Heard(
                heard.entries or more.entries, heard.devices or more.devices, heard.lost + more.lost
            )
        self.counts.lost += heard.lost
        return heard


PLANES = ("flower", "bpf", "kernel")
_UNAVAILABLE: dict[str, Callable[[], str | None]] = {
    "flower": flower_unavailable,
    "bpf": bpf_unavailable,
    "kernel": lambda: None,
}


def reconciler_of(host: FabricHost, tenant: TenantNetwork, plane_name: str | None = None) -> Reconciler:
    """The reconciler of a tenant in this thread's network namespace, with the named plane or the best one."""
    plane = plane_of(host, tenant, plane_name)
    local = [mac_bytes(device.mac) for device in tenant.devices]
    return Reconciler(TunnelView(tenant.tunnel, local, plane.devices), plane, host.timers.settle)


def plane_of(host: FabricHost, tenant: TenantNetwork, name: str | None = None) -> DataPlane:
    """The named plane; by default flower if a card has workers' ports, else BPF, else the kernel's own."""
    if name is not None and name not in PLANES:
        raise BadInputError(f"there is no data plane {name}; there are {', '.join(PLANES)}")
    if name is None:
        has_card = any(device.function is not None for device in tenant.devices)
        order = PLANES if has_card else ("bpf", "kernel")
        name = next(candidate for candidate in order if _UNAVAILABLE[candidate]() is None)
    elif (reason := _UNAVAILABLE[name]()) is not None:
        raise BadInputError(f"the data plane {name} cannot be used: {reason}")
    if name == "kernel":
        return KernelPlane()
    return FlowerPlane(host, tenant) if name == "flower" else BpfPlane(host, tenant)


def remove_planes() -> int:
    """Remove the planes of all tenants in this network namespace: how many programs and rules there were.

    Bridges and tunnels then carry the traffic. No reconciler should be at work.
    """
    removed = 0
    with rtnetlink.Netlink() as netlink:
        for parent in (INGRESS, EGRESS):  # first stop handing frames to the sender, then free its devices
            for _, device in socket.if_nameindex():
                removed += detach(netlink, Hook(device, parent), also_rules=True)
        remove_sender(netlink)
    return removed
