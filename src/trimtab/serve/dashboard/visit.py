"""One open page: the operations its viewer may call, and answers and logs that all viewers share."""

import asyncio
import codecs
import threading
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from starlette.requests import Request

from trimtab.core import Clock, RealClock
from trimtab.serve.access import LOCAL, Principal
from trimtab.serve.dashboard.sessions import AT_THE_MACHINE, Sessions
from trimtab.serve.http.stream import Hub
from trimtab.serve.operations import LARGEST_PIECE, Backend, LogPiece, Service

T = TypeVar("T")
_MOST_ANSWERS = 300


@dataclass(slots=True)
class Pulse:
    """The last event of each tenant and area ("job" of job.waiting), and how often events were lost."""

    _last: dict[tuple[str, str], int] = field(default_factory=dict)
    _lost: int = 0

    async def follow(self, hub: Hub) -> None:
        """Listen until cancelled."""
        while True:
            listener = hub.listen(LOCAL)
            try:
                while (batch := await listener.heard()) is not None:
                    for event in batch.events:
                        self._last[(event.tenant, event.kind.partition(".")[0])] = event.id
            finally:
                hub.leave(listener)
            self._lost += 1  # too much came at once; whatever is shown may be old

    def stamp(self, principal: Principal, areas: tuple[str, ...]) -> int:
        """A number that changes when something happens in these areas that somebody may see."""
        tenants = principal.tenants
        seen = (
            last
            for (tenant, area), last in self._last.items()
            if area in areas and (tenants is None or tenant in tenants)
        )
        return max(seen, default=0) + self._lost


@dataclass(slots=True)
class Remembered:
    """Answers for who asks the same with the same rights, until something happens or they are too old.

    However many ask at once, the question is put once.
    """

    clock: Clock = field(default_factory=RealClock)
    _kept: dict[Any, tuple[int, float, asyncio.Task[Any]]] = field(default_factory=dict)

    async def get(self, key: Any, stamp: int, age: float, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer kept under `key` of that stamp and at most `age` seconds old, else a new one."""
        now = self.clock.monotonic()
        known = self._kept.pop(key, None)
        if known is None or known[0] != stamp or now - known[1] >= age or _failed(known[2]):
            known = (stamp, now, asyncio.create_task(ask()))
        self._kept[key] = known  # as the newest, so that what nobody asks for goes first
        while len(self._kept) > _MOST_ANSWERS:
            del self._kept[next(iter(self._kept))]
        answer: T = await asyncio.shield(known[2])
        return answer


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


KEPT = 64 << 10
"""Characters of a log that are shown; the beginning of a longer one goes."""

_PIECES = 256  # that are read at once, before others have their turn
_MOST_LOGS = 200


class Logs(Protocol):
    """Who has logs, by jobs' ids."""

    def log(self, id: str, offset: int = 0) -> LogPiece: ...


class Tail:
    """The end of a log that grows; when another run begins, its log does from the start."""

    def __init__(self) -> None:
        self.text, self._run, self._place = "", "", 0
        self._decoder = _decoder()
        self._lock = threading.Lock()

    def read(self, logs: Logs, id: str) -> tuple[str, bool]:
        """Go on to where the log ends now, or as far as is right at once; its end, and whether it is over."""
        with self._lock:
            for _ in range(_PIECES):
                piece = logs.log(id, self._place)
                if piece.run != self._run:
                    asked, self.text, self._run, self._place = self._place, "", piece.run, 0
                    self._decoder = _decoder()
                    if asked:
                        continue
                self._place = piece.next
                self.text = (self.text + self._decoder.decode(piece.data))[-KEPT:]
                if piece.over or len(piece.data) < LARGEST_PIECE:
                    return self.text, piece.over
            return self.text, False


@dataclass(slots=True)
class Tails:
    """Of the jobs that were looked at last. Who may not see a log is told so by who has it, every time."""

    _kept: dict[str, Tail] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, logs: Logs, id: str) -> tuple[str, bool]:
        """The end of a job's log now, and whether no more comes."""
        with self._lock:
            tail = self._kept[id] = self._kept.pop(id) if id in self._kept else Tail()
            while len(self._kept) > _MOST_LOGS:
                del self._kept[next(iter(self._kept))]
        return tail.read(logs, id)


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


KEY = "trimtab.visit"
"""Under which a request's scope has its visit."""

FRESH = 5.0
"""Seconds after which an answer is asked for again, also when no event has told of a change."""


@dataclass(frozen=True, slots=True)
class Visit:
    """Somebody at a page. Every question finds out anew who asks, so that it ends with their token."""

    backend: Backend
    sessions: Sessions
    pulse: Pulse
    remembered: Remembered
    tails: Tails
    session: str

    @property
    def principal(self) -> Principal:
        """Who looks; raises once they are signed out."""
        return self.sessions.holder(self.session)

    @property
    def service(self) -> Service:
        """What they may ask for."""
        return Service(self.backend, self.principal)

    @property
    def signed_in(self) -> bool:
        """Whether they came with a token, and can sign out."""
        return self.session != AT_THE_MACHINE

    async def do(self, operation: Callable[[Service], T]) -> T:
        """An operation, beside the loop that serves everybody."""
        return await asyncio.to_thread(operation, self.service)

    async def ask(
        self,
        name: Hashable,
        question: Callable[[Service], T],
        areas: tuple[str, ...] = (),
        age: float = FRESH,
    ) -> T:
        """The answer to a question under a name, shared with all who may see the same."""
        who = self.principal
        key = (name, who.tenants, who.role, who.token.scopes)
        return await self.remembered.get(
            key, self.pulse.stamp(who, areas), age, lambda: asyncio.to_thread(question, self.service)
        )


def visit_of(request: Request) -> Visit:
    """The visit that a request begins."""
    found: Visit = request.scope[KEY]
    return found


def same_session(scope: Any, session: str) -> bool:
    """Whether a page's own request belongs to who opened it."""
    found: Visit | None = scope.get(KEY)
    return found is not None and found.session == session
