"""Messages of bfdd about its sessions, by its control socket, and notices between hosts."""

import contextlib
import errno
import json
import socket
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from trimtab.core import BadInputError

_HEADER = struct.Struct(">IHBB")  # length of the content, number of the request, kind, version
_NOTIFY, _VERSION = 4, 1
_STATES = struct.pack("=Q", 1)  # subscribe to changes of state, and send all states now
_MOST = 1 << 20  # bytes; bfdd sends no longer message

PORT = 4796
_LONGEST_NOTICE = 2048  # bytes
_REASONS = {
    errno.EADDRINUSE: "another agent runs for this host",
    errno.EADDRNOTAVAIL: "it is not an address of this machine; trimtab fabric up adds it",
}


@dataclass(frozen=True, slots=True)
class BfdSession:
    """The state of a session with a neighbour: up, down, init or shutdown."""

    peer: str
    device: str
    state: str


class BfdSocket:
    """A connection that is made again when bfdd comes back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._data = b""

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def fileno(self) -> int:
        """File descriptor to wait on while connected."""
        assert self._socket is not None
        return self._socket.fileno()

    def connect(self) -> bool:
        """Connect and subscribe; False where bfdd does not run."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(1.0)
            connection.connect(str(self._path))
            connection.sendall(_HEADER.pack(len(_STATES), 1, _NOTIFY, _VERSION) + _STATES)
        except OSError:
            connection.close()
            return False
        connection.setblocking(False)
        self._socket, self._data = connection, b""
        return True

    def sessions(self) -> list[BfdSession]:
        """Sessions reported since the last call, all of them after `connect`; never waits."""
        if self._socket is None:
            return []
        try:
            while part := self._socket.recv(65536):
                self._data += part
            self.close()
        except BlockingIOError:
            pass
        except OSError:
            self.close()
        sessions = list[BfdSession]()
        while len(self._data) >= _HEADER.size:
            length, _, kind, _ = _HEADER.unpack_from(self._data)
            end = _HEADER.size + length
            if length > _MOST:
                self.close()
                self._data = b""
            elif len(self._data) < end:
                break
            content, self._data = self._data[_HEADER.size : end], self._data[end:]
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                notice = json.loads(content) if kind == _NOTIFY else {}
                if notice.get("op") == "status":
                    device = str(notice.get("local-interface", ""))
                    sessions.append(BfdSession(str(notice["peer-address"]), device, str(notice["state"])))
        return sessions

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


@dataclass(frozen=True, slots=True)
class Notice:
    """`sender` cannot be reached through switches of these autonomous systems; valid for `seconds`."""

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
            reason = _REASONS.get(error.errno or 0, (error.strerror or str(error)).lower())
            raise BadInputError(f"notices cannot be received at {loopback}: {reason}") from None

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, others: Iterable[str], lost: Collection[int], seconds: float) -> None:
        """Send a notice to each; one that cannot be reached now gets the next one."""
        content = json.dumps({"lost": sorted(lost), "seconds": seconds}).encode()
        for address in others:
            with contextlib.suppress(OSError):
                self._socket.sendto(content, (address, PORT))

    def received(self) -> list[Notice]:
        """Notices of others since the last call."""
        notices = []
        with contextlib.suppress(OSError):
            while True:
                content, (sender, *_) = self._socket.recvfrom(_LONGEST_NOTICE)
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    fields = json.loads(content)
                    lost = frozenset(map(int, fields["lost"]))
                    notices.append(Notice(sender, lost, min(60.0, max(0.0, float(fields["seconds"])))))
        return notices

    def close(self) -> None:
        self._socket.close()
