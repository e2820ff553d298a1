"""Netlink messages, packed and parsed here: requests, dumps and events of `linux/rtnetlink.h`.

Configuration goes through pyroute2. This codec serves the paths where its cost shows: rewriting routes on
failover and dumps of large forwarding databases.
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import Self

from trimtab.core import TrimtabError

ERROR, DONE = 2, 3
NEW_LINK, DELETE_LINK, GET_LINK, NEW_ROUTE, DELETE_ROUTE, GET_ROUTE = 16, 17, 18, 24, 25, 26
NEW_NEIGHBOUR, DELETE_NEIGHBOUR, GET_NEIGHBOUR = 28, 29, 30
LINK_GROUP, NEIGHBOUR_GROUP, ROUTE_GROUP = 1, 3, 7  # multicast groups: RTNLGRP_LINK, _NEIGH, _IPV4_ROUTE
REQUEST, ACK, DUMP = 0x1, 0x4, 0x300
REPLACE, EXCLUSIVE, CREATE = 0x100, 0x200, 0x400

_SOL_NETLINK, _ADD_MEMBERSHIP, _STRICT = 270, 1, 12  # NETLINK_GET_STRICT_CHK: the kernel filters dumps
_RCVBUFFORCE = 33
_INTERRUPTED = 0x10
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port of the sender
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_TYPE = 0x3FFF  # without the flags for nested and big-endian
_LONGEST = 1 << 16
_TRIES = 5


class NetlinkError(TrimtabError):
    """The kernel refused a request; `number` is its errno."""

    def __init__(self, action: str, number: int) -> None:
        super().__init__(f"the kernel did not {action}: {os.strerror(number).lower()}")
        self.number = number


def open_socket(*groups: int, receive_buffer: int = 0) -> socket.socket:
    """A netlink socket for requests, subscribed to events of these multicast groups."""
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        if receive_buffer:
            try:
                opened.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, receive_buffer)
            except PermissionError:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        opened.setsockopt(_SOL_NETLINK, _STRICT, 1)
        opened.bind((0, 0))
        for group in groups:
            opened.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
    except OSError:
        opened.close()
        raise
    return opened


class Netlink:
    """A socket for requests, one after the other; use as a context."""

    def __init__(self) -> None:
        self._socket = open_socket()
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._socket.close()

    def request(self, action: str, kind: int, flags: int, body: bytes) -> list[bytes]:
        """Bodies of the kernel's answer; `action` completes the error: "the kernel did not …"."""
        self._send(kind, ACK | flags, body)
        return [body for _, body in self._answers(action)]

    def dump(self, action: str, kind: int, body: bytes) -> list[bytes]:
        """Bodies of all messages of a consistent dump."""
        for _ in range(_TRIES):
            self._send(kind, DUMP, body)
            answers = list(self._answers(action))
            if not any(flags & _INTERRUPTED for flags, _ in answers):
                break
        # After so many tries during frequent changes, the last one: a later event corrects it.
        return [message for _, message in answers]

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        self._sequence += 1
        self._socket.send(request(kind, body, flags, self._sequence))

    def _answers(self, action: str) -> Iterator[tuple[int, bytes]]:
        while True:
            for kind, flags, sequence, _, body in messages(self._socket.recv(_LONGEST)):
                if sequence != self._sequence:
                    continue
                if kind in (ERROR, DONE):
                    (code,) = struct.unpack_from("=i", body)
                    if code < 0:
                        raise NetlinkError(action, -code)
                    return
                yield flags, body


class NetlinkEvents:
    """Events of multicast groups. The kernel drops some when they come faster than they are read."""

    def __init__(self, groups: tuple[int, ...], receive_buffer: int) -> None:
        self._socket = open_socket(*groups, receive_buffer=receive_buffer)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def waiting(self) -> Iterator[tuple[int, bytes] | None]:
        """Kind and body of each event that has arrived; None for events that the kernel dropped."""
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
            for kind, _, _, _, body in messages(content):
                yield kind, body


def request(kind: int, body: bytes, flags: int, sequence: int = 0) -> bytes:
    """The bytes of a message to the kernel."""
    return _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, sequence, 0) + body


def messages(content: bytes) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Kind, flags, sequence number, port and body of each received message."""
    place = 0
    while place + _HEADER.size <= len(content):
        length, kind, flags, sequence, port = _HEADER.unpack_from(content, place)
        if length < _HEADER.size:
            return
        yield kind, flags, sequence, port, content[place + _HEADER.size : place + length]
        place += (length + 3) & ~3


def attributes(content: bytes, place: int = 0) -> dict[int, bytes]:
    """Values by type, in the order of the message; the last of a type that occurs twice."""
    values = dict[int, bytes]()
    while place + 4 <= len(content):
        length, kind = _ATTRIBUTE.unpack_from(content, place)
        if length < 4:
            break
        values[kind & _TYPE] = content[place + 4 : place + length]
        place += length + 3 & ~3
    return values


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded; the value of a nested one is attributes."""
    return _ATTRIBUTE.pack(len(value) + 4, kind) + value + bytes(-len(value) % 4)


def number(kind: int, value: int) -> bytes:
    """An attribute that holds a 32-bit number."""
    return attribute(kind, struct.pack("=I", value))


def text(kind: int, value: str) -> bytes:
    """An attribute that holds a string."""
    return attribute(kind, value.encode() + b"\0")


def index_of(device: str) -> int | None:
    """Index of a device; None if there is none of that name."""
    with contextlib.suppress(OSError):
        return socket.if_nametoindex(device)
    return None
