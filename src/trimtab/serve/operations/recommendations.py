"""Recommendations: which configuration to rent for a profiled workload, kept as decisions."""

import threading
from dataclasses import dataclass
from typing import Any

from trimtab.core import Decision, Profile
from trimtab.serve.operations.desk import Area
from trimtab.store import Page, Role, WantedDecisions

AREA = "recommendations"
KIND = "recommend"

# A search uses all of a core for a moment; two at once would only make both late, and everybody else.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for: a profile by its id ("" for the newest), how long the job is, and the request."""

    profile: str = ""
    request: Any = None
    epochs: float | None = None
    steps: int | None = None
    samples: float | None = None


class Recommendations(Area):
    """Recommendations of the tenants that may be seen."""

    __slots__ = ()

    def page_text(self, limit: int = 20, subject: str | None = None, after: str | None = None) -> Page[str]:
        """Those that were made, as JSON of their decisions; newest first."""
        self.principal.require(AREA)
        wanted = self.allowed(WantedDecisions(KIND, subject))
        return self.desk.store.ledger.page_text(limit, wanted, after)

    def make(self, wish: Wish, tenant: str | None = None) -> tuple[dict[str, Any], Decision]:
        """Rank configurations and keep the first as a decision; the whole table as plain data, and that."""
        found = self.search(wish)
        return found[0], self.keep(found[1], tenant)

    def search(self, wish: Wish) -> tuple[dict[str, Any], Decision]:
        """The table and its decision, which is not kept yet."""
        from trimtab.catalog import load_offers
        from trimtab.recommend import Request, decision, earlier_runs, plain_recommendation, recommend, work

        self.principal.require(AREA, "write", Role.USER)
        profile = self._profile(wish.profile)
        request = wish.request or Request()
        amount = work(profile, wish.epochs, wish.steps, wish.samples)
        earlier = earlier_runs(self.desk.store, profile, self.principal.tenants)
        with _one_at_a_time:
            result = recommend(profile, load_offers(), request, amount, earlier)
        made = decision(result, self.desk.clock)
        return plain_recommendation(result, made.id, request.top), made

    def keep(self, made: Decision, tenant: str | None = None) -> Decision:
        """Write the decision down."""
        self.principal.require(AREA, "write", Role.USER)
        owner = self.principal.tenant_for(tenant)

        def effect() -> Decision:
            self.desk.store.ledger.record(made, owner)
            return made

        return self.written("recommendations.make", owner, effect, lambda d: (d.id, {"subject": d.subject}))

    def _profile(self, id: str) -> Profile:
        profiles, tenants = self.desk.store.profiles, self.principal.tenants
        return profiles.get(id, tenants) if id else profiles.latest(tenants)
