"""Tenants: kept by name, and only as whoever checks them allows."""

import pytest

from trimtab.core import BadInputError, NotFoundError
from trimtab.store import Store, Tenant


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
    with pytest.raises(NotFoundError, match=r'no tenant "vison" \(did you mean vision\?\)'):
        store.tenants.remove("vison")


def test_what_a_check_refuses_changes_nothing(store: Store) -> None:
    store.tenants.put(Tenant("vision"))
    with pytest.raises(BadInputError, match="not these 2"):
        store.tenants.put(Tenant("audio"), refuse)
    with pytest.raises(BadInputError, match="not these 0"):
        store.tenants.remove("vision", refuse)
    assert store.tenants.list() == (Tenant("vision"),)
