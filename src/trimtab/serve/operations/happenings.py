"""Things that events speak of: services and alerts. Where nothing has told of any, there are none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.serve.operations.desk import Area
from trimtab.store import Event, Page, WantedEvents


@dataclass(frozen=True, slots=True)
class Happening:
    """The last that was heard of a service or an alert: what (the kind after its dot), when, and details."""

    subject: str
    tenant: str
    state: str
    time: float
    detail: dict[str, Any]


class Told(Area):
    """Things of one kind, by the events about them."""

    __slots__ = ()

    def _page(self, area: str, kinds: Sequence[str], limit: int, after: str | None) -> Page[Happening]:
        """The newest event of each subject, newest first, among the `limit` newest events of all kinds."""
        self.principal.require(area)
        events: list[Event] = []
        more = False
        for kind in kinds:
            found = self.desk.store.events.page(limit, self.allowed(WantedEvents(kind)), after)
            events += found.items
            more = more or found.next is not None
        newest = sorted(events, key=lambda event: -event.id)[:limit]
        last: dict[tuple[str, str], Event] = {}
        for event in newest:
            last.setdefault((event.tenant, event.subject), event)
        more = more or len(events) > limit
        following = str(newest[-1].id) if more and newest else None
        return Page(tuple(_happening(event) for event in last.values()), following)


class Services(Told):
    """Services that are scaled."""

    __slots__ = ()
    KINDS = ("service.started", "service.scaled", "service.ended")

    def page(self, limit: int = 50, after: str | None = None) -> Page[Happening]:
        """Where each stands."""
        return self._page("services", self.KINDS, limit, after)


class Alerts(Told):
    """What somebody should look at."""

    __slots__ = ()
    KINDS = ("alert.raised", "alert.cleared")

    def page(self, limit: int = 50, after: str | None = None) -> Page[Happening]:
        """Where each stands."""
        return self._page("alerts", self.KINDS, limit, after)


def _happening(event: Event) -> Happening:
    state = event.kind.partition(".")[2]
    return Happening(event.subject, event.tenant, state, event.time, dict(event.detail))
