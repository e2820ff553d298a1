"""/v1/catalog and /v1/models: what can be rented, and what predictions come from."""

from typing import Annotated

from fastapi import Query
from pydantic import Field

from trimtab.catalog import Accelerator
from trimtab.core import Offer
from trimtab.serve.http.answer import Answer, json_answer, plain_page
from trimtab.serve.http.route import Effect, slow
from trimtab.serve.http.router import Caller, PageAsked, PageOf, Router, Told
from trimtab.serve.operations import ModelVersion, WantedOffers

router = Router("catalog")


class OffersAsked(PageAsked):
    """Which offers; names may hold wildcards."""

    cloud: list[str] = Field([], max_length=20)
    region: list[str] = Field([], max_length=100)
    accelerator: list[str] = Field([], max_length=100)
    min_memory: float | None = Field(None, description="Bytes of the host.", ge=0)
    min_accelerators: int | None = Field(None, ge=0, le=10**6)
    max_price: float | None = Field(None, description="Dollars per second.", ge=0)
    spot: bool = False


class AcceleratorList(Told):
    """By vendor, then age."""

    items: list[Accelerator]


class VersionList(Told):
    """Oldest first."""

    items: list[ModelVersion]


class Back(Told):
    """To which version; without one, to what the current one came from."""

    version: str | None = Field(None, max_length=100)


@router.reads("/catalog/offers", PageOf[Offer])
@slow
def list_offers(call: Caller, query: Annotated[OffersAsked, Query()]) -> Answer:
    """Offers, cheapest first."""
    wanted = WantedOffers(
        tuple(query.cloud),
        tuple(query.region),
        tuple(query.accelerator),
        query.min_memory,
        query.min_accelerators,
        query.max_price,
        query.spot,
    )
    return plain_page(call.scope, call.service.catalog.offers(query.limit, wanted, query.after))


@router.reads("/catalog/accelerators", AcceleratorList)
@slow
def list_accelerators(call: Caller) -> Answer:
    """Accelerators, as their vendors publish them."""
    return json_answer({"items": call.service.catalog.accelerators()})


@router.reads("/catalog/accelerators/{name}", Accelerator, tagged=True)
@slow
def get_accelerator(call: Caller, name: str) -> Answer:
    """One accelerator, by any usual name."""
    return json_answer(call.service.catalog.accelerator(name), tagged=True)


@router.reads("/models", VersionList)
@slow
def list_models(call: Caller) -> Answer:
    """Versions of the weights, and how they were tested."""
    return json_answer({"items": call.service.models.list()})


@router.makes("/models/rollback", ModelVersion, status=200)
def roll_back(call: Caller, body: Back) -> Effect:
    """Let an earlier version answer again."""
    models = call.service.models
    return lambda: json_answer(models.rollback(body.version))
