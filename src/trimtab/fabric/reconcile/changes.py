"""What must change for a data plane to be what the control plane says. No I/O here."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

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
