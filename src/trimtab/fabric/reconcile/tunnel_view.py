"""What the control plane says, as zebra writes it into a tunnel's forwarding database."""

import contextlib
import socket
import struct
from collections.abc import Collection
from dataclasses import dataclass

from trimtab.fabric.reconcile.changes import Table
from trimtab.fabric.reconcile.forwarding import device_of, hosts_of
from trimtab.fabric.reconcile.netlink import Events, Netlink, NetlinkError, attributes, index_of

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
        self._events = Events((_LINKS, _NEIGHBOURS, _TRAFFIC_CONTROL), receive_buffer)
        self._netlink = Netlink()
        self._index = index_of(tunnel)

    def close(self) -> None:
        """Look no more."""
        self._events.close()
        self._netlink.__exit__()

    def fileno(self) -> int:
        """What to wait on until `heard` has something to say."""
        return self._events.fileno()

    def entries(self) -> Table:
        """A fresh dump."""
        self._index = index_of(self._tunnel)
        if self._index is None:
            return {}
        try:
            found = hosts_of(self._netlink, self._index)
        except NetlinkError as error:
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
                name = attributes(body, _LINK_HEAD).get(_LINK_NAME, b"").rstrip(b"\0").decode()
                devices = devices or name in self._names
            elif kind in (_GONE_QDISC, _GONE_FILTER):
                devices = devices or self._is_watched(struct.unpack_from("=i", body, 4)[0])
        return Heard(entries, devices, lost)

    def _is_watched(self, index: int) -> bool:
        with contextlib.suppress(OSError):
            return socket.if_indextoname(index) in self._names
        return False
