"""Who may do what over the network: a token names a tenant, a role in it, and what it is for."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from trimtab.core import BadInputError

EVERY_TENANT = "*"
"""The tenant of a token that sees all of them."""

EVERYTHING = "*"
"""The scope of a token that is for anything its role may do."""

_SCOPE = re.compile(r"[a-z][a-z0-9-]*:(read|write)")


class NotAllowedError(BadInputError):
    """Somebody asks for more than their token gives them."""


class Role(StrEnum):
    """What somebody is to a tenant; each may do what those before it may."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"

    def at_least(self, other: "Role") -> bool:
        """Whether it may do all that `other` may."""
        return _RANK[self] >= _RANK[other]


_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. Times are seconds since the epoch.

    `by` is the id of the token that made it, empty where somebody on the machine itself did.
    """

    id: str
    name: str
    tenant: str
    role: Role
    scopes: frozenset[str]
    created: float
    expires: float | None = None
    revoked: float | None = None
    by: str = ""

    @property
    def tenants(self) -> tuple[str, ...] | None:
        """Whose records it may see, as the store's methods take it: None for all."""
        return None if self.tenant == EVERY_TENANT else (self.tenant,)

    def allows(self, scope: str) -> bool:
        """Whether it is for `scope`, such as jobs:read; who may write may read."""
        area, _, action = scope.partition(":")
        writes = action == "read" and f"{area}:write" in self.scopes
        return EVERYTHING in self.scopes or scope in self.scopes or writes

    def valid(self, now: float) -> bool:
        """Whether it still opens anything."""
        return self.revoked is None and (self.expires is None or now < self.expires)

    def require_may_make(self, tenant: str, role: Role, scopes: Collection[str]) -> None:
        """Refuse a token that could do more than this one, which must be an admin's."""
        if self.role is not Role.ADMIN:
            raise NotAllowedError(f"only admins make tokens, and token {self.id} is of a {self.role}")
        if self.tenant not in (EVERY_TENANT, tenant):
            raise NotAllowedError(f"an admin of {self.tenant} makes tokens for {self.tenant} alone")
        beyond = sorted(scope for scope in scopes if not self.allows(scope))
        if beyond:
            raise NotAllowedError(f"token {self.id} has not the scope {beyond[0]} itself; leave it out")


def checked_scopes(scopes: Collection[str]) -> frozenset[str]:
    """The scopes, or an error that names the first that is none."""
    if not scopes:
        raise BadInputError('a token without scopes is for nothing; give some like jobs:read, or "*" for all')
    for scope in sorted(scopes):
        if scope != EVERYTHING and not _SCOPE.fullmatch(scope):
            raise BadInputError(f'"{scope:.40}" is no scope; write one like jobs:read, or * for all')
    return frozenset(scopes)
