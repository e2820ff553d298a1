"""Tokens: who may ask for what. Only admins see or make them, each for its own tenant."""

from collections.abc import Collection

from trimtab.core import BadInputError
from trimtab.serve.errors import ForbiddenError
from trimtab.serve.operations.desk import Area
from trimtab.serve.principal import EVERY_TENANT, LOCAL
from trimtab.store import NotAllowedError, Page, Role, Token

AREA = "tokens"


class Tokens(Area):
    """Tokens of the tenants that may be seen; secrets are shown once, when they are made."""

    __slots__ = ()

    def page(self, limit: int = 100, after: str | None = None) -> Page[Token]:
        """Newest first."""
        self.principal.require(AREA, "read", Role.ADMIN)
        return self.desk.store.tokens.page(limit, self.principal.tenants, after)

    def get(self, id: str) -> Token:
        """One of them."""
        self.principal.require(AREA, "read", Role.ADMIN)
        return self.desk.store.tokens.get(id, self.principal.tenants)

    def make(
        self,
        name: str,
        role: Role,
        tenant: str | None = None,
        scopes: Collection[str] = (EVERY_TENANT,),
        lifetime: float | None = None,
    ) -> tuple[Token, str]:
        """A new one and its text; it can do no more than who makes it. `lifetime` in seconds."""
        from trimtab.schedule import require_name

        self.principal.require(AREA, "write", Role.ADMIN)
        owner = tenant if self.principal.tenants is None and tenant else self.principal.tenant_for(tenant)
        if owner != EVERY_TENANT:
            require_name(owner, "a tenant")
        if not name.isprintable() or len(name) > 100:
            raise BadInputError("a token's name is at most 100 printable characters")
        by = None if self.principal == LOCAL else self.principal.token
        tokens = self.desk.store.tokens

        def effect() -> tuple[Token, str]:
            return tokens.make(name, owner, role, scopes, lifetime, by)

        def about(made: tuple[Token, str]) -> tuple[str, dict[str, object]]:
            token = made[0]
            return token.id, {"name": token.name, "role": token.role.value, "scopes": sorted(token.scopes)}

        try:
            return self.written("tokens.make", owner, effect, about)
        except NotAllowedError as error:
            raise ForbiddenError(str(error)) from None

    def revoke(self, id: str) -> Token:
        """End one for good."""
        self.principal.require(AREA, "write", Role.ADMIN)
        tokens, tenants = self.desk.store.tokens, self.principal.tenants
        found = tokens.get(id, tenants)
        return self.written(
            "tokens.revoke",
            found.tenant,
            lambda: tokens.revoke(found.id, tenants),
            lambda token: (token.id, {"name": token.name}),
        )
