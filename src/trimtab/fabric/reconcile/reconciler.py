"""What the control plane says, as zebra writes it into a tunnel's forwarding database."""

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from trimtab.core import BadInputError, TrimtabError
from trimtab.fabric.reconcile.bpf_plane import EGRESS, INGRESS, BpfPlane, Hook, bpf_unavailable, detach
from trimtab.fabric.reconcile.flower_plane import FlowerPlane, flower_unavailable
from trimtab.fabric.reconcile.forwarding import device_of, hosts_of
from trimtab.fabric.reconcile.planes import DataPlane, KernelPlane, Table, difference, mac_bytes
from trimtab.fabric.reconcile.sender import remove_sender
from trimtab.fabric.topology import Host, Tenant
from trimtab.kernel import rtnetlink

_NEW_LINK, _GONE_LINK = 16, 17
_NEW_NEIGHBOUR, _GONE_NEIGHBOUR = 28, 29
_GONE_QDISC, _GONE_FILTER = 37, 45
_LINKS, _NEIGHBOURS, _TRAFFIC_CONTROL = 1, 3, 4  # the groups to hear of
_LINK_HEAD, _LINK_NAME = 16, 3
_NO_DEVICE = 19
_RECEIVE_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class Heard:
    """What may have changed: entries, or devices and what runs on them; `lost` messages said anything."""

    entries: bool = False
    devices: bool = False
    lost: int = 0

    def __bool__(self) -> bool:
        return self.entries or self.devices or self.lost > 0


class TunnelView:
    """Of one tunnel; `local` MACs are never at another host, and `watched` are devices to hear about too.

    A MAC counts when the tunnel has it at one host, with the tunnel's own port and number: anything else is
    left to the tunnel. A tunnel that is not there knows no MACs.
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
        self._events = rtnetlink.Events((_LINKS, _NEIGHBOURS, _TRAFFIC_CONTROL), receive_buffer)
        self._netlink = rtnetlink.Netlink()
        self._index = rtnetlink.index_of(tunnel)

    def close(self) -> None:
        """Look no more."""
        self._events.close()
        self._netlink.__exit__()

    def fileno(self) -> int:
        """What to wait on until `heard` has something to say."""
        return self._events.fileno()

    def entries(self) -> Table:
        """A fresh dump."""
        self._index = rtnetlink.index_of(self._tunnel)
        if self._index is None:
            return {}
        try:
            found = hosts_of(self._netlink, self._index)
        except rtnetlink.NetlinkError as error:
            if error.number == _NO_DEVICE:
                return {}
            raise
        return {mac: host for mac, host in found.items() if self._is_one_device(mac)}

    def _is_one_device(self, mac: bytes) -> bool:
        """Neither for many, nor zebra's sign for where floods go, nor a worker's here."""
        return any(mac) and not mac[0] & 1 and mac not in self._local

    def heard(self) -> Heard:
        """What all messages that wait amount to; never waits."""
        entries, devices, lost = False, False, 0
        for event in self._events.waiting():
            if event is None:
                lost += 1
                continue
            kind, body = event
            if kind in (_NEW_NEIGHBOUR, _GONE_NEIGHBOUR):
                entries = entries or device_of(body) == self._index
            elif kind in (_NEW_LINK, _GONE_LINK):
                name = rtnetlink.attributes(body, _LINK_HEAD).get(_LINK_NAME, b"").rstrip(b"\0").decode()
                devices = devices or name in self._names
            elif kind in (_GONE_QDISC, _GONE_FILTER):
                devices = devices or self._is_watched(struct.unpack_from("=i", body, 4)[0])
        return Heard(entries, devices, lost)

    def _is_watched(self, index: int) -> bool:
        with contextlib.suppress(OSError):
            return socket.if_indextoname(index) in self._names
        return False


_QUIET, _PATIENCE = 0.002, 0.020
"""Seconds: a burst of messages is over after so long without one, or so long after the last dump."""
_PERIODS_OF_TRUST, _LEAST_TRUST = 5, 5.0
"""A plane is trusted for so many periods, and so many seconds at least."""


class View(Protocol):
    """What the control plane says, and word that it may say something else now."""

    def entries(self) -> Table:
        """All of it, afresh."""

    def heard(self) -> Heard:
        """What the messages that wait amount to."""

    def fileno(self) -> int:
        """Readable when messages wait."""

    def close(self) -> None:
        """Look no more."""


@dataclass(slots=True)
class Counts:
    """What was done since the start; `repairs` are changes that the control plane did not ask for."""

    dumps: int = 0
    changes: int = 0
    repairs: int = 0
    lost: int = 0
    failures: int = 0


class Reconciler:
    """Of one view and one plane. `run` in a thread of its own, or `step` from a loop of yours."""

    def __init__(self, view: View, plane: DataPlane, period: float) -> None:
        self.plane = plane
        self._view = view
        self.period = period
        self._believed: Table | None = None  # what the plane has, as far as we know
        self._begun = False
        self._due = time.monotonic()
        self._dumped, self._last_dump = 0.0, 0.0  # when, and how long it took
        self._stopping = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.counts = Counts()
        self.problem: str | None = None
        """Why the plane may not be right at the moment; None while it is."""

    def settle(self) -> None:
        """Compare everything: the plane's parts, and what it does, read back, with what it should do."""
        repaired = self.plane.prepare()
        actual = self.plane.entries()
        if self._begun:
            self.counts.repairs += repaired
        if self._believed is not None:
            self.counts.repairs += len(difference(self._believed, actual))
        self._believed, self._begun = actual, True
        self.follow()

    def follow(self) -> None:
        """Ask what should be, and change what differs from what is believed to be."""
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
            self._believed = None  # until it is known to have gone well
            self.plane.apply(changes)
            self.counts.changes += len(changes)
        self._believed = desired
        self.plane.trust(max(_LEAST_TRUST, _PERIODS_OF_TRUST * self.period))

    def step(self, most: float | None = None) -> None:
        """Wait for word or for the period's end, `most` seconds at most, and do what is due."""
        left = max(0.0, self._due - time.monotonic())
        self._wait(left if most is None else min(left, most))
        heard = self._burst()
        if heard.devices or heard.lost or time.monotonic() >= self._due:
            self._due = time.monotonic() + self.period
            self._try(self.settle)
        elif heard:
            self._try(self.follow)

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopping:
            self.step()

    def stop(self) -> None:
        """From any thread: end `run` soon. The plane stays as it is."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Once `run` has ended: let go of everything, and leave the plane as it is."""
        os.close(self._wake)
        self._view.close()
        self.plane.close()

    def _try(self, what: Callable[[], None]) -> None:
        try:
            what()
            self.problem = None
        except (TrimtabError, OSError) as error:  # of what was there a moment ago
            self._believed = None
            self.counts.failures += 1
            self.problem = str(error)

    def _wait(self, seconds: float) -> bool:
        """Whether messages came before the time was over."""
        waiting = select.poll()
        for descriptor in (self._view.fileno(), self._wake):
            waiting.register(descriptor, select.POLLIN)
        return any(descriptor != self._wake for descriptor, _ in waiting.poll(seconds * 1000))

    def _burst(self) -> Heard:
        """What was heard: at once after a silence, else until messages pause: a burst costs little."""
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


