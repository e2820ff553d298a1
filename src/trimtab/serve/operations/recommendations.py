"""Recommendations and plans: which configuration to rent, and how to split a model over devices."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from trimtab.core import OBJECTIVES, BadInputError, Clock, Decision, Profile
from trimtab.serve.access import Principal
from trimtab.serve.operations.decisions import OwnedDecision
from trimtab.serve.operations.operation import After, Area, BodyModel, Limit, Text, operation
from trimtab.store import DecisionFilter, Page, Role, StateConflictError

if TYPE_CHECKING:
    from trimtab.partition import Devices, Graph, Recipe, SearchSettings, Solution
    from trimtab.recommend import Recommendation, Request
    from trimtab.serve.operations import AllOperations

KIND = "recommend"

# A search uses all of a core for a moment; two at once would only make both late, and every other request.
_one_search = threading.Lock()

Names = Annotated[Sequence[str], Field(max_length=100)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Objective = Annotated[str, Field(json_schema_extra={"enum": [*OBJECTIVES]})]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Way = Literal["data", "zero", "fsdp", "tensor", "pipeline"]
Saver = Literal["checkpointing", "8bit", "lora"]


@dataclass(frozen=True, slots=True)
class Recommended:
    """Ranked configurations and the decision for one of them; `recorded`: the ledger has that decision."""

    result: "Recommendation"
    decision: Decision
    recorded: bool


def recommend_configuration(
    operations: "AllOperations",
    profile: Profile,
    request: "Request",
    epochs: float | None = None,
    steps: int | None = None,
    samples: float | None = None,
    chosen: int = 1,
    reuse: bool = False,
    clock: Clock | None = None,
) -> Recommended:
    """Rank the catalog's configurations for a profiled workload, and decide for row `chosen`.

    The job's length is given by at most one of epochs, steps and samples. Outcomes of earlier decisions about
    the workload are read with `operations`. With `reuse`, an equal decision of the ledger is returned instead
    of a new one.
    """
    from trimtab.catalog import load_offers
    from trimtab.recommend import LOOK_BACK, decision, recommend, runs_after, work

    amount = work(profile, epochs, steps, samples)
    known = operations.decisions.page(LOOK_BACK, kind=KIND, subject=profile.workload.name).items
    earlier = runs_after(known, operations.decisions.outcomes, profile)
    with _one_search:
        result = recommend(profile, load_offers(), request, amount, earlier)
    if not 1 <= chosen <= len(result.rows):
        raise BadInputError(f"there is no row {chosen}; there are {len(result.rows)}")
    made = decision(result, clock, chosen)
    equal = (old for old in known if reuse and replace(made, id=old.id, created=old.created) == old)
    old = next(equal, None)
    return Recommended(result, old or made, old is not None)


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
        plan = plan_by(chosen, graph, devices, recipe, settings, progress)
        if plan.forecast.fits:
            return plan
        progress("finding out what would make it fit", 0, 0)
        raise BadInputError(why_not(plan, settings, partial(plan_by, chosen, graph)))


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


class RecommendationOperations(Area, name="recommendations"):
    """Recommendations of the tenants that may be seen, which are decisions of the ledger."""

    __slots__ = ()

    @operation("GET", "/v1/recommendations", stored=True, answer=Page[OwnedDecision])
    def page(self, limit: Limit = 50, after: After = None, subject: Text = None) -> Page[Decision]:
        """Recommendations as the ledger keeps them, newest first."""
        ledger, criteria = (
            self.backend.store.ledger,
            DecisionFilter(KIND, subject, tenants=self.principal.tenants),
        )
        return self.stored(ledger.page, ledger.page_text)(limit, criteria, after)

    @operation("POST", "/v1/recommendations", least=Role.USER, slow=True, prepare="search", answer=Ranked)
    def make(
        self,
        profile: Annotated[str, Field(max_length=200)] = "",
        tenant: str | None = None,
        objective: Objective = "balanced",
        deadline: Amount | None = None,
        budget: Amount | None = None,
        clouds: Names = (),
        regions: Names = (),
        accelerators: Names = (),
        architecture: Literal["x86_64", "arm64"] | None = None,
        spot: bool = False,
        max_nodes: Annotated[int, Field(ge=1, le=10_000)] | None = None,
        max_devices: Annotated[int, Field(ge=1, le=100_000)] | None = None,
        parallel: Annotated[Sequence[Way], Field(max_length=100)] = (),
        save_memory: Annotated[Sequence[Saver], Field(max_length=100)] = ("checkpointing",),
        batch_sizes: Annotated[Sequence[Annotated[int, Field(ge=1, le=2**31)]], Field(max_length=20)] = (),
        precision: Precision | None = None,
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
            architecture=architecture,
            spot=spot,
            max_nodes=max_nodes,
            max_devices=max_devices,
            parallel=tuple(parallel),
            save_memory=tuple(save_memory),
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
        from trimtab.recommend import Request, plain_recommendation
        from trimtab.serve.operations import Service

        self.principal.require(self.scope, "write", Role.USER)
        # Whoever may ask for a recommendation may have it read the profile and the ledger of their tenant.
        reader = Principal(replace(self.principal.token, scopes=frozenset({"*"})))
        operations = Service(self.backend, reader)
        taken = operations.profiles.get(profile) if profile else operations.profiles.latest()
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in request.items()}
        criteria = Request(**fields)
        try:
            made = recommend_configuration(
                operations, taken, criteria, epochs, steps, samples, clock=self.backend.clock
            )
        except BadInputError as error:  # for this profile and this catalog there is no answer
            raise StateConflictError(str(error)) from None
        return plain_recommendation(made.result, made.decision.id, criteria.top), made.decision
