"""Tenants: who shares the fleet, and what each was promised."""

from collections.abc import Callable

from trimtab.core import NotFoundError
from trimtab.serve.operations.desk import Area
from trimtab.store import Role, Tenant

AREA = "tenants"
Check = Callable[[Tenant | None], object]
"""Is shown a tenant as it is, None where it is not there, and may raise: then nothing is changed."""


class Tenants(Area):
    """All of them for who may see all, else one's own."""

    __slots__ = ()

    def list(self) -> tuple[Tenant, ...]:
        """By name."""
        self.principal.require(AREA)
        seen = self.principal.tenants
        return tuple(each for each in self.desk.store.tenants.list() if seen is None or each.name in seen)

    def get(self, name: str) -> Tenant:
        """The one of that name."""
        found = next((each for each in self.list() if each.name == name), None)
        if found is None:
            raise NotFoundError(f'there is no tenant "{name:.80}"')
        return found

    def put(self, tenant: Tenant, check: Check = lambda now: None) -> Tenant:
        """Keep a tenant in place of the one of its name; circles and broken promises are refused."""
        from trimtab.schedule import Quotas, require_name

        self.principal.require(AREA, "write", Role.OPERATOR, fleet=True)
        require_name(tenant.name, "a tenant")
        store = self.desk.store

        def effect() -> Tenant:
            check(_named(store.tenants.list(), tenant.name))
            store.tenants.put(tenant, Quotas)
            return tenant

        return self._alone(lambda: self.written("tenants.put", tenant.name, effect, _about))

    def remove(self, name: str, check: Check = lambda now: None) -> Tenant:
        """Forget a tenant; its jobs stay."""
        from trimtab.schedule import Quotas

        self.principal.require(AREA, "write", Role.OPERATOR, fleet=True)
        store = self.desk.store

        def effect() -> Tenant:
            now = _named(store.tenants.list(), name)
            check(now)
            if now is None:
                raise NotFoundError(f'there is no tenant "{name:.80}"')
            store.tenants.remove(name, Quotas)
            return now

        return self._alone(lambda: self.written("tenants.remove", name, effect, _about))

    def _alone(self, change: Callable[[], Tenant]) -> Tenant:
        # Who looks first and then writes must not be overtaken in between.
        with self.desk.store.together("tenants"):
            return change()


def _named(known: tuple[Tenant, ...], name: str) -> Tenant | None:
    return next((each for each in known if each.name == name), None)


def _about(tenant: Tenant) -> tuple[str, dict[str, object]]:
    return tenant.name, tenant.columns()
