"""Who shares the fleet, and what each of them was promised."""

from collections.abc import Callable

from sqlalchemy import delete, insert, select, text

from trimtab.core import NotFoundError, did_you_mean
from trimtab.store.database import Database
from trimtab.store.records import require_storable
from trimtab.store.tables import tenants
from trimtab.store.tenant import Tenant

# Any number that no other user of the same PostgreSQL database is likely to lock.
_LOCK = 0x7472696D746164


class Tenants:
    """The tree of tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(self) -> tuple[Tenant, ...]:
        """All of them, by name."""
        rows = self._database.fetch("tenants", lambda: select(tenants).order_by(tenants.c.name), {})
        return tuple(Tenant(*row) for row in rows)

    def put(self, tenant: Tenant, check: Callable[[tuple[Tenant, ...]], object] = lambda all: None) -> None:
        """Keep a tenant, in place of the one of its name; `check` is shown all and may raise."""
        require_storable(tenant.name, "the tenant's name")
        self._change(lambda known: known | {tenant.name: tenant}, check)

    def remove(self, name: str, check: Callable[[tuple[Tenant, ...]], object] = lambda all: None) -> None:
        """Forget a tenant; its jobs stay. `check` is shown those that are left and may raise."""

        def without(known: dict[str, Tenant]) -> dict[str, Tenant]:
            if name not in known:
                raise NotFoundError(f'there is no tenant "{name}"{did_you_mean(name, known)}')
            return {other: tenant for other, tenant in known.items() if other != name}

        self._change(without, check)

    def _change(
        self,
        edit: Callable[[dict[str, Tenant]], dict[str, Tenant]],
        check: Callable[[tuple[Tenant, ...]], object],
    ) -> None:
        with self._database.writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            rows = connection.execute(select(tenants).order_by(tenants.c.name)).all()
            after = edit({row.name: Tenant(*row) for row in rows})
            check(tuple(after[name] for name in sorted(after)))
            connection.execute(delete(tenants))
            if after:
                connection.execute(insert(tenants), [tenant.columns() for tenant in after.values()])
