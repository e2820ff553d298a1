"""Events, and the services and alerts that events describe."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.serve.access import Principal
from trimtab.serve.operations.operation import AUDIT, Area, EventAfter, Limit, ShortText, Text, operation
from trimtab.store import Event, EventFilter, Page, Role


def visible(principal: Principal, event: Event) -> bool:
    """Whether a principal may see an event: one of its tenants', and the audit log only as an admin."""
    if principal.tenants is not None and event.tenant not in principal.tenants:
        return False
    return event.kind != AUDIT or principal.role is Role.ADMIN


class EventOperations(Area, name="events"):
    """Events of the tenants that may be seen; the audit log is for admins."""

    __slots__ = ()

    @operation("GET", "/v1/events", stored=True)
    def page(
        self,
        limit: Limit = 50,
        after: EventAfter = None,
        kind: ShortText = None,
        subject: Text = None,
        tenant: ShortText = None,
    ) -> Page[Event]:
        """Events, newest first; the audit log among them for admins."""
        events = self.backend.store.events
        criteria = EventFilter(kind, subject, self.principal.visible_tenants(tenant))
        hidden = None if self.principal.role is Role.ADMIN else AUDIT
        if self.texts:
            return events.page_text(limit, criteria, after, hidden)  # type: ignore[return-value]
        page = events.page(limit, criteria, after)
        return Page(tuple(event for event in page.items if visible(self.principal, event)), page.next)


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
        criteria = EventFilter(kind, tenants=area.principal.tenants)
        page = area.backend.store.events.page(limit, criteria, after)
        events += page.items
        more = more or page.next is not None
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


class ServiceOperations(Area, name="services"):
    """Services that are scaled."""

    __slots__ = ()

    @operation("GET", "/v1/services")
    def page(self, limit: Limit = 50, after: EventAfter = None) -> Page[Happening]:
        """Services by their last event."""
        kinds = ("service.started", "service.scaled", "service.ended")
        return _newest_by_subject(self, kinds, limit, after)


class AlertOperations(Area, name="alerts"):
    """Alerts, raised or cleared."""

    __slots__ = ()

    @operation("GET", "/v1/alerts")
    def page(self, limit: Limit = 50, after: EventAfter = None) -> Page[Happening]:
        """Alerts by their last event."""
        return _newest_by_subject(self, ("alert.raised", "alert.cleared"), limit, after)
