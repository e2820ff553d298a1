"""/v1/fleet, /v1/pools, /v1/fabric, /v1/services, /v1/alerts: what runs where, and how it does."""

from typing import Annotated, Any

from fastapi import Query

from trimtab.serve.http.answer import Answer, json_answer, plain_page
from trimtab.serve.http.route import slow
from trimtab.serve.http.router import Caller, PageAsked, PageOf, Router, Told
from trimtab.serve.operations import Happening, PoolNow

router = Router("fleet")


class FleetNow(Told):
    """The scheduler as it last spoke: its engine and policy, groups of equal nodes, whether it is there."""

    engine: str
    policy: str
    groups: list[dict[str, Any]]
    there: bool


class PoolList(Told):
    """Pools by name."""

    items: list[PoolNow]


class HostList(Told):
    """Names of hosts."""

    items: list[str]


@router.reads("/fleet", FleetNow)
def get_fleet(call: Caller) -> Answer:
    """The scheduler, and the nodes that jobs can have."""
    return json_answer(call.service.fleet.now())


@router.reads("/pools", PoolList)
@slow
def list_pools(call: Caller) -> Answer:
    """Pools, their caps and containers; for tokens of all tenants."""
    return json_answer({"items": call.service.pools.list()})


@router.reads("/pools/{name}", PoolNow, tagged=True)
@slow
def get_pool(call: Caller, name: str) -> Answer:
    """One pool."""
    return json_answer(call.service.pools.get(name), tagged=True)


@router.reads("/fabric", HostList)
@slow
def list_hosts(call: Caller) -> Answer:
    """Hosts whose fabric runs on this machine; for tokens of all tenants."""
    return json_answer({"items": call.service.fabric.names()})


@router.reads("/fabric/{host}", dict[str, Any], tagged=True)
@slow
def get_host(call: Caller, host: str) -> Answer:
    """Uplinks, paths, failovers and sessions of a host."""
    return json_answer(call.service.fabric.get(host), tagged=True)


@router.reads("/services", PageOf[Happening])
def list_services(call: Caller, query: Annotated[PageAsked, Query()]) -> Answer:
    """Services, as events tell of them."""
    return plain_page(call.scope, call.service.services.page(query.limit, query.after))


@router.reads("/alerts", PageOf[Happening])
def list_alerts(call: Caller, query: Annotated[PageAsked, Query()]) -> Answer:
    """Alerts, as events tell of them."""
    return plain_page(call.scope, call.service.alerts.page(query.limit, query.after))