def reconciler_of(host: Host, tenant: Tenant, wanted: str | None = None) -> Reconciler:
    """Of a tenant in the network namespace of this thread, with the plane asked for, else the best one."""
    plane = plane_of(host, tenant, wanted)
    local = [mac_bytes(device.mac) for device in tenant.devices]
    return Reconciler(TunnelView(tenant.tunnel, local, plane.devices), plane, host.timers.settle)


def plane_of(host: Host, tenant: Tenant, wanted: str | None = None) -> DataPlane:
    """Flower where a card has workers' ports and forwards for them, else BPF, else the kernel's own."""
    if wanted is not None and wanted not in PLANES:
        raise BadInputError(f"there is no data plane {wanted}; there are {', '.join(PLANES)}")
    if wanted is not None:
        reason = _UNAVAILABLE[wanted]()
        if reason is not None:
            raise BadInputError(f"the data plane {wanted} cannot be used: {reason}")
        return _made(wanted, host, tenant)
    has_card = any(device.function is not None for device in tenant.devices)
    order = ("flower", "bpf", "kernel") if has_card else ("bpf", "kernel")
    return _made(next(name for name in order if _UNAVAILABLE[name]() is None), host, tenant)


def _made(name: str, host: Host, tenant: Tenant) -> DataPlane:
    if name == "kernel":
        return KernelPlane()
    return FlowerPlane(host, tenant) if name == "flower" else BpfPlane(host, tenant)


def remove_planes() -> int:
    """Those of all tenants in this network namespace: how many programs and rules there were.

    While nothing sends through a plane any more, the bridges and tunnels do. No reconciler should be at work.
    """
    taken = 0
    with rtnetlink.Netlink() as netlink:
        for parent in (INGRESS, EGRESS):  # first nothing is handed to the sender, then nothing comes from it
            for _, device in socket.if_nameindex():
                taken += detach(netlink, Hook(device, parent), also_rules=True)
        remove_sender(netlink)
    return taken
