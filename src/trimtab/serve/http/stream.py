"""Server-sent events: one poll of the store for any number of listeners, and the route that sends them."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from trimtab.core import StorageError, TrimtabError
from trimtab.serve.access import LOCAL, Access, Principal
from trimtab.serve.http.endpoint import query_of
from trimtab.serve.http.gate import Gate
from trimtab.serve.operations import visible
from trimtab.serve.operations.operation import QueryModel
from trimtab.serve.problems import HttpError, encoded
from trimtab.store import Event, Role, Store

POLL = 0.25
"""Seconds between polls of the store, besides those that it takes to pass on what was found."""

HEARTBEAT = 15.0
"""Seconds between comments that keep a silent stream alive."""

_MOST_EVENTS = 1000  # of one poll
_PIECE = 40  # events that are read at once
_GROUP = 20  # listeners that are woken at once
_BETWEEN_GROUPS = 0.010  # s
_MOST_WAITING = 64  # batches
_MOST_LISTENERS = 5000
_SEND_TIMEOUT = 30.0  # s for which a listener may take nothing

_HEARTBEAT = b": still here\n\n"
_DROPPED = b'event: dropped\ndata: "you were too slow; ask again from the last id you have seen"\n\n'
_REVOKED = b'event: dropped\ndata: "your token opens nothing any more"\n\n'
_HEADERS = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"))

Kinds = tuple[str, ...]
Filter = tuple[tuple[str, ...] | None, bool, Kinds]


class StreamQuery(QueryModel):
    """Kinds of events by their names, or by the part before the dot; and the id after which to begin."""

    kind: Annotated[tuple[str, ...], Field(max_length=20)] = ()
    since: Annotated[int | None, Field(ge=0, le=2**63 - 1)] = None


class Batch:
    """Events of one poll, and their text for each filter, encoded once for all listeners alike."""

    __slots__ = ("_each", "_texts", "events")

    def __init__(self, events: tuple[Event, ...]) -> None:
        self.events = events
        self._texts: dict[Filter, bytes] = {}
        self._each: dict[int, bytes] = {}

    def text(self, principal: Principal, kinds: Kinds, after: int = 0) -> bytes:
        """Server-sent events that a principal may see and wants; a heartbeat where the batch is empty.

        Events up to the id `after` are left out.
        """
        if not self.events:
            return _HEARTBEAT
        if self.events[0].id <= after:
            new = tuple(event for event in self.events if event.id > after)
            return Batch(new).text(principal, kinds) if new else b""
        key = (principal.tenants, principal.role is Role.ADMIN, kinds)
        if key not in self._texts:
            shown = (e for e in self.events if wanted(e, kinds) and visible(principal, e))
            self._texts[key] = b"".join(map(self._text, shown))
        return self._texts[key]

    def _text(self, event: Event) -> bytes:
        text = self._each.get(event.id)
        if text is None:
            text = self._each[event.id] = event_text(event)
        return text


def wanted(event: Event, kinds: Kinds) -> bool:
    """Whether an event is of one of the kinds: job.waiting by its name or by "job"; no kinds: all are."""
    return not kinds or event.kind in kinds or event.kind.partition(".")[0] in kinds


def event_text(event: Event) -> bytes:
    """One server-sent event."""
    kind = "".join(c if c.isprintable() else "?" for c in event.kind).encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, kind, encoded(event))


@dataclass(slots=True, eq=False)
class Listener:
    """A subscriber of the hub. One that does not keep up is `lost`: its queue is bounded."""

    principal: Principal
    kinds: Kinds
    since: int
    lost: bool = False
    closed: bool = False
    _waiting: deque[Batch] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, batch: Batch) -> None:
        """Queue a batch; the listener is lost where too many wait already."""
        if len(self._waiting) >= _MOST_WAITING:
            self.lost = True
        else:
            self._waiting.append(batch)
        self._wake.set()

    def close(self) -> None:
        """End the subscription."""
        self.closed = True
        self._wake.set()

    async def heard(self) -> Batch | None:
        """The next batch; None at the end."""
        while True:
            if self.closed or self.lost:
                return None
            if self._waiting:
                return self._waiting.popleft()
            self._wake.clear()
            await self._wake.wait()


class Hub:
    """Polls the store's events for all listeners; `ask` runs a query of the store."""

    def __init__(
        self, store: Store, ask: Callable[[Callable[[], tuple[Event, ...]]], Awaitable[tuple[Event, ...]]]
    ) -> None:
        self._store = store
        self._ask = ask
        self._listeners: set[Listener] = set()
        self.last = 0

    @property
    def listeners(self) -> int:
        """How many there are."""
        return len(self._listeners)

    def listen(self, principal: Principal, kinds: Kinds = ()) -> Listener:
        """Subscribe from now on; the listener's `since` is the id of the last event before."""
        listener = Listener(principal, kinds, self.last)
        self._listeners.add(listener)
        return listener

    def close(self) -> None:
        """End all subscriptions, because the server ends."""
        for listener in tuple(self._listeners):
            self.leave(listener)

    def leave(self, listener: Listener) -> None:
        """Unsubscribe."""
        listener.close()
        self._listeners.discard(listener)

    async def before(self, listener: Listener, id: int) -> tuple[Event, ...]:
        """Events after `id` from before the subscription, oldest first; at most a thousand."""
        found = await self._ask(lambda: self._store.events.since(id, _MOST_EVENTS))
        return tuple(event for event in found if event.id <= listener.since)

    async def run(self) -> None:
        """Poll and pass on, until cancelled."""
        self.last = await asyncio.to_thread(self._store.events.newest)
        beat = time.monotonic()
        while True:
            found = await self._poll()
            if found:
                await self._pass_on(Batch(found))
            # Also while others get events: a tenant must not learn from a missing heartbeat that they do.
            if time.monotonic() - beat >= HEARTBEAT:
                beat = time.monotonic()
                await self._pass_on(Batch(()))
            if len(found) < _MOST_EVENTS:
                await asyncio.sleep(POLL)

    async def _poll(self) -> tuple[Event, ...]:
        """New events, read in pieces, so that requests are answered in between."""
        found: list[Event] = []
        while len(found) < _MOST_EVENTS:
            last = found[-1].id if found else self.last
            try:
                piece = await self._ask(partial(self._store.events.since, last, _PIECE))
            except StorageError:
                break  # the next poll tries again
            found += piece
            if len(piece) < _PIECE:
                break
            await asyncio.sleep(0)
        if found:
            self.last = found[-1].id
        return tuple(found)

    async def _pass_on(self, batch: Batch) -> None:
        """Wake a few listeners at a time: while hundreds are written to at once, no request is answered."""
        for number, listener in enumerate(tuple(self._listeners), 1):
            listener.put(batch)
            if listener.lost:
                self._listeners.discard(listener)
            if number % _GROUP == 0:
                await asyncio.sleep(_BETWEEN_GROUPS)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run while the block does."""
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


class EventStream:
    """ASGI application of /v1/events/stream: events from now on, or from the last id the caller has seen."""

    def __init__(self, hub: Hub, gate: Gate, ask: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._hub = hub
        self._gate = gate
        self._ask = ask

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        principal = await self._ask(lambda: self._gate.admit(scope))
        principal.require("events")
        if self._hub.listeners >= _MOST_LISTENERS:
            raise HttpError(429, "too many listen already; try again later", (("retry-after", "60"),))
        query = query_of(StreamQuery, scope["query_string"])
        assert isinstance(query, StreamQuery)
        headers = dict(scope["headers"])
        since = _last_seen(headers.get(b"last-event-id"), query)
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await send({"type": "http.response.body", "body": b""})
            return
        listener = self._hub.listen(principal, tuple(sorted(set(query.kind))))
        gone = asyncio.create_task(_close_on_disconnect(receive, listener))
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await self._catch_up(listener, since, send)
            await self._follow(listener, since or 0, authorization, send)
        except TimeoutError:
            pass  # the listener takes nothing: the connection is given up
        finally:
            self._hub.leave(listener)
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _catch_up(self, listener: Listener, since: int | None, send: Any) -> None:
        """Send missed events, oldest first; then a comment, so that the caller knows that it listens."""
        while since is not None and since < listener.since:
            missed = await self._hub.before(listener, since)
            if not missed:
                break
            since = missed[-1].id
            await _send(send, Batch(missed).text(listener.principal, listener.kinds))
        await _send(send, b": listening\n\n")

    async def _follow(self, listener: Listener, since: int, authorization: str, send: Any) -> None:
        """Send what comes, until the caller has gone, is lost, or its token ends."""
        access = self._gate.access
        while (batch := await listener.heard()) is not None:
            if not await self._ask(lambda: _still_valid(access, listener.principal, authorization)):
                await _send(send, _REVOKED, more=False)
                return
            text = batch.text(listener.principal, listener.kinds, since)
            if text:
                await _send(send, text)
        await _send(send, _DROPPED if listener.lost else b"", more=False)


async def _send(send: Any, text: bytes, more: bool = True) -> None:
    async with asyncio.timeout(_SEND_TIMEOUT):
        await send({"type": "http.response.body", "body": text, "more_body": more})


async def _close_on_disconnect(receive: Any, listener: Listener) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    listener.close()


def _still_valid(access: Access, principal: Principal, authorization: str) -> bool:
    if principal is LOCAL:
        return access.open_here
    try:
        return access.caller(authorization, False).token == principal.token
    except TrimtabError:
        return False


def _last_seen(header: bytes | None, query: StreamQuery) -> int | None:
    if header is None:
        return query.since
    if not (header.isdigit() and len(header) < 19):
        raise HttpError(400, "Last-Event-ID is no id of an event; send the last you have seen")
    return int(header)
