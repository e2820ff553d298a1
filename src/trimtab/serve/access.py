"""Authentication and authorization: from a bearer token to the principal whose request it is."""

import threading
from dataclasses import dataclass, field

from trimtab.core import DEFAULT_TENANT, Clock, TrimtabError
from trimtab.store import EVERY_TENANT, EVERYTHING, Role, Store, Token

CACHE_SECONDS = 1.0
"""Seconds after which tokens that were made or revoked by another process are noticed."""

_CACHED_TOKENS = 10_000
_RANK = {role: rank for rank, role in enumerate(Role)}
_REFUSED = "this token is wrong, expired or revoked; ask an admin for another"
_NEEDED = (
    "a token is needed: name its file with --token-file or set TRIMTAB_TOKEN; "
    "over HTTP, send Authorization: Bearer tt_…"
)


class UnknownCallerError(TrimtabError):
    """Authentication failed: no token, or one that is wrong, expired or revoked."""


class ForbiddenError(TrimtabError):
    """The caller is known and may not do this."""


class ChangedError(TrimtabError):
    """The resource is no longer in the state that the caller's condition (If-Match) names."""


class ConditionMissingError(TrimtabError):
    """A change that could undo another caller's needs an If-Match or If-None-Match header."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of `token`. The token of `LOCAL` is in no store, and stands for users of this machine."""

    token: Token

    @property
    def id(self) -> str:
        return self.token.id

    @property
    def role(self) -> Role:
        return self.token.role

    @property
    def tenants(self) -> tuple[str, ...] | None:
        """Tenants whose records the principal may see; None for all tenants."""
        return None if self.token.tenant == EVERY_TENANT else (self.token.tenant,)

    def allows(self, scope: str) -> bool:
        """Whether the token has `scope`, such as jobs:read; jobs:write includes jobs:read."""
        scopes = self.token.scopes
        return EVERYTHING in scopes or scope in scopes or scope.replace(":read", ":write") in scopes

    def may(self, area: str, action: str = "read", least: Role = Role.VIEWER, fleet: bool = False) -> bool:
        """Whether `require` would pass."""
        allowed = self.allows(f"{area}:{action}") and _RANK[self.role] >= _RANK[least]
        return allowed and (not fleet or self.tenants is None)

    def require(
        self, area: str, action: str = "read", least: Role = Role.VIEWER, fleet: bool = False
    ) -> None:
        """Raise ForbiddenError unless scope and role suffice; with `fleet`, for all tenants."""
        if not self.allows(f"{area}:{action}"):
            raise ForbiddenError(f"this token does not have the scope {area}:{action}; use one that has it")
        if _RANK[self.role] < _RANK[least]:
            raise ForbiddenError(
                f"this needs the role {least.value} or higher, and this token has the role {self.role.value}"
            )
        if fleet and self.tenants is not None:
            raise ForbiddenError(f"{area}: this concerns all tenants, and this token is for one")

    def visible_tenants(self, tenant: str | None) -> tuple[str, ...] | None:
        """Tenants to show when the caller filters by `tenant`; None for all, empty for one that is hidden."""
        if tenant is None:
            return self.tenants
        return (tenant,) if self.tenants is None or tenant in self.tenants else ()

    def owner_of_new(self, tenant: str | None) -> str:
        """Tenant of a record that the principal creates: `tenant`, or the token's own."""
        if self.tenants is None:
            return tenant or DEFAULT_TENANT
        own = self.tenants[0]
        if tenant not in (None, "", own):
            raise ForbiddenError(
                f"this token is for the tenant {own}; leave the tenant out, or name that one"
            )
        return own


LOCAL = Principal(Token("local", "local", EVERY_TENANT, Role.ADMIN, frozenset({"*"}), 0.0))
"""Principal of callers on this machine, while no token has been made."""


@dataclass(slots=True)
class Access:
    """Authenticates callers, with a cache that is dropped when tokens change.

    With `always`, callers on this machine need a token too, from the start. `clock`: by default the store's.
    """

    store: Store
    always: bool = False
    clock: Clock | None = None
    _cache: dict[str, Principal] = field(default_factory=dict)
    _version: int = -1
    _checked: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self._clock = self.clock or self.store.clock

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
        """Principal that holds the token with a text."""
        self._drop_outdated()
        known = self._cache.get(text)
        if known is not None and known.token.valid(self._clock.now()):
            return known
        version = self._version
        token = self.store.tokens.find(text)
        if token is None:
            raise UnknownCallerError(_REFUSED)
        caller = Principal(token)
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
        now = self._clock.monotonic()
        if now - self._checked < CACHE_SECONDS:
            return
        with self._lock:
            version = self.store.tokens.pulse()
            if version != self._version:
                self._cache.clear()
            self._version, self._checked = version, now
