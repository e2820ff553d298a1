"""Events as they happen, for any number of listeners: one looks into the store for all of them."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from trimtab.core import StorageError
from trimtab.serve.encoding import encoded
from trimtab.serve.operations import visible
from trimtab.serve.principal import Principal
from trimtab.store import Event, Role, Store

LOOK = 0.25
"""Seconds between looks into the store, beside those that it takes to tell what was seen."""

HEARTBEAT = 15.0
"""Seconds between signs of life."""

_AT_ONCE = 1000
_PIECE = 40  # events
_AT_A_TIME = 20  # listeners
_BREATH = 0.010  # s
_MOST_WAITING = 64
_STILL_HERE = b": still here\n\n"

Kinds = tuple[str, ...]
Filter = tuple[tuple[str, ...] | None, bool, Kinds]


class Batch:
    """Events of one look, and their text for each kind of listener, made once for all alike."""

    __slots__ = ("_each", "_texts", "events")

    def __init__(self, events: tuple[Event, ...]) -> None:
        self.events = events
        self._texts: dict[Filter, bytes] = {}
        self._each: dict[int, bytes] = {}

    def text(self, principal: Principal, kinds: Kinds, after: int = 0) -> bytes:
        """What of it somebody may see and wants, as server-sent events; a heartbeat where it is empty.

        Events up to the id `after` have been seen already.
        """
        if not self.events:
            return _STILL_HERE
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
    """Whether an event is of a kind asked for: job.waiting by its name or by "job"; none given: all are."""
    return not kinds or event.kind in kinds or event.kind.partition(".")[0] in kinds


def event_text(event: Event) -> bytes:
    """An event as a server sends it."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, _name(event.kind), encoded(event))


def _name(kind: str) -> bytes:
    return "".join(c if c.isprintable() else "?" for c in kind).encode()


@dataclass(slots=True, eq=False)
class Listener:
    """Somebody who listens. What it does not take in time is not kept: it is `lost` then, and told so."""

    principal: Principal
    kinds: Kinds
    since: int
    lost: bool = False
    closed: bool = False
    _waiting: deque[Batch] = field(default_factory=deque)
    _heard: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, batch: Batch) -> None:
        """Have it hear something; it is lost where too much waits already."""
        if len(self._waiting) >= _MOST_WAITING:
            self.lost = True
        else:
            self._waiting.append(batch)
        self._heard.set()

    def close(self) -> None:
        """It listens no more."""
        self.closed = True
        self._heard.set()

    async def heard(self) -> Batch | None:
        """What came next; None at the end."""
        while True:
            if self.closed or self.lost:
                return None
            if self._waiting:
                return self._waiting.popleft()
            self._heard.clear()
            await self._heard.wait()


class Hub:
    """Follows the store's events. `ask` runs a question to the store where it may take its time."""

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
        """From now on; its `since` says after which event."""
        listener = Listener(principal, kinds, self.last)
        self._listeners.add(listener)
        return listener

    def close(self) -> None:
        """Nobody listens any more: the server ends."""
        for listener in tuple(self._listeners):
            self.leave(listener)

    def leave(self, listener: Listener) -> None:
        """It has gone."""
        listener.close()
        self._listeners.discard(listener)

    async def before(self, listener: Listener, id: int) -> tuple[Event, ...]:
        """Events after `id` that came before it began to listen, oldest first; at most a thousand."""
        found = await self._ask(lambda: self._store.events.since(id, _AT_ONCE))
        return tuple(event for event in found if event.id <= listener.since)

    async def run(self) -> None:
        """Look, and tell; until cancelled."""
        self.last = await asyncio.to_thread(self._store.events.newest)
        beat = time.monotonic()
        while True:
            found = await self._look()
            if found:
                await self._tell(Batch(found))
            # Also where others are told something: who is not must not learn from silence that they are.
            if time.monotonic() - beat >= HEARTBEAT:
                beat = time.monotonic()
                await self._tell(Batch(()))
            if len(found) < _AT_ONCE:
                await asyncio.sleep(LOOK)

    async def _look(self) -> tuple[Event, ...]:
        """What is new, read a piece at a time: others are answered in between."""
        found: list[Event] = []
        while len(found) < _AT_ONCE:
            last = found[-1].id if found else self.last
            try:
                piece = await self._ask(partial(self._store.events.since, last, _PIECE))
            except StorageError:
                break  # the store is away; it is asked again
            found += piece
            if len(piece) < _PIECE:
                break
            await asyncio.sleep(0)
        if found:
            self.last = found[-1].id
        return tuple(found)

    async def _tell(self, batch: Batch) -> None:
        """A few at a time: while hundreds are told at once, nobody else is answered."""
        for number, listener in enumerate(tuple(self._listeners), 1):
            listener.put(batch)
            if listener.lost:
                self._listeners.discard(listener)
            if number % _AT_A_TIME == 0:
                await asyncio.sleep(_BREATH)


@contextlib.asynccontextmanager
async def running(hub: Hub) -> AsyncIterator[None]:
    """The hub at work."""
    task = asyncio.create_task(hub.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
