"""The writer process: short writes in a process of their own, with one sync of the disk for all that wait.

Threads that write would compete with the one that answers for the interpreter's lock at every row that it
reads. Both processes exchange length-prefixed pickles over a socket pair that no other process can reach.
"""

import asyncio
import itertools
import logging
import pickle  # nosec B403 # both ends of the socket are Trimtab's own
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from trimtab.core import StorageError, TrimtabError, from_plain, to_plain
from trimtab.serve.http.endpoint import (
    Call,
    Effect,
    HttpAnswer,
    audited_refusals,
    crash_answer,
    endpoints,
    error_answer,
)
from trimtab.serve.operations import Backend, OutcomeLearner
from trimtab.serve.processes.supervision import SupervisedProcess, log_to_stderr, supervised_child
from trimtab.serve.settings import Settings
from trimtab.store import Store, open_store

log = logging.getLogger("trimtab.serve")

_LENGTH = struct.Struct(">I")
_PIECE = 1 << 18
_BATCH = 64  # requests that share a commit, at most
_COMMIT_INTERVAL = 0.010  # s between the starts of commits, at least, where requests come that often
_CHECKPOINT_INTERVAL = 1.0  # s
_GONE = (
    "the writer process ended before it answered; the request may be carried out or not: check, "
    "or repeat it with the same Idempotency-Key"
)


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A call of the operation with an id."""

    number: int
    operation: str
    call: Call


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The answer to the request of a number; `why` it failed is for the log only."""

    number: int
    answer: HttpAnswer
    why: str | None = None


def framed(message: WriteRequest | WriteResult) -> bytes:
    packed = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(packed)) + packed


class Frames:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, data: bytes) -> Iterator[Any]:
        """Messages that are complete with these bytes."""
        self._rest += data
        place = 0
        while place + _LENGTH.size <= len(self._rest):
            start = place + _LENGTH.size
            end = start + _LENGTH.unpack_from(self._rest, place)[0]
            if end > len(self._rest):
                break
            yield pickle.loads(self._rest[start:end])  # nosec B301 # both ends of the socket are Trimtab's own
            place = end
        del self._rest[:place]


