"""What every operation needs at hand, and how what it writes is kept with who wrote it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from trimtab.core import Clock, Engine, RealClock
from trimtab.serve.operations.noting import Noting
from trimtab.serve.principal import Principal
from trimtab.store import Store, WantedDecisions, WantedEvents, WantedJobs, WantedProfiles

if TYPE_CHECKING:
    from trimtab.schedule import SchedulerStatus

_TRUSTED = 1.0  # s

AUDIT = "audit"
"""The kind of the events that say who wrote what."""

T = TypeVar("T")
Wanted = TypeVar("Wanted", WantedDecisions, WantedEvents, WantedJobs, WantedProfiles)


@dataclass(frozen=True, slots=True)
class Desk:
    """The store, the time, engines by their addresses, each opened once, and who notes outcomes for models.

    Without one, whoever records an outcome notes it, and waits for what it shows.
    """

    store: Store
    clock: Clock = field(default_factory=RealClock)
    engines: dict[str, Engine] = field(default_factory=dict)
    noting: Noting | None = field(default_factory=Noting)
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _scheduler: list[tuple[float, "SchedulerStatus"]] = field(default_factory=list)

    def scheduler(self) -> "SchedulerStatus":
        """What the scheduler last said about itself, a second ago at most."""
        from trimtab.schedule import running_scheduler

        now = self.clock.monotonic()
        seen = self._scheduler[-1:]
        if not seen or now - seen[0][0] > _TRUSTED:
            seen = [(now, running_scheduler(self.store, self.clock))]
            self._scheduler[:] = seen
        return seen[0][1]

    def engine(self, url: str) -> Engine:
        """The engine at an address."""
        from trimtab.engines import engine

        with self._opening:
            if url not in self.engines:
                self.engines[url] = engine(url)
            return self.engines[url]


@dataclass(frozen=True, slots=True)
class Area:
    """Operations about one kind of thing, for one who asks. What they may not do raises ForbiddenError."""

    desk: Desk
    principal: Principal

    def allowed(self, wanted: Wanted) -> Wanted:
        """What is asked for, of tenants that may be seen."""
        if wanted.tenants is None:
            return (
                wanted if self.principal.tenants is None else replace(wanted, tenants=self.principal.tenants)
            )
        return replace(
            wanted, tenants=tuple(n for each in wanted.tenants for n in self.principal.seen(each) or ())
        )

    def written(
        self, action: str, tenant: str, effect: Callable[[], T], about: Callable[[T], tuple[str, Any]]
    ) -> T:
        """What `effect` returns, kept together with an event that says who did it.

        `about` tells from it the subject and, for the event's detail, what was written.
        """
        store, who = self.desk.store, self.principal

        def both() -> T:
            result = effect()
            subject, what = about(result)
            detail = {"who": who.id, "name": who.token.name, "role": who.role.value, "did": action}
            store.events.append(AUDIT, subject, {**detail, "what": what}, self.desk.clock.now(), tenant)
            return result

        return store.write(both)
