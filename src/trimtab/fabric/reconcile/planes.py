"""Data planes: the table of MACs they hold, and the changes that make it match the control plane."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Protocol

from trimtab.core import TrimtabError

Table = Mapping[bytes, bytes]
"""The host of each MAC: six bytes, and the four of the host's loopback, as they stand in packets."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Entries to set, new or not, and MACs to forget."""

    put: Mapping[bytes, bytes]
    forget: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        return len(self.put) + len(self.forget)


def difference(desired: Table, actual: Table) -> Changes:
    """The fewest changes that turn `actual` into `desired`."""
    return Changes(
        {mac: host for mac, host in desired.items() if actual.get(mac) != host},
        tuple(mac for mac in actual if mac not in desired),
    )


def mac_text(mac: bytes) -> str:
    return mac.hex(":")


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def host_text(host: bytes) -> str:
    return str(IPv4Address(host))


class PlaneError(TrimtabError):
    """A data plane could not be read or changed; the message says why and what would help."""


class DataPlane(Protocol):
    """Sends workers' frames to the hosts of their MACs. Calls may be repeated, and may raise TrimtabError."""

    @property
    def name(self) -> str:
        """Its name in settings."""

    @property
    def devices(self) -> frozenset[str]:
        """Devices it uses, whose changes are to be watched."""

    def prepare(self) -> int:
        """Set up its parts; how many of them were missing or wrong."""

    def entries(self) -> Table:
        """Its entries now, read back from the kernel."""

    def apply(self, changes: Changes) -> None: ...

    def trust(self, seconds: float) -> None:
        """Its entries are right for so long; after that it is not used."""

    def remove(self) -> None:
        """Remove it; frames go through the bridge and its tunnel again."""

    def close(self) -> None:
        """Close its files, and leave it as it is."""


class KernelPlane:
    """The tunnel's own table, which zebra writes; this only records the entries."""

    name = "kernel"
    devices = frozenset[str]()

    def __init__(self) -> None:
        self._entries = dict[bytes, bytes]()

    def prepare(self) -> int:
        return 0

    def entries(self) -> Table:
        return dict(self._entries)

    def apply(self, changes: Changes) -> None:
        self._entries.update(changes.put)
        for mac in changes.forget:
            self._entries.pop(mac, None)

    def trust(self, seconds: float) -> None:
        """It follows zebra by itself."""

    def remove(self) -> None:
        """It is removed with the tunnel."""

    def close(self) -> None: ...
