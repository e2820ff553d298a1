"""Netlink by hand, for what is asked often: pyroute2 takes many times as long for an entry of a dump.

`bytes` of messages are passed around as the kernel sends them; the numbers are those of its header files.
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import Self

from trimtab.core import TrimtabError

_NETLINK, _STRICT = 270, 12  # SOL_NETLINK, NETLINK_GET_STRICT_CHK: the kernel does the selecting
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
REPLACE, EXCLUSIVE, CREATE = 0x100, 0x200, 0x400
_INTERRUPTED = 0x10
_BEYOND_THE_LIMIT = 33  # SO_RCVBUFFORCE
_HEAD = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_TYPE = 0x3FFF  # without the marks for nested and big-endian
_LONGEST = 1 << 16
_TRIES = 5


class NetlinkError(TrimtabError):
    """The kernel refused a request; `number` is its errno."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"the kernel did not {what}: {os.strerror(number).lower()}")
        self.number = number


class Netlink:
    """A socket for requests, one after the other; use as a context."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.setsockopt(_NETLINK, _STRICT, 1)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._socket.close()

    def request(self, what: str, kind: int, flags: int, body: bytes) -> list[bytes]:
        """Have something done, and what is answered; `what` completes a refusal: "the kernel did not…"."""
        self._send(kind, _REQUEST | _ACK | flags, body)
        return [body for _, body in self._answers(what)]

    def dump(self, what: str, kind: int, body: bytes) -> list[bytes]:
        """All messages (without their heads) of a consistent answer."""
        for _ in range(_TRIES):
            self._send(kind, _REQUEST | _DUMP, body)
            found, whole = list[bytes](), True
            for flags, message in self._answers(what):
                found.append(message)
                whole = whole and not flags & _INTERRUPTED
            if whole:
                break
        return found  # after so many tries in a storm of changes, the last word: a later event corrects it

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        self._sequence += 1
        self._socket.send(_HEAD.pack(_HEAD.size + len(body), kind, flags, self._sequence, 0) + body)

    def _answers(self, what: str) -> Iterator[tuple[int, bytes]]:
        while True:
            for kind, flags, sequence, body in messages(self._socket.recv(_LONGEST)):
                if sequence != self._sequence:
                    continue
                if kind in (_ERROR, _DONE):
                    (code,) = struct.unpack_from("=i", body)
                    if code < 0:
                        raise NetlinkError(what, -code)
                    return
                yield flags, body


class Events:
    """Word of what changes, of those groups; nothing says how much of it got lost on the way."""

    def __init__(self, groups: tuple[int, ...], receive_buffer: int) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, 0
        )
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _BEYOND_THE_LIMIT, receive_buffer)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.bind((0, sum(1 << group - 1 for group in groups)))

    def fileno(self) -> int:
        """What to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()

    def waiting(self) -> Iterator[tuple[int, bytes] | None]:
        """Kinds and bodies of all that waits; None stands for messages that the kernel had to drop."""
        while True:
            try:
                content = self._socket.recv(_LONGEST)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield None
                continue
            for kind, _, _, body in messages(content):
                yield kind, body


def messages(content: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, flags, sequence number and body of each message in what was received."""
    place = 0
    while place + _HEAD.size <= len(content):
        length, kind, flags, sequence, _ = _HEAD.unpack_from(content, place)
        yield kind, flags, sequence, content[place + _HEAD.size : place + length]
        place += length + 3 & ~3


def attributes(content: bytes, place: int = 0) -> dict[int, bytes]:
    """Values by type; of a type that is there twice, the last."""
    found = dict[int, bytes]()
    while place + 4 <= len(content):
        length, kind = _ATTRIBUTE.unpack_from(content, place)
        if length < 4:
            break
        found[kind & _TYPE] = content[place + 4 : place + length]
        place += length + 3 & ~3
    return found


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded; a nested one is made of others."""
    return _ATTRIBUTE.pack(len(value) + 4, kind) + value + bytes(-len(value) % 4)


def number(kind: int, value: int) -> bytes:
    """An attribute of 32 bits."""
    return attribute(kind, struct.pack("=I", value))


def text(kind: int, value: str) -> bytes:
    """An attribute of letters."""
    return attribute(kind, value.encode() + b"\0")


def index_of(device: str) -> int | None:
    """The number of a device; None where there is none."""
    with contextlib.suppress(OSError):
        return socket.if_nametoindex(device)
    return None
