"""One open page: the operations that its viewer may call, and results and logs that viewers share."""

import asyncio
import codecs
import threading
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from trimtab.core import Clock, RealClock
from trimtab.serve.access import LOCAL, Principal
from trimtab.serve.dashboard.sessions import AT_THE_MACHINE, SignInSessions
from trimtab.serve.http.stream import Hub
from trimtab.serve.operations import LARGEST_PIECE, Backend, LogPiece, Service

T = TypeVar("T")
_MOST_RESULTS = 300


@dataclass(slots=True)
class Pulse:
    """The last event of each tenant and area ("job" of job.waiting), and how often some were missed."""

    _last: dict[tuple[str, str], int] = field(default_factory=dict)
    _lost: int = 0

    async def follow(self, hub: Hub) -> None:
        """Listen until cancelled, or until the hub is closed."""
        place: int | None = None
        while not hub.closed:
            listener = hub.listen(LOCAL)
            try:
                while (batch := await listener.next()) is not None:
                    if place is not None and place < batch.after:
                        self._lost += 1
                    place = batch.last
                    for event in batch.events:
                        self._last[(event.tenant, event.kind.partition(".")[0])] = event.id
            finally:
                hub.leave(listener)
            self._lost += 1

    def stamp(self, principal: Principal, areas: tuple[str, ...]) -> int:
        """A number that changes with every event in these areas that the principal may see."""
        tenants = principal.tenants
        seen = (
            last
            for (tenant, area), last in self._last.items()
            if area in areas and (tenants is None or tenant in tenants)
        )
        return max(seen, default=0) + self._lost


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


@dataclass(slots=True)
class ResultCache:
    """Results shared by viewers with equal rights, until an event or their age invalidates them.

    However many viewers ask at once, the query runs once.
    """

    clock: Clock = field(default_factory=RealClock)
    _kept: dict[Any, tuple[int, float, asyncio.Task[Any]]] = field(default_factory=dict)

    async def get(self, key: Any, stamp: int, age: float, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result kept under `key` with that stamp and at most `age` seconds old, else a new one."""
        now = self.clock.monotonic()
        known = self._kept.pop(key, None)
        if known is None or known[0] != stamp or now - known[1] >= age or _has_failed(known[2]):
            known = (stamp, now, asyncio.create_task(ask()))
        self._kept[key] = known  # as the newest: the least recently used are dropped first
        while len(self._kept) > _MOST_RESULTS:
            del self._kept[next(iter(self._kept))]
        answer: T = await asyncio.shield(known[2])
        return answer


KEPT = 64 << 10
"""Characters of a log that are shown, from its end."""

_PIECES = 256  # that are read at once, before others have their turn
_MOST_LOGS = 200


class Logs(Protocol):
    """A source of logs by jobs' ids, such as the operations on jobs."""

    def log(self, id: str, offset: int = 0) -> LogPiece: ...


class Tail:
    """The end of a growing log; the log of a new run begins anew."""

    def __init__(self) -> None:
        self.text, self._run, self._place = "", "", 0
        self._decoder = _decoder()
        self._lock = threading.Lock()

    def read(self, logs: Logs, id: str) -> tuple[str, bool]:
        """Read on, at most some pieces; returns the log's last text, and whether the log has ended."""
        with self._lock:
            for _ in range(_PIECES):
                piece = logs.log(id, self._place)
                if piece.run != self._run:
                    before, self.text, self._run, self._place = self._place, "", piece.run, 0
                    self._decoder = _decoder()
                    if before:
                        continue
                self._place = piece.next
                self.text = (self.text + self._decoder.decode(piece.data))[-KEPT:]
                if piece.over or len(piece.data) < LARGEST_PIECE:
                    return self.text, piece.over
            return self.text, False


@dataclass(slots=True)
class Tails:
    """Tails of the logs that were read last. Every read asks the source, which checks the permission."""

    _kept: dict[str, Tail] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, logs: Logs, id: str) -> tuple[str, bool]:
        """The end of a job's log now, and whether the log has ended."""
        with self._lock:
            tail = self._kept[id] = self._kept.pop(id) if id in self._kept else Tail()
            while len(self._kept) > _MOST_LOGS:
                del self._kept[next(iter(self._kept))]
        return tail.read(logs, id)


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


KEY = "trimtab.visit"
"""Key of the visit in a request's scope."""

FRESH = 5.0
"""Seconds after which a result is computed again, also without an event."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A viewer's visit of a page. Every query checks the session again, so that it ends with its token."""

    backend: Backend
    sessions: SignInSessions
    pulse: Pulse
    results: ResultCache
    tails: Tails
    session: str

    @property
    def principal(self) -> Principal:
        """The viewer; raises once the session has ended."""
        return self.sessions.holder(self.session)

    @property
    def service(self) -> Service:
        return Service(self.backend, self.principal)

    @property
    def signed_in(self) -> bool:
        """Whether the viewer has a token, and can sign out."""
        return self.session != AT_THE_MACHINE

    async def do(self, operation: Callable[[Service], T]) -> T:
        """Result of an operation, run in a thread."""
        return await asyncio.to_thread(operation, self.service)

    async def ask(
        self,
        name: Hashable,
        query: Callable[[Service], T],
        areas: tuple[str, ...] = (),
        age: float = FRESH,
    ) -> T:
        """Result of a query under a name, shared with all viewers of equal rights."""
        principal = self.principal
        key = (name, principal.tenants, principal.role, principal.token.scopes)
        stamp = self.pulse.stamp(principal, areas)
        return await self.results.get(key, stamp, age, lambda: asyncio.to_thread(query, self.service))
