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

from trimtab.core import StorageError
from trimtab.serve.access import LOCAL, Access, Principal, UnknownCallerError
from trimtab.serve.http.endpoint import query_of
from trimtab.serve.http.middleware import Gate
from trimtab.serve.operations import encoded, visible
from trimtab.serve.operations.operation import QueryModel
from trimtab.serve.problems import HttpError
from trimtab.store import Event, EventFilter, Role, Store

POLL = 0.25
"""Seconds between polls of the store, besides the time that passing events on takes."""

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
_REVOKED = b'event: dropped\ndata: "the token has expired or was revoked"\n\n'
_HEADERS = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"))

Kinds = tuple[str, ...]
Filter = tuple[tuple[str, ...] | None, bool, Kinds]


class StreamQuery(QueryModel):
    """Kinds of events by name or by the part before the dot, and the id after which to begin."""

    kind: Annotated[tuple[str, ...], Field(max_length=20)] = ()
    since: Annotated[int | None, Field(ge=0, le=2**63 - 1)] = None


class Batch:
    """All events after the id `after` up to `last`, and their text for each filter, encoded once for all."""

    __slots__ = ("_each", "_texts", "after", "events", "last")

    def __init__(self, after: int, events: tuple[Event, ...]) -> None:
        self.after = after
        self.events = events
        self.last = events[-1].id if events else after
        self._texts: dict[Filter, bytes] = {}
        self._each: dict[int, bytes] = {}

    def text(self, principal: Principal, kinds: Kinds, after: int = 0) -> bytes:
        """Server-sent events of some kinds that a principal may see; a heartbeat if the batch is empty.

        Events up to the id `after` are left out.
        """
        if not self.events:
            return _HEARTBEAT
        if self.events[0].id <= after:
            new = tuple(event for event in self.events if event.id > after)
            return Batch(after, new).text(principal, kinds) if new else b""
        key = (principal.tenants, principal.role is Role.ADMIN, kinds)
        if key not in self._texts:
            shown = (event for event in self.events if is_of(event, kinds) and visible(principal, event))
            self._texts[key] = b"".join(map(self._text, shown))
        return self._texts[key]

    def _text(self, event: Event) -> bytes:
        text = self._each.get(event.id)
        if text is None:
            kind = "".join(c if c.isprintable() else "?" for c in event.kind).encode()
            text = b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, kind, encoded(event))
            self._each[event.id] = text
        return text


def is_of(event: Event, kinds: Kinds) -> bool:
    """Whether an event is of one of the kinds: job.waiting is also "job"; without kinds, every event is."""
    return not kinds or event.kind in kinds or event.kind.partition(".")[0] in kinds


@dataclass(slots=True, eq=False)
class Listener:
    """A subscriber of the hub. Its queue is bounded: one that does not keep up misses the oldest batch.

    A batch says after which id it begins, so that the subscriber sees the gap and can read it from the store.
    """

    principal: Principal
    kinds: Kinds
    closed: bool = False
    _waiting: deque[Batch] = field(default_factory=lambda: deque(maxlen=_MOST_WAITING))
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, batch: Batch) -> None:
        self._waiting.append(batch)
        self._wake.set()

    def close(self) -> None:
        self.closed = True
        self._wake.set()

    async def next(self) -> Batch | None:
        """The next batch; None at the end."""
        while True:
            if self.closed:
                return None
            if self._waiting:
                return self._waiting.popleft()
            self._wake.clear()
            await self._wake.wait()


