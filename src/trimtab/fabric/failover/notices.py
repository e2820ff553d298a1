"""Hosts tell each other which switch they lost: the others hear it long before the routing protocol says so.

A notice is one datagram from a host's loopback address to another's, over the path that is left. It says
which switches (by autonomous system) the sender cannot be reached through, and is forgotten after some
seconds unless it is said again. It can only make a host prefer other paths to that one sender: the last
path is always used.
"""

import contextlib
import errno
import json
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from trimtab.core import BadInputError

PORT = 4796
_MOST = 2048  # bytes
_WHY = {
    errno.EADDRINUSE: "another agent runs for this host",
    errno.EADDRNOTAVAIL: "it is not an address of this machine; trimtab fabric up makes it one",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """`sender` is not reached through switches of these autonomous systems; good for `seconds`."""

    sender: str
    lost: frozenset[int]
    seconds: float


class Notices:
    """Sent from and received at the host's loopback address, in the namespace in which this is made."""

    def __init__(self, loopback: IPv4Address) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.bind((str(loopback), PORT))
        except OSError as error:
            self._socket.close()
            why = _WHY.get(error.errno or 0, (error.strerror or str(error)).lower())
            raise BadInputError(f"{loopback} cannot be listened at: {why}") from None

    def fileno(self) -> int:
        """To wait on."""
        return self._socket.fileno()

    def tell(self, others: Iterable[str], lost: Collection[int], seconds: float) -> None:
        """Tell them; who cannot be reached now hears it next time."""
        content = json.dumps({"lost": sorted(lost), "seconds": seconds}).encode()
        for address in others:
            with contextlib.suppress(OSError):
                self._socket.sendto(content, (address, PORT))

    def heard(self) -> list[Notice]:
        """What others said since the last call."""
        found = []
        with contextlib.suppress(OSError):
            while True:
                content, (sender, *_) = self._socket.recvfrom(_MOST)
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    told = json.loads(content)
                    found.append(
                        Notice(
                            sender,
                            frozenset(map(int, told["lost"])),
                            min(60.0, max(0.0, float(told["seconds"]))),
                        )
                    )
        return found

    def close(self) -> None:
        """Let go."""
        self._socket.close()
