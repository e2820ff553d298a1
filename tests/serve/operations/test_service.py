"""Operations ask who asks, and write down who did what."""

from collections.abc import Callable

import pytest

from trimtab.core import NotFoundError, TrimtabError
from trimtab.serve.access import LOCAL, ForbiddenError, Principal
from trimtab.serve.operations import AUDIT, Backend, Service
from trimtab.store import Role, Store, Token

JOB = {"name": "train", "command": "python train.py"}


@pytest.fixture
def of(store: Store) -> Callable[..., Service]:
    def make(tenant: str = "*", role: str = "admin", *scopes: str) -> Service:
        token = Token("t1", "test", tenant, Role(role), frozenset(scopes or ("*",)), 0.0)
        return Service(Backend(store), Principal(token))

    return make


@pytest.mark.parametrize(
    ("least", "ask"),
    [
        ("viewer", lambda service: service.jobs.page()),
        ("viewer", lambda service: service.decisions.page()),
        ("viewer", lambda service: service.profiles.page()),
        ("viewer", lambda service: service.events.page()),
        ("viewer", lambda service: service.catalog.offers(1)),
        ("viewer", lambda service: service.tenants.list()),
        ("viewer", lambda service: service.pools.list()),
        ("viewer", lambda service: service.fabric.names()),
        ("viewer", lambda service: service.services.page()),
        ("viewer", lambda service: service.alerts.page()),
        ("viewer", lambda service: service.workloads.list()),
        ("viewer", lambda service: service.calibration.by_kind()),
        ("user", lambda service: service.jobs.submit([JOB])),
        ("operator", lambda service: service.tenants.put("q")),
        ("admin", lambda service: service.tokens.page()),
        ("admin", lambda service: service.tokens.make("x", Role.VIEWER)),
    ],
)
def test_each_role_may_do_what_it_may_and_no_more(
    of: Callable[..., Service], least: str, ask: Callable[[Service], object]
) -> None:
    order = [item.value for item in Role]
    for role in order:
        if order.index(role) >= order.index(least):
            ask(of("*", role))
        else:
            with pytest.raises(ForbiddenError):
                ask(of("*", role))


@pytest.mark.parametrize("area", ["pools", "fabric"])
def test_what_shows_all_tenants_is_not_for_a_token_of_one(of: Callable[..., Service], area: str) -> None:
    service = of("a", "admin")
    with pytest.raises(ForbiddenError, match="all tenants"):
        service.pools.list() if area == "pools" else service.fabric.names()


def test_a_scope_is_all_that_a_token_is_for(of: Callable[..., Service]) -> None:
    service = of("*", "admin", "jobs:write")
    assert service.jobs.submit([JOB])
    assert service.jobs.page().items
    with pytest.raises(ForbiddenError, match="decisions:read"):
        service.decisions.page()


def test_a_job_belongs_to_the_tokens_tenant_and_no_other(of: Callable[..., Service]) -> None:
    service = of("a", "user")
    assert service.jobs.submit([JOB])[0].tenant == "a"
    for other in ("b", "there-is-none"):
        with pytest.raises(ForbiddenError, match="tenant a"):
            service.jobs.submit([{**JOB, "tenant": other}])
        with pytest.raises(ForbiddenError, match="tenant a"):
            service.jobs.submit([JOB], tenant=other)


def test_only_an_admin_of_all_passes_on_the_schedulers_own_variables(of: Callable[..., Service]) -> None:
    asking = {**JOB, "pass": ["TRIMTAB_STORE"]}
    for service in (of("a", "admin"), of("*", "operator")):
        with pytest.raises(ForbiddenError, match="variables"):
            service.jobs.submit([asking])
    assert of("*", "admin").jobs.submit([asking])


def test_what_was_written_and_by_whom_is_kept_together_or_not_at_all(
    of: Callable[..., Service], store: Store
) -> None:
    service = of("a", "user")
    made = service.jobs.submit([JOB])[0]
    audit = [event for event in store.events.since(0) if event.kind == AUDIT]
    assert [(event.subject, event.tenant, event.detail["who"]) for event in audit] == [(made.id, "a", "t1")]
    with pytest.raises(TrimtabError):
        service.jobs.submit([JOB, {"name": "no command"}])
    with pytest.raises(NotFoundError):
        service.jobs.cancel("none")
    assert len(store.jobs.list()) == 1
    assert len([event for event in store.events.since(0) if event.kind == AUDIT]) == 1


def test_the_audit_log_is_for_admins(of: Callable[..., Service]) -> None:
    of("a", "user").jobs.submit([JOB])
    kinds = {event.kind for event in of("a", "operator").events.page().items}
    assert kinds == {"job.waiting"}
    assert AUDIT in {event.kind for event in of("a", "admin").events.page().items}


def test_no_token_can_be_made_that_does_more_than_its_maker(of: Callable[..., Service]) -> None:
    maker = of("a", "admin", "jobs:read", "tokens:write")
    for tenant, scopes in (("b", ["jobs:read"]), ("*", ["jobs:read"]), ("a", ["jobs:write"]), ("a", ["*"])):
        with pytest.raises(ForbiddenError):
            maker.tokens.make("more", Role.VIEWER, tenant, scopes)
    token, _ = maker.tokens.make("less", Role.VIEWER, "a", ["jobs:read"])
    assert token.by == "t1"


def test_who_is_at_the_machine_may_do_everything(store: Store) -> None:
    service = Service(Backend(store), LOCAL)
    assert service.tokens.make("first", Role.ADMIN, "*")[0].by == ""
    assert service.tenants.put("q").name == "q"


@pytest.mark.parametrize(
    ("maker", "tenant", "scope"),
    [
        (("vision", "operator", "*"), "vision", "*"),
        (("vision", "admin", "*"), "*", "*"),
        (("vision", "admin", "*"), "audio", "*"),
        (("*", "admin", "tokens:write"), "vision", "jobs:read"),
    ],
)
def test_no_token_makes_one_that_can_do_more(
    of: Callable[..., Service], store: Store, maker: tuple[str, str, str], tenant: str, scope: str
) -> None:
    with pytest.raises(ForbiddenError):
        of(*maker).tokens.make("more", Role.VIEWER, tenant, (scope,))
    assert store.tokens.page().items == ()


def test_an_admin_of_all_tenants_makes_tokens_of_any(of: Callable[..., Service]) -> None:
    made, _ = of("*", "admin").tokens.make("theirs", Role.ADMIN, "vision")
    assert (made.by, Principal(made).tenants) == ("t1", ("vision",))


def test_a_scope_to_write_includes_reading() -> None:
    principal = Principal(Token("t", "ci", "a", Role.USER, frozenset({"jobs:write", "profiles:read"}), 0.0))
    scopes = ("jobs:read", "jobs:write", "profiles:read", "profiles:write")
    assert [principal.allows(scope) for scope in scopes] == [True, True, True, False]
