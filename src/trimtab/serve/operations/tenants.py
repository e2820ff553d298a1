"""Tenants that share the fleet, and the access tokens of their people and programs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from trimtab.core import BadInputError, NotFoundError
from trimtab.serve.access import EVERY_TENANT, LOCAL, ForbiddenError
from trimtab.serve.operations.operation import After, Area, Limit, operation
from trimtab.store import NotAllowedError, Page, Role, Tenant, Token

_TWENTY_YEARS = 20 * 366 * 86400.0

Check = Callable[[Tenant | None], object]
"""Is shown a tenant as it is, None where it is not there, and may raise: then nothing is changed."""

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Tenants(Area, name="tenants"):
    """All tenants for principals that may see all, else their own."""

    __slots__ = ()

    @operation("GET", "/v1/tenants")
    def list(self) -> tuple[Tenant, ...]:
        """Tenants by name; with a token of one, that one."""
        seen = self.principal.tenants
        return tuple(each for each in self.backend.store.tenants.list() if seen is None or each.name in seen)

    @operation("GET", "/v1/tenants/{name}", tagged=True)
    def get(self, name: str) -> Tenant:
        """One tenant."""
        found = _named(self.list(), name)
        if found is None:
            raise NotFoundError(f'there is no tenant "{name:.80}"')
        return found

    @operation(
        "PUT", "/v1/tenants/{name}", least=Role.OPERATOR, fleet=True, tagged=True, condition="required"
    )
    def put(
        self,
        name: str,
        parent: str | None = None,
        guarantee: Amount = 0.0,
        weight: Weight = 1.0,
        limit: Amount | None = None,
        *,
        check: Check = lambda now: None,
    ) -> Tenant:
        """Make a tenant (If-None-Match: *), or change one (If-Match: its ETag).

        Accelerators are promised (`guarantee`), shared by `weight` beyond that, and limited. Circles of
        parents and promises that cannot be kept are refused.
        """
        from trimtab.schedule import Quotas, require_name

        require_name(name, "a tenant")
        store, tenant = self.backend.store, Tenant(name, parent, guarantee, weight, limit)

        def effect() -> Tenant:
            check(_named(store.tenants.list(), name))
            store.tenants.put(tenant, Quotas)
            return tenant

        return self._exclusively("tenants.put", name, effect)

    @operation("DELETE", "/v1/tenants/{name}", least=Role.OPERATOR, fleet=True, condition="required")
    def remove(self, name: str, *, check: Check = lambda now: None) -> Tenant:
        """Remove a tenant (If-Match: its ETag); its jobs stay."""
        from trimtab.schedule import Quotas

        store = self.backend.store

        def effect() -> Tenant:
            now = _named(store.tenants.list(), name)
            check(now)
            if now is None:
                raise NotFoundError(f'there is no tenant "{name:.80}"')
            store.tenants.remove(name, Quotas)
            return now

        return self._exclusively("tenants.remove", name, effect)

    def _exclusively(self, action: str, name: str, effect: Callable[[], Tenant]) -> Tenant:
        # Nobody else changes tenants between the check and the write.
        with self.backend.store.together("tenants"):
            return self.write(action, name, effect, lambda tenant: (tenant.name, tenant.columns()))


def _named(known: tuple[Tenant, ...], name: str) -> Tenant | None:
    return next((each for each in known if each.name == name), None)


@dataclass(frozen=True, slots=True)
class NewToken(Token):
    """A token with its text, which is shown this once: the answer to a repeated request has none."""

    text: str | None = None


def _shown(made: tuple[Token, str]) -> dict[str, Any]:
    return {**_plain(made[0]), "text": made[1]}


def _without_secret(made: tuple[Token, str]) -> dict[str, Any]:
    return {**_plain(made[0]), "text": None}


def _plain(token: Token) -> dict[str, Any]:
    return {name: getattr(token, name) for name in Token.__dataclass_fields__}


def _made(answer: Any) -> tuple[Token, str]:
    plain = {name: answer[name] for name in Token.__dataclass_fields__}
    token = Token(**{**plain, "scopes": frozenset(answer["scopes"]), "role": Role(answer["role"])})
    return token, answer["text"] or ""


class Tokens(Area, name="tokens"):
    """Tokens of the tenants that may be seen, for admins; secrets are shown once, when they are made."""

    __slots__ = ()

    @operation("GET", "/v1/tokens", least=Role.ADMIN)
    def page(self, limit: Limit = 100, after: After = None) -> Page[Token]:
        """Tokens, newest first; for admins."""
        return self.backend.store.tokens.page(limit, self.principal.tenants, after)

    @operation("GET", "/v1/tokens/{id}", least=Role.ADMIN, tagged=True)
    def get(self, id: str) -> Token:
        """One token."""
        return self.backend.store.tokens.get(id, self.principal.tenants)

    @operation(
        "POST",
        "/v1/tokens",
        least=Role.ADMIN,
        answer=NewToken,
        show=_shown,
        read=_made,
        kept=_without_secret,
    )
    def make(
        self,
        name: Annotated[str, Field(min_length=1, max_length=100)],
        role: Role = Role.VIEWER,
        tenant: str | None = None,
        scopes: Annotated[Sequence[str], Field(min_length=1, max_length=100)] = ("*",),
        lifetime: Annotated[float, Field(gt=0, le=_TWENTY_YEARS)] | None = None,
    ) -> tuple[Token, str]:
        """Make a token and its text; it can do no more than yours. `lifetime` in seconds, null: no end."""
        from trimtab.schedule import require_name

        owner = tenant if self.principal.tenants is None and tenant else self.principal.owner_of_new(tenant)
        if owner != EVERY_TENANT:
            require_name(owner, "a tenant")
        if not name.isprintable() or len(name) > 100:
            raise BadInputError("a token's name is at most 100 printable characters")
        by = None if self.principal == LOCAL else self.principal.token
        tokens = self.backend.store.tokens

        def effect() -> tuple[Token, str]:
            return tokens.make(name, owner, role, scopes, lifetime, by)

        def about(made: tuple[Token, str]) -> tuple[str, dict[str, object]]:
            token = made[0]
            return token.id, {"name": token.name, "role": token.role.value, "scopes": sorted(token.scopes)}

        try:
            return self.write("tokens.make", owner, effect, about)
        except NotAllowedError as error:
            raise ForbiddenError(str(error)) from None

    @operation("DELETE", "/v1/tokens/{id}", least=Role.ADMIN)
    def revoke(self, id: str) -> Token:
        """Revoke a token for good."""
        tokens, tenants = self.backend.store.tokens, self.principal.tenants
        found = tokens.get(id, tenants)
        return self.write(
            "tokens.revoke",
            found.tenant,
            lambda: tokens.revoke(found.id, tenants),
            lambda token: (token.id, {"name": token.name}),
        )
