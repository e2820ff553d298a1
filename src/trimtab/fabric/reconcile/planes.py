"""What must change for a data plane to be what the control plane says. No I/O here."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Protocol

from trimtab.core import TrimtabError

Table = Mapping[bytes, bytes]
"""Where each MAC is: its six bytes, and the four of its host's loopback, as they stand in packets."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Entries to set, whether or not there is one of that MAC, and MACs to forget."""

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
    """As people write it: 02:00:0a:64:00:01."""
    return mac.hex(":")


def mac_bytes(mac: str) -> bytes:
    """As packets have it."""
    return bytes.fromhex(mac.replace(":", ""))


def host_text(host: bytes) -> str:
    """As people write it: 10.255.0.1."""
    return str(IPv4Address(host))


class PlaneError(TrimtabError):
    """A data plane could not be read or changed; the sentence says why and what would help."""


class DataPlane(Protocol):
    """Takes workers' frames to the hosts of their MACs. Calls may be repeated, and may raise TrimtabError."""

    @property
    def name(self) -> str:
        """As a user asks for it."""

    @property
    def devices(self) -> frozenset[str]:
        """What it lives on, to hear about when it changes."""

    def prepare(self) -> int:
        """Put up what it consists of, and answer how many of its parts were not as they should be."""

    def entries(self) -> Table:
        """What it does at this moment, read back from where it does it."""

    def apply(self, changes: Changes) -> None:
        """Do that from now on."""

    def trust(self, seconds: float) -> None:
        """What it has is right for so long; past that it is better not used."""

    def remove(self) -> None:
        """Take it away; frames go through the bridge and its tunnel again."""

    def close(self) -> None:
        """Let go of it, and leave it as it is."""


class KernelPlane:
    """The kernel did what is to be done when zebra told it; this only keeps count."""

    name = "kernel"
    devices = frozenset[str]()

    def __init__(self) -> None:
        self._held = dict[bytes, bytes]()

    def prepare(self) -> int:
        """It is there with the tunnel."""
        return 0

    def entries(self) -> Table:
        """What was heard of."""
        return dict(self._held)

    def apply(self, changes: Changes) -> None:
        """Take note."""
        self._held.update(changes.put)
        for mac in changes.forget:
            self._held.pop(mac, None)

    def trust(self, seconds: float) -> None:
        """It follows zebra without us."""

    def remove(self) -> None:
        """It goes with the tunnel."""

    def close(self) -> None:
        """There is nothing to let go of."""
