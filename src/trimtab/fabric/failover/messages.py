"""What bfdd says about its sessions, by its control socket: all states first, then every change at once."""

import contextlib
import errno
import json
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from trimtab.core import BadInputError

_HEADER = struct.Struct(">IHBB")  # length of what follows, number of the request, kind, version
_NOTIFY, _VERSION = 4, 1
_STATES = struct.pack("=Q", 1)  # subscribe to changes of state, and tell all states now
_MOST = 1 << 20  # bytes; a longer message is none of bfdd's


@dataclass(frozen=True, slots=True)
class Session:
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
        """Whether bfdd is there."""
        return self._socket is not None

    def fileno(self) -> int:
        """To wait on while connected."""
        assert self._socket is not None
        return self._socket.fileno()

    def connect(self) -> bool:
        """Connect and subscribe; False where there is nobody."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(1.0)
            made.connect(str(self._path))
            made.sendall(_HEADER.pack(len(_STATES), 1, _NOTIFY, _VERSION) + _STATES)
        except OSError:
            made.close()
            return False
        made.setblocking(False)
        self._socket, self._data = made, b""
        return True

    def sessions(self) -> list[Session]:
        """What was said since the last call; afterwards `connected` tells whether bfdd is still there."""
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
        return list(self._parsed())

    def close(self) -> None:
        """Let go."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _parsed(self) -> Iterator[Session]:
        while len(self._data) >= _HEADER.size:
            length, _, kind, _ = _HEADER.unpack_from(self._data)
            if length > _MOST:
                self.close()
                self._data = b""
                return
            if len(self._data) < _HEADER.size + length:
                return
            content = self._data[_HEADER.size : _HEADER.size + length]
            self._data = self._data[_HEADER.size + length :]
            if kind == _NOTIFY:
                yield from session_of(content)


def session_of(content: bytes) -> Iterator[Session]:
    """The session a notice is about; nothing where it is about something else."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        told = json.loads(content)
        if told["op"] == "status":
            yield Session(str(told["peer-address"]), str(told.get("local-interface", "")), str(told["state"]))


PORT = 4796
_LONGEST_NOTICE = 2048  # bytes
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
                content, (sender, *_) = self._socket.recvfrom(_LONGEST_NOTICE)
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