class Writer:
    """The writer process. While it is not `connected`, the API writes itself."""

    def __init__(self, settings: Settings) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
        self._connection: _Connection | None = None
        self._process = SupervisedProcess("writer", f"{__name__}:main", to_plain(settings), self._talk)

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._connection.open

    async def write(self, operation: str, call: Call) -> WriteResult:
        """Result of a call, once it is on the disk."""
        assert self._connection is not None
        return await self._connection.write(operation, call)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Serve tasks of the loop that runs this block."""
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        yield

    def stop(self) -> None:
        """Let the process finish its requests, and end it."""
        self._begun.set()
        self._process.stop()

    def _talk(self, parent_end: socket.socket) -> bool:
        self._begun.wait()
        if self._loop is None:
            return False  # stopped before the API began
        try:
            asyncio.run_coroutine_threadsafe(self._converse(parent_end.dup()), self._loop).result()
        except (CancelledError, RuntimeError):
            return False  # the loop has ended, so nothing is written any more
        return True

    async def _converse(self, parent_end: socket.socket) -> None:
        """Talk until the child closes its end."""
        connection = _Connection()
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: connection, sock=parent_end)
        try:
            await connection.ready.wait()
            self._connection = None if connection.over.is_set() else connection
            await connection.over.wait()
        finally:
            self._connection = None
            transport.close()


class _Connection(asyncio.Protocol):
    """The connection to one child; its first message is that it is ready."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.over = asyncio.Event()
        self._frames = Frames()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[WriteResult]] = {}
        self._transport: Any = None

    @property
    def open(self) -> bool:
        """Whether the connection still takes requests."""
        return not self.over.is_set() and not self._transport.is_closing()

    async def write(self, operation: str, call: Call) -> WriteResult:
        number = next(self._numbers)
        result: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        self._waiting[number] = result
        self._transport.write(framed(WriteRequest(number, operation, call)))
        return await result

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for result in self._frames.take(data):
            self.ready.set()
            waiting = self._waiting.pop(result.number, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(result)

    def connection_lost(self, error: Exception | None) -> None:
        self.over.set()
        self.ready.set()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(StorageError(_GONE))
        self._waiting.clear()


@contextmanager
def writer_process(settings: Settings) -> Iterator[Writer]:
    writer = Writer(settings)
    try:
        yield writer
    finally:
        writer.stop()


class WriteBatcher:
    """Runs queued writes in one commit."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._endpoints = endpoints()

    def run(self, requests: list[WriteRequest]) -> list[WriteResult]:
        """A result for each request, all on the disk; one that fails fails alone."""
        prepared = [self._prepare(request) for request in requests]
        effects = {n: effect for n, effect in enumerate(prepared) if not isinstance(effect, Exception)}
        ends: dict[int, HttpAnswer | Exception] = {}
        if effects:
            try:
                done = self._backend.store.write_all(list(effects.values()))
            except TrimtabError as error:
                done = [error] * len(effects)
            ends = dict(zip(effects, done, strict=True))
        return [self._result(request, ends.get(n, prepared[n])) for n, request in enumerate(requests)]

    def _prepare(self, request: WriteRequest) -> Effect | Exception:
        try:
            return self._endpoints[request.operation].effect(self._backend, request.call)
        except Exception as error:
            return error

    def _result(self, request: WriteRequest, end: object) -> WriteResult:
        number, id = request.number, request.call.id
        if isinstance(end, HttpAnswer):
            return WriteResult(number, end)
        try:
            with audited_refusals(self._backend, request.call):
                assert isinstance(end, Exception)
                raise end
        except TrimtabError as error:
            answer = error_answer(error, id)
            return WriteResult(number, answer, str(error) if answer.status >= 500 else None)
        except Exception:
            log.exception("request %s failed", id)
            return WriteResult(number, crash_answer(id))


def main() -> None:
    """The child process. It ends when the API has closed its end, and all requests are written."""
    child_end, config = supervised_child()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the API gets it too, and closes its end when it is done
    settings = from_plain(Settings, config)
    with log_to_stderr(settings):
        try:
            _serve(child_end, settings)
        except TrimtabError as error:
            log.error("the writer process cannot start, so the API writes itself: %s", error)
            sys.exit(2)


def _serve(child_end: socket.socket, settings: Settings) -> None:
    with open_store(settings.store or None) as store:
        learner = OutcomeLearner()
        batcher = WriteBatcher(Backend(store, learner=learner))
        threading.Thread(target=_checkpoint, args=(store,), name="checkpoint", daemon=True).start()
        with suppress(ConnectionError):  # the API has ended without waiting for answers
            child_end.sendall(framed(WriteResult(0, HttpAnswer(200, b""))))
            for requests in _batches(child_end):
                child_end.sendall(b"".join(framed(result) for result in batcher.run(requests)))
        learner.close()


def _checkpoint(store: Store) -> None:
    """Move the write-ahead log into the store now and then, so that no request has to."""
    while True:
        time.sleep(_CHECKPOINT_INTERVAL)
        try:
            store.move_log()
        except StorageError as error:
            log.warning("the store's write-ahead log is not moved now: %s", error)


def _batches(child_end: socket.socket) -> Iterator[list[WriteRequest]]:
    """Requests as they come: at once if there are few, else gathered for a moment, since a commit is slow."""
    frames, waiting, before = Frames(), list[WriteRequest](), float("-inf")
    while data := child_end.recv(_PIECE):
        waiting += frames.take(data)
        while len(waiting) < _BATCH:
            left = max(0.0, before + _COMMIT_INTERVAL - time.monotonic())
            if not select.select([child_end], [], [], left)[0]:
                break
            data = child_end.recv(_PIECE)
            if not data:
                break
            waiting += frames.take(data)
        before = time.monotonic()
        while waiting:
            yield waiting[:_BATCH]
            del waiting[:_BATCH]
