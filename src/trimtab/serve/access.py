"""Authentication and authorization: from a bearer token to the principal whose request it is."""

import threading
from dataclasses import dataclass, field

from trimtab.core import Clock, RealClock, TrimtabError
from trimtab.store import Role, Store, Token

EVERY_TENANT = "*"
DEFAULT_TENANT = "default"

CACHE_SECONDS = 1.0
"""Seconds after which tokens that were made or revoked by another process are noticed."""

_CACHED_TOKENS = 10_000
_REFUSED = "this token opens nothing: it is wrong, expired or revoked; ask an admin for another"
_NEEDED = "a token is needed; send it as Authorization: Bearer tt_…"


class UnknownCallerError(TrimtabError):
    """Authentication failed: no token, or one that is wrong, expired or revoked."""


class ForbiddenError(TrimtabError):
    """The caller is known and may not do this."""


class ChangedError(TrimtabError):
    """The resource is no longer in the state that the caller's condition (If-Match) names."""


class ConditionMissingError(TrimtabError):
    """A change that could undo somebody else's needs an If-Match or If-None-Match header."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever holds `token`; that of `LOCAL` is in no store, and stands for people at the machine itself."""

    token: Token

    @property
    def id(self) -> str:
        """The id that the audit log has."""
        return self.token.id

    @property
    def role(self) -> Role:
        """The most that the principal may do."""
        return self.token.role

    @property
    def tenants(self) -> tuple[str, ...] | None:
        """Tenants whose things the principal may see; None for all tenants."""
        return self.token.tenants

    def may(self, area: str, action: str = "read", least: Role = Role.VIEWER, fleet: bool = False) -> bool:
        """Whether `require` would pass."""
        allowed = self.token.allows(f"{area}:{action}") and self.role.at_least(least)
        return allowed and (not fleet or self.tenants is None)

    def require(
        self, area: str, action: str = "read", least: Role = Role.VIEWER, fleet: bool = False
    ) -> None:
        """Raise ForbiddenError unless scope and role suffice; with `fleet`, for all tenants."""
        if not self.token.allows(f"{area}:{action}"):
            raise ForbiddenError(f"this token is not for {area}:{action}; use one that has the scope")
        if not self.role.at_least(least):
            raise ForbiddenError(
                f"{_with_article(least)} may do this, and this token is of {_with_article(self.role)}"
            )
        if fleet and self.tenants is not None:
            raise ForbiddenError(f"{area}: this concerns all tenants, and this token is of one")

    def visible_tenants(self, tenant: str | None) -> tuple[str, ...] | None:
        """Tenants to show when the caller filters by `tenant`; None for all, empty for one that is hidden."""
        if tenant is None:
            return self.tenants
        return (tenant,) if self.tenants is None or tenant in self.tenants else ()

    def owner_of_new(self, tenant: str | None) -> str:
        """Tenant of a thing that the principal creates: `tenant`, or the token's own."""
        if self.tenants is None:
            return tenant or DEFAULT_TENANT
        own = self.tenants[0]
        if tenant not in (None, "", own):
            raise ForbiddenError(f"this token is of the tenant {own}; leave the tenant out, or name that one")
        return own


def _with_article(role: Role) -> str:
    return f"{'an' if role.value[0] in 'aou' and role is not Role.USER else 'a'} {role.value}"


LOCAL = Principal(Token("local", "local", EVERY_TENANT, Role.ADMIN, frozenset({"*"}), 0.0))
"""Whoever sits at the machine itself, while no token has been made."""


@dataclass(slots=True)
class Access:
    """Authenticates callers, with a cache that is dropped when tokens change.

    With `always`, people at the machine itself need a token too, from the start.
    """

    store: Store
    always: bool = False
    clock: Clock = field(default_factory=RealClock)
    _cache: dict[str, Principal] = field(default_factory=dict)
    _version: int = -1
    _checked: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def caller(self, authorization: str | None, from_this_machine: bool) -> Principal:
        """Principal of a request, by its Authorization header."""
        if authorization is None:
            if from_this_machine and self.open_here:
                return LOCAL
            raise UnknownCallerError(_NEEDED)
        kind, _, text = authorization.partition(" ")
        if kind.lower() != "bearer" or not text.strip():
            raise UnknownCallerError(_NEEDED)
        return self.holder(text.strip())

    def holder(self, text: str) -> Principal:
        """Principal that holds the token of that text."""
        self._drop_outdated()
        known = self._cache.get(text)
        if known is not None and known.token.valid(self.clock.now()):
            return known
        version = self._version
        found = self.store.tokens.find(text)
        if found is None:
            raise UnknownCallerError(_REFUSED)
        caller = Principal(found)
        with self._lock:
            # An answer from before the tokens changed must not be cached after.
            if self._version == version:
                if len(self._cache) >= _CACHED_TOKENS:
                    self._cache.clear()
                self._cache[text] = caller
        return caller

    @property
    def open_here(self) -> bool:
        """Whether callers on this machine need no token, because none has been made yet."""
        if self.always:
            return False
        self._drop_outdated()
        return self._version == 0

    def _drop_outdated(self) -> None:
        now = self.clock.monotonic()
        if now - self._checked < CACHE_SECONDS:
            return
        with self._lock:
            version = self.store.tokens.pulse()
            if version != self._version:
                self._cache.clear()
            self._version, self._checked = version, now
