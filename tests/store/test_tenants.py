"""Tenants: kept by name, and only as whoever checks them allows."""

import pytest
from sqlalchemy import create_engine, text

from trimtab.core import BadInputError, NotFoundError, SimulatedClock
from trimtab.store import Role, Store, Tenant
from trimtab.store.database import resolve
from trimtab.store.tenants import Tokens


def refuse(all: tuple[Tenant, ...]) -> None:
    raise BadInputError(f"not these {len(all)}")


def test_a_tenant_is_kept_replaced_and_removed(store: Store) -> None:
    assert store.tenants.list() == ()
    store.tenants.put(Tenant("vision", None, 8.0, 2.0, 16.0))
    store.tenants.put(Tenant("audio", "vision", 2.0))
    store.tenants.put(Tenant("vision", None, 6.0))
    assert store.tenants.list() == (Tenant("audio", "vision", 2.0), Tenant("vision", None, 6.0))
    store.tenants.remove("audio")
    assert store.tenants.list() == (Tenant("vision", None, 6.0),)
    with pytest.raises(NotFoundError, match=r'"vison".*vision'):
        store.tenants.remove("vison")


def test_what_a_check_refuses_changes_nothing(store: Store) -> None:
    store.tenants.put(Tenant("vision"))
    with pytest.raises(BadInputError, match="not these 2"):
        store.tenants.put(Tenant("audio"), refuse)
    with pytest.raises(BadInputError, match="not these 0"):
        store.tenants.remove("vision", refuse)
    assert store.tenants.list() == (Tenant("vision"),)


def test_a_token_is_found_by_its_text_alone(store: Store) -> None:
    made, secret = store.tokens.make("ci", "vision", Role.USER, ["jobs:write"])
    assert secret.startswith(f"tt_{made.id}_")
    assert len(secret) == len(f"tt_{made.id}_") + 43
    assert store.tokens.find(secret) == made
    for wrong in (secret[:-1], secret + "A", f"tt_{made.id}_{'A' * 43}", "", "tt__", "\ud800", made.id):
        assert store.tokens.find(wrong) is None


def test_a_token_ends_with_its_lifetime(store: Store) -> None:
    clock = SimulatedClock(100.0)
    tokens = Tokens(store._database, clock)
    made, secret = tokens.make("short", "vision", Role.VIEWER, lifetime=10.0)
    assert made.expires == 110.0
    assert tokens.find(secret) == made
    clock.advance(10.0)
    assert tokens.find(secret) is None


def test_a_revoked_token_opens_nothing_and_moves_the_pulse(store: Store) -> None:
    nothing = store.tokens.pulse()
    made, secret = store.tokens.make("ci", "vision", Role.USER)
    before = store.tokens.pulse()
    assert store.tokens.revoke(made.id).revoked is not None
    assert store.tokens.find(secret) is None
    assert nothing < before < store.tokens.pulse()
    again = store.tokens.revoke(made.id)
    assert again == store.tokens.get(made.id)


def test_the_store_holds_no_secret(store: Store, url: str) -> None:
    _, secret = store.tokens.make("ci", "vision", Role.USER)
    engine = create_engine(resolve(url).url)
    with engine.connect() as connection:
        row = str(connection.execute(text("SELECT * FROM tokens")).all())
    engine.dispose()
    assert secret[-43:] not in row
    assert secret not in row


def test_another_tenants_token_is_as_unknown_as_none(store: Store) -> None:
    made, _ = store.tokens.make("ci", "vision", Role.USER)
    with pytest.raises(NotFoundError) as other:
        store.tokens.revoke(made.id, ["audio"])
    with pytest.raises(NotFoundError) as none:
        store.tokens.get("0" * 12, ["audio"])
    assert str(other.value).replace(made.id, "0" * 12) == str(none.value)
    assert store.tokens.page(tenants=["audio"]).items == ()
    assert store.tokens.get(made.id).revoked is None


def test_tokens_come_in_pages_newest_first(store: Store) -> None:
    made = [store.tokens.make(str(n), "ab"[n % 2], Role.USER)[0] for n in range(5)]
    first = store.tokens.page(2)
    second = store.tokens.page(2, after=first.next)
    last = store.tokens.page(2, after=second.next)
    assert last.next is None
    assert set(first.items + second.items + last.items) == set(made)
    assert set(store.tokens.page(tenants=["a"]).items) == set(made[::2])


def test_a_scope_that_is_none_is_refused(store: Store) -> None:
    for scopes in ([], ["jobs"], ["jobs:delete"], ["Jobs:read"], ["jobs:read "]):
        with pytest.raises(BadInputError, match="scope"):
            store.tokens.make("ci", "vision", Role.USER, scopes)
