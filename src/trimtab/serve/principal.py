"""Who asks: a token's tenants, role and scopes; every operation is asked for by one."""

from dataclasses import dataclass

from trimtab.serve.errors import ForbiddenError
from trimtab.store import Role, Token

EVERY_TENANT = "*"
USUAL_TENANT = "default"


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever holds `token`; that of `LOCAL` is in no store, and stands for people at the machine itself."""

    token: Token

    @property
    def id(self) -> str:
        """What the audit log calls them."""
        return self.token.id

    @property
    def role(self) -> Role:
        """What they may do at most."""
        return self.token.role

    @property
    def tenants(self) -> tuple[str, ...] | None:
        """Whose things they may see; None for everybody's."""
        return self.token.tenants

    def may(self, area: str, action: str = "read", least: Role = Role.VIEWER, fleet: bool = False) -> bool:
        """Whether `require` would let them pass."""
        allowed = self.token.allows(f"{area}:{action}") and self.role.at_least(least)
        return allowed and (not fleet or self.tenants is None)

    def require(
        self, area: str, action: str = "read", least: Role = Role.VIEWER, fleet: bool = False
    ) -> None:
        """Refuse what the token is not for. With `fleet`, it must be one for all tenants."""
        if not self.token.allows(f"{area}:{action}"):
            raise ForbiddenError(f"this token is not for {area}:{action}; use one that has the scope")
        if not self.role.at_least(least):
            raise ForbiddenError(f"{_a(least)} may do this, and this token is of {_a(self.role)}")
        if fleet and self.tenants is not None:
            raise ForbiddenError(f"{area}: this concerns all tenants, and this token is of one")

    def seen(self, tenant: str | None) -> tuple[str, ...] | None:
        """Whose things to show where only one tenant's are asked for; of others', there are none."""
        if tenant is None:
            return self.tenants
        return (tenant,) if self.tenants is None or tenant in self.tenants else ()

    def tenant_for(self, tenant: str | None) -> str:
        """Whose a new thing is: as asked for, else the token's own."""
        if self.tenants is None:
            return tenant or USUAL_TENANT
        own = self.tenants[0]
        if tenant not in (None, "", own):
            raise ForbiddenError(f"this token is of the tenant {own}; leave the tenant out, or name that one")
        return own


def _a(role: Role) -> str:
    return f"{'an' if role.value[0] in 'aou' and role is not Role.USER else 'a'} {role.value}"


LOCAL = Principal(Token("local", "local", EVERY_TENANT, Role.ADMIN, frozenset({"*"}), 0.0))
"""Whoever sits at the machine itself, while no token has been made."""
