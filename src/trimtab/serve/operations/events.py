"""Events, and the services and alerts that events tell of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.serve.access import Principal
from trimtab.serve.operations.operation import AUDIT, After, Area, Limit, ShortText, Text, operation
from trimtab.store import Event, Page, Role, WantedEvents


def visible(principal: Principal, event: Event) -> bool:
    """Whether a principal may see an event: one of its tenants', and the audit log only as an admin."""
    if principal.tenants is not None and event.tenant not in principal.tenants:
        return False
    return event.kind != AUDIT or principal.role is Role.ADMIN


class Events(Area, name="events"):
    """Events of the tenants that may be seen; the audit log is for admins."""

    __slots__ = ()

    @operation("GET", "/v1/events", stored=True)
    def page(
        self,
        limit: Limit = 50,
        after: After = None,
        kind: ShortText = None,
        subject: Text = None,
        tenant: ShortText = None,
    ) -> Page[Event]:
        """Events, newest first; the audit log among them for admins."""
        events = self.backend.store.events
        wanted = WantedEvents(kind, subject, self.principal.visible_tenants(tenant))
        hidden = None if self.principal.role is Role.ADMIN else AUDIT
        if self.texts:
            return events.page_text(limit, wanted, after, hidden)  # type: ignore[return-value]
        found = events.page(limit, wanted, after)
        return Page(tuple(event for event in found.items if visible(self.principal, event)), found.next)


@dataclass(frozen=True, slots=True)
class Happening:
    """Last event of a service or an alert: its state (the kind after the dot), time, and details."""

    subject: str
    tenant: str
    state: str
    time: float
    detail: dict[str, Any]


def _newest_by_subject(area: Area, kinds: Sequence[str], limit: int, after: str | None) -> Page[Happening]:
    """The newest event of each subject, newest first, among the `limit` newest events of all kinds."""
    events: list[Event] = []
    more = False
    for kind in kinds:
        wanted = WantedEvents(kind, tenants=area.principal.tenants)
        found = area.backend.store.events.page(limit, wanted, after)
        events += found.items
        more = more or found.next is not None
    newest = sorted(events, key=lambda event: -event.id)[:limit]
    last: dict[tuple[str, str], Event] = {}
    for event in newest:
        last.setdefault((event.tenant, event.subject), event)
    more = more or len(events) > limit
    shown = tuple(
        Happening(e.subject, e.tenant, e.kind.partition(".")[2], e.time, dict(e.detail))
        for e in last.values()
    )
    return Page(shown, str(newest[-1].id) if more and newest else None)


class Services(Area, name="services"):
    """Services that are scaled."""

    __slots__ = ()

    @operation("GET", "/v1/services")
    def page(self, limit: Limit = 50, after: After = None) -> Page[Happening]:
        """Services, as events tell of them."""
        kinds = ("service.started", "service.scaled", "service.ended")
        return _newest_by_subject(self, kinds, limit, after)


class Alerts(Area, name="alerts"):
    """Alerts that somebody should look at."""

    __slots__ = ()

    @operation("GET", "/v1/alerts")
    def page(self, limit: Limit = 50, after: After = None) -> Page[Happening]:
        """Alerts, as events tell of them."""
        return _newest_by_subject(self, ("alert.raised", "alert.cleared"), limit, after)
