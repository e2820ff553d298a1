"""Connections that are kept, with one request at a time on each; those that are closed are opened again."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

Answered = Callable[[int, bytes], None]
"""Told the status of an answer and its body; status 0 where the connection was lost instead."""

_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length:"
_AGAIN = 0.05  # s until a connection that cannot be made is tried again


class Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, lines: "Lines") -> None:
        self._lines = lines
        self._transport: asyncio.Transport | None = None
        self._answered: Answered | None = None
        self._came = b""
        self._whole = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._lines.free(self)

    def ask(self, request: bytes, answered: Answered) -> None:
        """Send a request; no other is on its way."""
        assert self._transport is not None
        self._answered, self._came, self._whole = answered, b"", -1
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._came = self._came + data if self._came else data
        if self._whole < 0:
            head = self._came.find(_END_OF_HEAD)
            if head < 0:
                return
            self._whole = head + len(_END_OF_HEAD) + content_length(self._came[:head])
        if len(self._came) < self._whole or self._answered is None:
            return
        answered, came, self._answered = self._answered, self._came, None
        self._lines.free(self)
        answered(int(came[9:12]), came[came.find(_END_OF_HEAD) + len(_END_OF_HEAD) :])

    def connection_lost(self, exc: Exception | None) -> None:
        self._lines.lost(self)
        if self._answered is not None:
            answered, self._answered = self._answered, None
            answered(0, b"")

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


class Lines:
    """So many connections to a port on this machine; a request that finds none free waits for one."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._count = count
        self._all: set[Line] = set()
        self._free: deque[Line] = deque()
        self._waiting: deque[tuple[bytes, Answered]] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self) -> None:
        """Returns when all are there."""
        await asyncio.gather(*(self._open() for _ in range(self._count)))

    def ask(self, request: bytes, answered: Answered) -> None:
        """Send a request by the connection that was free for longest."""
        if self._free:
            self._free.popleft().ask(request, answered)
        else:
            self._waiting.append((request, answered))

    def free(self, line: Line) -> None:
        """A connection is, for the next request."""
        self._all.add(line)
        if self._waiting:
            line.ask(*self._waiting.popleft())
        else:
            self._free.append(line)

    def lost(self, line: Line) -> None:
        """A connection was closed by the other side; another takes its place."""
        self._all.discard(line)
        if line in self._free:
            self._free.remove(line)
        if not self._closed:
            opening = asyncio.ensure_future(self._open())
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    def close(self) -> None:
        """Hang up on all."""
        self._closed = True
        for line in tuple(self._all):
            line.close()

    async def _open(self) -> None:
        while not self._closed:
            try:
                await asyncio.get_running_loop().create_connection(
                    lambda: Line(self), "127.0.0.1", self._port
                )
                return
            except OSError:
                if not self._all:
                    self._refuse_waiting()
                await asyncio.sleep(_AGAIN)

    def _refuse_waiting(self) -> None:
        while self._waiting:
            self._waiting.popleft()[1](0, b"")


def content_length(head: bytes) -> int:
    """Bytes of the body that follows a head, 0 where it does not say."""
    at = head.lower().find(_LENGTH)
    return 0 if at < 0 else int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