class Hub:
    """Polls the store's events for all listeners; `ask` runs a query of the store.

    Ids grow in the order of commits, so that no event can appear before one that was read already. Listeners
    do not rely on the hub's place in the log: each compares its own with the begin of every batch.
    """

    def __init__(self, store: Store, ask: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._store = store
        self._ask = ask
        self._listeners: set[Listener] = set()
        self.closed = False

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def listen(self, principal: Principal, kinds: Kinds = ()) -> Listener:
        """Subscribe to all batches from now on."""
        listener = Listener(principal, kinds, self.closed)
        self._listeners.add(listener)
        return listener

    def close(self) -> None:
        """End all streams, and those that begin later."""
        self.closed = True
        self._close_all()

    def _close_all(self) -> None:
        for listener in tuple(self._listeners):
            self.leave(listener)

    def leave(self, listener: Listener) -> None:
        listener.close()
        self._listeners.discard(listener)

    async def newest(self, principal: Principal = LOCAL) -> int:
        """Id of the last event of the principal's tenants, 0 if there is none."""
        criteria = EventFilter(tenants=principal.tenants)
        page = await self._ask(lambda: self._store.events.page(1, criteria))
        return page.items[0].id if page.items else 0

    async def between(self, after: int, last: int) -> Batch:
        """The oldest events of those after one id and up to another; at most a thousand."""
        events = await self._ask(lambda: self._store.events.since(after, _MOST_EVENTS))
        return Batch(after, tuple(event for event in events if event.id <= last))

    async def run(self) -> None:
        """Poll and pass on, until cancelled."""
        last: int | None = None
        beat = time.monotonic()
        while True:
            events: tuple[Event, ...] = ()
            try:
                last = await self.newest() if last is None else last
                events = await self._poll(last)
                if events:
                    await self._pass_on(Batch(last, events))
                    last = events[-1].id
                # Also while others get events: a missing heartbeat must not tell a tenant so.
                if time.monotonic() - beat >= HEARTBEAT:
                    beat = time.monotonic()
                    if await self.newest() < last:
                        # A backup was restored under this server. Those who connect again are told.
                        last = None
                        self._close_all()
                    else:
                        await self._pass_on(Batch(last, ()))
            except StorageError:
                pass  # the next poll tries again
            if len(events) < _MOST_EVENTS:
                await asyncio.sleep(POLL)

    async def _poll(self, last: int) -> tuple[Event, ...]:
        """Events after the id `last`, read in pieces, so that requests are answered in between."""
        events: list[Event] = []
        while len(events) < _MOST_EVENTS:
            after = events[-1].id if events else last
            piece = await self._ask(partial(self._store.events.since, after, _PIECE))
            events += piece
            if len(piece) < _PIECE:
                break
            await asyncio.sleep(0)
        return tuple(events)

    async def _pass_on(self, batch: Batch) -> None:
        """Wake a few listeners at a time, so that requests are answered in between."""
        for number, listener in enumerate(tuple(self._listeners), 1):
            listener.put(batch)
            if number % _GROUP == 0:
                await asyncio.sleep(_BETWEEN_GROUPS)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


class EventStream:
    """ASGI application of /v1/events/stream: events from now on, or after the last id the caller received."""

    def __init__(self, hub: Hub, gate: Gate, ask: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._hub = hub
        self._gate = gate
        self._ask = ask

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        principal = await self._ask(lambda: self._gate.admit(scope))
        principal.require("events")
        if self._hub.listeners >= _MOST_LISTENERS:
            raise HttpError(
                429, f"{_MOST_LISTENERS} streams are open already; try again later", (("retry-after", "60"),)
            )
        query = query_of(StreamQuery, scope["query_string"])
        assert isinstance(query, StreamQuery)
        headers = dict(scope["headers"])
        since, last = query.since, headers.get(b"last-event-id")
        if last is not None:
            if not (last.isdigit() and len(last) < 19):
                raise HttpError(400, "Last-Event-ID is not an id of an event; send the last one received")
            since = int(last)
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await send({"type": "http.response.body", "body": b""})
            return
        listener = self._hub.listen(principal, tuple(sorted(set(query.kind))))
        disconnect = asyncio.create_task(_close_on_disconnect(listener, receive))
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        try:
            # Read after subscribing: whatever is written later comes by the hub.
            newest = await self._hub.newest()
            place = newest if since is None else since
            if place > newest:
                raise HttpError(
                    410,
                    f"there is no event {place} yet: the store was restored from a backup, or is another "
                    f"one; read its state anew, then connect without an id",
                )
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            try:
                await self._catch_up(listener, place, newest, send)
                await _send(send, b": listening\n\n")
                if since is None:
                    # A caller that has received no event yet can connect again after this id.
                    own = await self._hub.newest(principal)
                    await _send(send, b"id: %d\n\n" % min(own, newest))
                await self._follow(listener, newest, authorization, send)
            except StorageError:
                pass  # the caller connects again, and is told then
            await _send(send, b"", more=False)
        except TimeoutError:
            pass  # the listener takes nothing: the connection is given up
        finally:
            self._hub.leave(listener)
            disconnect.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await disconnect

    async def _catch_up(self, listener: Listener, place: int, last: int, send: Any) -> None:
        """Send the events after the id `place` up to `last` from the store, oldest first."""
        while place < last and not listener.closed:
            batch = await self._hub.between(place, last)
            if not batch.events:
                return
            place = batch.last
            if text := batch.text(listener.principal, listener.kinds):
                await _send(send, text)

    async def _follow(self, listener: Listener, place: int, authorization: str, send: Any) -> None:
        """Send what comes after the id `place`, until the caller disconnects or its token ends."""
        access = self._gate.access
        while (batch := await listener.next()) is not None:
            if not await self._ask(lambda: _still_valid(access, listener.principal, authorization)):
                await _send(send, _REVOKED)
                return
            await self._catch_up(listener, place, batch.after, send)
            if text := batch.text(listener.principal, listener.kinds, max(place, batch.after)):
                await _send(send, text)
            place = max(place, batch.last)


async def _close_on_disconnect(listener: Listener, receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    listener.close()


async def _send(send: Any, text: bytes, more: bool = True) -> None:
    async with asyncio.timeout(_SEND_TIMEOUT):
        await send({"type": "http.response.body", "body": text, "more_body": more})


def _still_valid(access: Access, principal: Principal, authorization: str) -> bool:
    if principal is LOCAL:
        return access.open_here
    try:
        return access.caller(authorization, False).token == principal.token
    except UnknownCallerError:
        return False
