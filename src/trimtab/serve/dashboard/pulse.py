"""Whether anything has happened since a page was drawn; one listener of the hub for all dashboards."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trimtab.core import Clock, RealClock
from trimtab.serve.access import LOCAL, Principal
from trimtab.serve.http.stream import Hub

T = TypeVar("T")
_MOST = 300


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
        while len(self._kept) > _MOST:
            del self._kept[next(iter(self._kept))]
        answer: T = await asyncio.shield(known[2])
        return answer


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
