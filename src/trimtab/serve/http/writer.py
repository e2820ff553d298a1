"""Short writes are done in a process of their own, all that wait at a moment with one sync of the disk.

Threads that write would take turns with the one that answers, at every row of every page that it reads: it
would wait for them longer than it works.
"""

import asyncio
import itertools
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from trimtab.core import StorageError, to_plain
from trimtab.serve.companion import Companion
from trimtab.serve.http.answer import Answer
from trimtab.serve.http.call import Call
from trimtab.serve.http.frames import Asked, Done, Frames, framed
from trimtab.serve.settings import Settings

_ENTRY = "trimtab.serve.http.writer_process:write"
_NEEDED = ("method", "path", "path_params", "query_string", "headers", "trimtab.id")
_GONE = (
    "the process that writes ended before it answered; what was asked may be done or not: look, "
    "or repeat it with the same Idempotency-Key"
)


class Writer:
    """The other process, as routes ask it. While it is not there, they write themselves."""

    def __init__(self, settings: Settings) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
        self._talk: _Talk | None = None
        self._process = Companion("writer", _ENTRY, to_plain(settings), self._meet)

    @property
    def there(self) -> bool:
        """Whether it can be asked now."""
        return self._talk is not None and self._talk.open

    async def ask(self, route: str, call: Call, raw: bytes) -> Answer:
        """Its answer to a request for the route of that path."""
        assert self._talk is not None
        scope = {name: call.scope[name] for name in _NEEDED}
        done = await self._talk.ask(route, call, scope, raw)
        if done.why is not None:
            call.scope["trimtab.why"] = done.why
        return done.answer

    @contextmanager
    def answering(self) -> Iterator[None]:
        """It can be asked by tasks of the loop that runs this block."""
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        yield

    def stop(self) -> None:
        """Let it end what it has begun."""
        self._begun.set()
        self._process.stop()

    def _meet(self, ours: socket.socket) -> bool:
        self._begun.wait()
        if self._loop is None:
            return False  # it is over before it began
        try:
            asyncio.run_coroutine_threadsafe(self._converse(ours.dup()), self._loop).result()
        except (CancelledError, RuntimeError):
            return False  # the loop has ended, so nobody asks any more
        return True

    async def _converse(self, ours: socket.socket) -> None:
        """Until it hangs up."""
        talk = _Talk()
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: talk, sock=ours)
        try:
            await talk.ready.wait()
            self._talk = None if talk.over.is_set() else talk
            await talk.over.wait()
        finally:
            self._talk = None
            transport.close()


class _Talk(asyncio.Protocol):
    """One life of it. Its first word is that it is ready."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.over = asyncio.Event()
        self._frames = Frames()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Done]] = {}
        self._transport: Any = None

    @property
    def open(self) -> bool:
        """Whether it has not begun to end."""
        return not self.over.is_set() and not self._transport.is_closing()

    async def ask(self, route: str, call: Call, scope: dict[str, Any], raw: bytes) -> Done:
        number = next(self._numbers)
        asked: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self._waiting[number] = asked
        self._transport.write(framed(Asked(number, route, call.principal, scope, raw)))
        return await asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for done in self._frames.take(data):
            self.ready.set()
            asked = self._waiting.pop(done.number, None)
            if asked is not None and not asked.done():
                asked.set_result(done)

    def connection_lost(self, error: Exception | None) -> None:
        self.over.set()
        self.ready.set()
        for asked in self._waiting.values():
            if not asked.done():
                asked.set_exception(StorageError(_GONE))
        self._waiting.clear()


@contextmanager
def writing_beside(settings: Settings) -> Iterator[Writer]:
    """A process that writes while the block runs."""
    writer = Writer(settings)
    try:
        yield writer
    finally:
        writer.stop()
