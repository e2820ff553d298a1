"""Tenants that share the fleet, and the access tokens of their people and programs."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from trimtab.core import SCHEMA_NAME, BadInputError, NotFoundError
from trimtab.serve.access import LOCAL, ForbiddenError
from trimtab.serve.operations.operation import After, Area, Limit, operation
from trimtab.store import EVERY_TENANT, Page, Role, StateConflictError, Tenant, Token

_TWENTY_YEARS = 20 * 366 * 86400.0

Check = Callable[[Tenant | None], object]
"""Gets a tenant's present state, None if there is none, and may raise; then nothing is changed."""


def _tenant_name(name: str) -> str:
    from trimtab.schedule import require_name

    try:
        return require_name(name, "a tenant")
    except BadInputError as error:
        raise ValueError(str(error)) from None


TenantName = Annotated[str, AfterValidator(_tenant_name), Field(json_schema_extra={"pattern": SCHEMA_NAME})]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Scope = Annotated[str, Field(pattern=r"^(\*|[a-z][a-z0-9-]*:(read|write))$")]
_TENANT_OR_ALL: dict[str, Any] = {"anyOf": [{"pattern": SCHEMA_NAME}, {"enum": [EVERY_TENANT, ""]}]}
# No control characters, no spaces but the usual one, and none that change the direction of text.
_PRINTABLE_NAME = (
    r"^[^\x00-\x1f\x7f-\xa0\xad\u061c\u180e\u2000-\u200f\u2028-\u202f"
    r"\u205f-\u206f\u3000\ufeff\ufff9-\ufffb]{1,100}$"
)
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TenantOperations(Area, name="tenants"):
    """All tenants for principals that may see all, else their own."""

    __slots__ = ()

    @operation("GET", "/v1/tenants")
    def list(self) -> tuple[Tenant, ...]:
        """Tenants by name; with a token of one, that one."""
        visible, tenants = self.principal.tenants, self.backend.store.tenants.list()
        return tuple(tenant for tenant in tenants if visible is None or tenant.name in visible)

    @operation("GET", "/v1/tenants/{name}", tagged=True)
    def get(self, name: str) -> Tenant:
        """One tenant."""
        tenant = _named(self.list(), name)
        if tenant is None:
            raise NotFoundError(f'there is no tenant "{name:.80}"')
        return tenant

    @operation(
        "PUT", "/v1/tenants/{name}", least=Role.OPERATOR, fleet=True, tagged=True, condition="required"
    )
    def put(
        self,
        name: TenantName,
        parent: TenantName | None = None,
        guarantee: Amount = 0.0,
        weight: Weight = 1.0,
        limit: Amount | None = None,
        *,
        check: Check = lambda now: None,
    ) -> Tenant:
        """Make a tenant (If-None-Match: *), or change one (If-Match: its ETag).

        `guarantee` and `limit` are accelerators; beyond guarantees, `weight` decides. Cycles of parents, and
        guarantees that cannot be kept, are refused.
        """
        from trimtab.schedule import Quotas, require_name

        require_name(name, "a tenant")
        store, tenant = self.backend.store, Tenant(name, parent, guarantee, weight, limit)

        def effect() -> Tenant:
            check(_named(store.tenants.list(), name))
            with _conflicts():
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
            with _conflicts():
                store.tenants.remove(name, Quotas)
            return now

        return self._exclusively("tenants.remove", name, effect)

    def _exclusively(self, action: str, name: str, effect: Callable[[], Tenant]) -> Tenant:
        # Nobody else changes tenants between the check and the write.
        with self.backend.store.together("tenants"):
            return self.write(action, name, effect, lambda tenant: (tenant.name, tenant.columns()))


@contextmanager
def _conflicts() -> Iterator[None]:
    """Raises what contradicts other tenants (a missing parent, a guarantee) as a conflict with the state."""
    try:
        yield
    except BadInputError as error:
        raise StateConflictError(str(error)) from None


def _named(known: tuple[Tenant, ...], name: str) -> Tenant | None:
    return next((tenant for tenant in known if tenant.name == name), None)


@dataclass(frozen=True, slots=True)
class NewToken(Token):
    """A token with its text, which is shown only once: the answer to a repeated request has none."""

    text: str | None = None


def _answer(made: tuple[Token, str | None]) -> dict[str, Any]:
    token, text = made
    return {**{name: getattr(token, name) for name in Token.__dataclass_fields__}, "text": text}


def _made(answer: Any) -> tuple[Token, str]:
    plain = {name: answer[name] for name in Token.__dataclass_fields__}
    token = Token(**{**plain, "scopes": frozenset(answer["scopes"]), "role": Role(answer["role"])})
    return token, answer["text"] or ""


class TokenOperations(Area, name="tokens"):
    """Tokens of the tenants that may be seen, for admins; a secret is shown once, when it is made."""

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
        show=_answer,
        read=_made,
        kept=lambda made: _answer((made[0], None)),
    )
    def make(
        self,
        name: Annotated[str, Field(pattern=_PRINTABLE_NAME)],
        role: Role = Role.VIEWER,
        tenant: Annotated[str, Field(json_schema_extra=_TENANT_OR_ALL)] | None = None,
        scopes: Annotated[Sequence[Scope], Field(min_length=1, max_length=100)] = ("*",),
        lifetime: Annotated[float, Field(gt=0, le=_TWENTY_YEARS)] | None = None,
    ) -> tuple[Token, str]:
        """Make a token and its text; it can do no more than yours. `lifetime` in seconds, null: no end."""
        from trimtab.schedule import require_name

        owner = tenant if self.principal.tenants is None and tenant else self.principal.owner_of_new(tenant)
        if owner != EVERY_TENANT:
            require_name(owner, "a tenant")
        if not re.fullmatch(_PRINTABLE_NAME, name):
            raise BadInputError("a token's name has at most 100 printable characters")
        beyond = [scope for scope in sorted(scopes) if not self.principal.allows(scope)]
        if beyond:
            raise ForbiddenError(f"this token does not have the scope {beyond[0]:.80} itself; leave it out")
        by = None if self.principal == LOCAL else self.principal.token
        tokens = self.backend.store.tokens

        def effect() -> tuple[Token, str]:
            return tokens.make(name, owner, role, scopes, lifetime, by)

        def about(made: tuple[Token, str]) -> tuple[str, dict[str, object]]:
            token = made[0]
            return token.id, {"name": token.name, "role": token.role.value, "scopes": sorted(token.scopes)}

        return self.write("tokens.make", owner, effect, about)

    @operation("DELETE", "/v1/tokens/{id}", least=Role.ADMIN)
    def revoke(self, id: str) -> Token:
        """Revoke a token for good."""
        tokens, tenants = self.backend.store.tokens, self.principal.tenants
        known = tokens.get(id, tenants)
        return self.write(
            "tokens.revoke",
            known.tenant,
            lambda: tokens.revoke(known.id, tenants),
            lambda token: (token.id, {"name": token.name}),
        )
