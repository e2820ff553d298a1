"""/v1/tenants: who shares the fleet."""

from collections.abc import Callable

from pydantic import Field

from trimtab.serve.conditions import require_condition
from trimtab.serve.encoding import encoded
from trimtab.serve.http.answer import Answer, json_answer, tag
from trimtab.serve.http.route import Effect
from trimtab.serve.http.router import Caller, Router, Told
from trimtab.store import Tenant

router = Router("tenants")


class TenantGiven(Told):
    """What a tenant is promised: accelerators, and a weight for what is left."""

    parent: str | None = None
    guarantee: float = Field(0.0, ge=0, allow_inf_nan=False)
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    limit: float | None = Field(None, ge=0, allow_inf_nan=False)


class TenantList(Told):
    """By name."""

    items: list[Tenant]


@router.reads("/tenants", TenantList)
def list_tenants(call: Caller) -> Answer:
    """Tenants; with a token of one, that one."""
    return json_answer({"items": call.service.tenants.list()})


@router.reads("/tenants/{name}", Tenant, tagged=True)
def get_tenant(call: Caller, name: str) -> Answer:
    """One tenant."""
    return json_answer(call.service.tenants.get(name), tagged=True)


@router.edits("/tenants/{name}", Tenant)
def put_tenant(call: Caller, name: str, body: TenantGiven) -> Effect:
    """Make a tenant (If-None-Match: *), or change one (If-Match: its ETag)."""
    tenant = Tenant(name, body.parent, body.guarantee, body.weight, body.limit)
    tenants = call.service.tenants
    return lambda: json_answer(tenants.put(tenant, _condition(call)), tagged=True)


@router.removes("/tenants/{name}", Tenant, conditional=True)
def remove_tenant(call: Caller, name: str) -> Effect:
    """Forget a tenant (If-Match: its ETag); its jobs stay."""
    tenants = call.service.tenants
    return lambda: json_answer(tenants.remove(name, _condition(call)))


def _condition(call: Caller) -> Callable[[Tenant | None], None]:
    def check(now: Tenant | None) -> None:
        current = None if now is None else tag(encoded(now))
        require_condition(call.header(b"if-match"), call.header(b"if-none-match"), current)

    return check
