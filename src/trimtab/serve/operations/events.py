"""Events: what happened, newest first, or as it happens."""

from trimtab.serve.operations.desk import AUDIT, Area
from trimtab.serve.principal import Principal
from trimtab.store import Event, Page, Role, WantedEvents

AREA = "events"


def visible(principal: Principal, event: Event) -> bool:
    """Whether somebody may see an event: one of their tenants', and who wrote what only as an admin."""
    if principal.tenants is not None and event.tenant not in principal.tenants:
        return False
    return event.kind != AUDIT or principal.role is Role.ADMIN


class Events(Area):
    """Events of the tenants that may be seen; the audit log is for admins."""

    __slots__ = ()

    def page(
        self, limit: int = 100, wanted: WantedEvents | None = None, after: str | None = None
    ) -> Page[Event]:
        """Newest first."""
        self.principal.require(AREA)
        found = self.desk.store.events.page(limit, self.allowed(wanted or WantedEvents()), after)
        if self.principal.role is Role.ADMIN:
            return found
        return Page(tuple(event for event in found.items if visible(self.principal, event)), found.next)

    def page_text(
        self, limit: int = 100, wanted: WantedEvents | None = None, after: str | None = None
    ) -> Page[str]:
        """The same as JSON."""
        self.principal.require(AREA)
        hidden = None if self.principal.role is Role.ADMIN else AUDIT
        return self.desk.store.events.page_text(limit, self.allowed(wanted or WantedEvents()), after, hidden)
