"""A small HTTP service that runs in a container: every request says how much is to be done.

`GET /?units=3&keep=1048576&seconds=2` does three units of the service's work and keeps a MiB for two seconds.
Standard library alone, because nothing else is in the container.
"""

import asyncio
import hashlib
import json
import mmap
import sys
import zlib
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

_ITEMS = [{"name": f"item {number}", "price": number * 1.5, "stock": number % 7} for number in range(20)]
_PICTURE = bytes(range(256)) * 64
_PAGE = 4096


def render(units: int) -> None:
    """A page of a shop: items to JSON and back."""
    for _ in range(units):
        json.loads(json.dumps(_ITEMS))


def shrink(units: int) -> None:
    """A smaller picture."""
    for _ in range(units):
        zlib.compress(_PICTURE, 6)


def sign(units: int) -> None:
    """A session's signature."""
    for _ in range(units):
        hashlib.pbkdf2_hmac("sha256", b"session", b"salt", 100)


WORK: dict[str, Callable[[int], None]] = {"web": render, "thumbnail": shrink, "session": sign}


class _Connection(asyncio.Protocol):
    """One client: requests are answered in turn, and the connection stays open."""

    def __init__(self, work: Callable[[int], None]) -> None:
        self._work = work
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            self._answer(head.split(b" ", 2)[1].decode())

    def _answer(self, target: str) -> None:
        query = {name: float(values[0]) for name, values in parse_qs(urlsplit(target).query).items()}
        self._work(int(query.get("units", 0)))
        if query.get("keep"):
            kept = _touched(int(query["keep"]))
            asyncio.get_running_loop().call_later(query.get("seconds", 0.0), kept.close)
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def _touched(count: int) -> mmap.mmap:
    """Resident memory: every page has been written to. Closing it frees all of it."""
    memory = mmap.mmap(-1, count)
    for at in range(0, count, _PAGE):
        memory[at] = 1
    return memory


async def _serve(role: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(WORK[role]), "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
