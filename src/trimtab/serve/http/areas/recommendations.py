"""/v1/recommendations: which configuration to rent."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from trimtab.serve.http.answer import Answer, json_answer, page_answer
from trimtab.serve.http.areas.owned import OwnedDecision
from trimtab.serve.http.route import Effect, slow
from trimtab.serve.http.router import Caller, PageAsked, PageOf, Router, Told
from trimtab.serve.operations import Wish

router = Router("recommendations")


class RecommendationsAsked(PageAsked):
    """Of which workload."""

    subject: str | None = Field(None, max_length=200)


Names = Annotated[list[str], Field(max_length=100)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Wanted(Told):
    """What is asked for: seconds and dollars; as `trimtab recommend` has it. No profile: the newest."""

    profile: str = Field("", max_length=200)
    tenant: str | None = None
    objective: str = "balanced"
    deadline: Amount | None = None
    budget: Amount | None = None
    clouds: Names = Field([])
    regions: Names = Field([])
    accelerators: Names = Field([])
    spot: bool = False
    max_nodes: int | None = Field(None, ge=1, le=10_000)
    max_devices: int | None = Field(None, ge=1, le=100_000)
    batch_sizes: list[Annotated[int, Field(ge=1, le=2**31)]] = Field([], max_length=20)
    precision: str | None = None
    top: int = Field(10, ge=1, le=200)
    epochs: Amount | None = None
    steps: int | None = Field(None, ge=1, le=2**53)
    samples: Amount | None = None


class Ranked(Told):
    """Configurations, best first, each with its estimates and reasons; `decision` is the ledger's entry."""

    decision: str
    workload: str
    objective: str
    samples: float
    considered: int
    rows: list[dict[str, Any]]
    dropped: list[dict[str, Any]]
    notes: list[str]


@router.reads("/recommendations", PageOf[OwnedDecision])
def list_recommendations(call: Caller, query: Annotated[RecommendationsAsked, Query()]) -> Answer:
    """Recommendations as the ledger keeps them, newest first."""
    page = call.service.recommendations.page_text(query.limit, query.subject, query.after)
    return page_answer(call.scope, page)


@router.makes("/recommendations", Ranked)
@slow
def make_recommendation(call: Caller, body: Wanted) -> Effect:
    """Rank what clouds sell for a profiled workload, and keep the first as a decision."""
    from trimtab.recommend import Request

    request = Request(
        objective=body.objective,
        deadline=body.deadline,
        budget=body.budget,
        clouds=tuple(body.clouds),
        regions=tuple(body.regions),
        accelerators=tuple(body.accelerators),
        spot=body.spot,
        max_nodes=body.max_nodes,
        max_devices=body.max_devices,
        batch_sizes=tuple(body.batch_sizes),
        precision=body.precision,
        top=body.top,
    )
    area = call.service.recommendations
    table, made = area.search(Wish(body.profile, request, body.epochs, body.steps, body.samples))

    def effect() -> Answer:
        area.keep(made, body.tenant)
        return json_answer(table, 201)

    return effect
