"""Recommendations and plans: which configuration to rent, and how to split a model over devices."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from trimtab.core import BadInputError, Decision, Profile
from trimtab.serve.operations.decisions import OwnedDecision
from trimtab.serve.operations.operation import After, Area, BodyModel, Limit, Text, operation
from trimtab.store import Page, Role, WantedDecisions

if TYPE_CHECKING:
    from trimtab.partition import Devices, Graph, Recipe, SearchSettings, Solution
    from trimtab.recommend import Recommendation, Request

KIND = "recommend"

# A search uses all of a core for a moment; two at once would only make both late, and every other request.
_one_search = threading.Lock()

Names = Annotated[Sequence[str], Field(max_length=100)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def rank_configurations(
    profile: Profile,
    request: "Request",
    epochs: float | None = None,
    steps: int | None = None,
    samples: float | None = None,
    earlier: Sequence[Any] = (),
) -> "Recommendation":
    """Configurations of the catalog for a profiled workload, ranked by the request's objective.

    The job's length is given by at most one of epochs, steps and samples. `earlier` are measured runs of it,
    as `trimtab.recommend.earlier_runs` finds them.
    """
    from trimtab.catalog import load_offers
    from trimtab.recommend import recommend, work

    amount = work(profile, epochs, steps, samples)
    with _one_search:
        return recommend(profile, load_offers(), request, amount, tuple(earlier))


def plan_partition(
    graph: "Graph",
    devices: "Devices",
    recipe: "Recipe",
    settings: "SearchSettings",
    method: str = "",
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> "Solution":
    """Best plan to split a model over devices; BadInputError says what would help where none fits.

    `method` is one of `trimtab.partition.METHODS`, the first by default.
    """
    from trimtab.partition import METHODS, plan_by, why_not

    chosen = method or METHODS[0]
    with _one_search:
        found = plan_by(chosen, graph, devices, recipe, settings, progress)
        if found.forecast.fits:
            return found
        progress("finding out what would make it fit", 0, 0)
        raise BadInputError(why_not(found, settings, partial(plan_by, chosen, graph)))


class Ranked(BodyModel):
    """Configurations, best first, each with its estimates and reasons; `decision` is the ledger's entry."""

    decision: str
    workload: str
    objective: str
    samples: float
    considered: int
    rows: list[dict[str, Any]]
    dropped: list[dict[str, Any]]
    notes: list[str]


class Recommendations(Area, name="recommendations"):
    """Recommendations of the tenants that may be seen, which are decisions of the ledger."""

    __slots__ = ()

    @operation("GET", "/v1/recommendations", stored=True, answer=Page[OwnedDecision])
    def page(self, limit: Limit = 50, after: After = None, subject: Text = None) -> Page[Decision]:
        """Recommendations as the ledger keeps them, newest first."""
        ledger, wanted = (
            self.backend.store.ledger,
            WantedDecisions(KIND, subject, tenants=self.principal.tenants),
        )
        return self.stored(ledger.page, ledger.page_text)(limit, wanted, after)

    @operation("POST", "/v1/recommendations", least=Role.USER, slow=True, prepare="search", answer=Ranked)
    def make(
        self,
        profile: Annotated[str, Field(max_length=200)] = "",
        tenant: str | None = None,
        objective: str = "balanced",
        deadline: Amount | None = None,
        budget: Amount | None = None,
        clouds: Names = (),
        regions: Names = (),
        accelerators: Names = (),
        spot: bool = False,
        max_nodes: Annotated[int, Field(ge=1, le=10_000)] | None = None,
        max_devices: Annotated[int, Field(ge=1, le=100_000)] | None = None,
        batch_sizes: Annotated[Sequence[Annotated[int, Field(ge=1, le=2**31)]], Field(max_length=20)] = (),
        precision: str | None = None,
        top: Annotated[int, Field(ge=1, le=200)] = 10,
        epochs: Amount | None = None,
        steps: Annotated[int, Field(ge=1, le=2**53)] | None = None,
        samples: Amount | None = None,
        *,
        prepared: tuple[dict[str, Any], Decision] | None = None,
    ) -> dict[str, Any]:
        """Rank what clouds sell for a profiled workload, and keep the first as a decision.

        Without the id of a profile, for the newest one. Deadline in seconds, budget in dollars.
        """
        table, made = prepared or self.search(
            profile=profile,
            objective=objective,
            deadline=deadline,
            budget=budget,
            clouds=tuple(clouds),
            regions=tuple(regions),
            accelerators=tuple(accelerators),
            spot=spot,
            max_nodes=max_nodes,
            max_devices=max_devices,
            batch_sizes=tuple(batch_sizes),
            precision=precision,
            top=top,
            epochs=epochs,
            steps=steps,
            samples=samples,
        )
        owner = self.principal.owner_of_new(tenant)

        def effect() -> dict[str, Any]:
            self.backend.store.ledger.record(made, owner)
            return table

        return self.write(
            "recommendations.make", owner, effect, lambda _: (made.id, {"subject": made.subject})
        )

    def search(
        self,
        profile: str = "",
        epochs: float | None = None,
        steps: int | None = None,
        samples: float | None = None,
        tenant: str | None = None,
        **request: Any,
    ) -> tuple[dict[str, Any], Decision]:
        """Table of ranked configurations and its decision, which is not kept yet; arguments as for `make`."""
        from trimtab.recommend import Request, decision, earlier_runs, plain_recommendation

        self.principal.require(self.scope, "write", Role.USER)
        profiles, tenants = self.backend.store.profiles, self.principal.tenants
        taken = profiles.get(profile, tenants) if profile else profiles.latest(tenants)
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in request.items()}
        wanted = Request(**fields)
        earlier = earlier_runs(self.backend.store, taken, tenants)
        result = rank_configurations(taken, wanted, epochs, steps, samples, earlier)
        made = decision(result, self.backend.clock)
        return plain_recommendation(result, made.id, wanted.top), made
