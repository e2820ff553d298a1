"""Open-loop HTTP client: sends requests when they are due, whether or not earlier ones have been answered."""

import asyncio
import re
from collections.abc import Callable

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)

Answered = Callable[[int, bytes], None]
"""Called with the status and the body of an answer; status 0 where the connection was lost instead."""


class OpenLoopClient:
    """Sends requests over kept connections, one at a time on each; a request that finds none free waits."""

    def __init__(self, port: int, connections: int) -> None:
        self._port = port
        self._queue: asyncio.Queue[tuple[bytes, Answered]] = asyncio.Queue()
        self._workers = [asyncio.create_task(self._work()) for _ in range(connections)]

    def send(self, request: bytes, answered: Answered) -> None:
        """Send a request as soon as a connection is free."""
        self._queue.put_nowait((request, answered))

    async def close(self) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                request, answered = await self._queue.get()
                try:
                    if connection is None or connection[1].is_closing() or connection[0].at_eof():
                        connection = await asyncio.open_connection("127.0.0.1", self._port)
                    reader, writer = connection
                    writer.write(request)
                    head = await reader.readuntil(b"\r\n\r\n")
                    status, body = int(head[9:12]), await reader.readexactly(content_length(head))
                except (OSError, asyncio.IncompleteReadError):
                    if connection is not None:
                        connection[1].close()
                    status, body = 0, b""
                answered(status, body)
        finally:
            if connection is not None:
                connection[1].close()


def content_length(head: bytes) -> int:
    """Bytes of the body that follows a head; 0 where the head does not say."""
    match = _LENGTH.search(head)
    return int(match[1]) if match else 0
