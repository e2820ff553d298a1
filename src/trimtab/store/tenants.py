"""Tenants who share the fleet, and access tokens, of whose secrets only digests are kept."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Text, cast, delete, func, insert, select, update

from trimtab.core import BadInputError, Clock, NotFoundError, RealClock, did_you_mean
from trimtab.store import json_text
from trimtab.store.database import Database, lock
from trimtab.store.entities import EVERYTHING, Page, Role, Tenant, Token, checked_scopes
from trimtab.store.records import Listing, RowFilter, is_storable, require_storable, seen_by
from trimtab.store.tables import tenants, tokens


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
            lock(connection, "tenants")
            rows = connection.execute(select(tenants).order_by(tenants.c.name)).all()
            after = edit({row.name: Tenant(*row) for row in rows})
            check(tuple(after[name] for name in sorted(after)))
            connection.execute(delete(tenants))
            if after:
                connection.execute(insert(tenants), [tenant.columns() for tenant in after.values()])


_TEXT = re.compile(r"tt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NOBODY = "0" * 64  # a digest that no text has


class Tokens:
    """Every token that was made; revoked ones stay, so that it can be seen that there were any."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or RealClock()
        c = tokens.c
        plain = [c.id, c.name, c.tenant, c.role, cast(c.scopes, Text), c.created, c.expires, c.revoked]
        self._by_id = Listing(database, tokens, [*plain, c.made_by, c.digest], ("id",))
        self._by_time = Listing(database, tokens, [*plain, c.made_by, c.digest], ("created", "id"))

    def make(
        self,
        name: str,
        tenant: str,
        role: Role,
        scopes: Collection[str] = (EVERYTHING,),
        lifetime: float | None = None,
        by: Token | None = None,
    ) -> tuple[Token, str]:
        """A new token and its text, which is shown this once; `lifetime` in seconds, None: until revoked.

        `by` is whose token asks, and makes none that can do more; None: somebody at the machine itself.
        """
        scopes = checked_scopes(scopes)
        if not name or not tenant:
            raise BadInputError("a token has a name and a tenant; give both")
        for value, where in ((name, "the token's name"), (tenant, "the token's tenant")):
            require_storable(value, where)
        if lifetime is not None and not lifetime > 0:
            raise BadInputError(f"a token that lives {lifetime:g} s is of no use; give more than 0")
        if by is not None:
            by.require_may_make(tenant, role, scopes)
        now = self._clock.now()
        expires = None if lifetime is None else now + lifetime
        made = Token(
            secrets.token_hex(6), name, tenant, role, scopes, now, expires, by="" if by is None else by.id
        )
        text = f"tt_{made.id}_{secrets.token_urlsafe(32)}"
        self._database.write(lambda connection: _insert(connection, made, text))
        return made, text

    def find(self, text: str) -> Token | None:
        """The token of a text; None equal where it is unknown, wrong, expired or revoked."""
        match = _TEXT.fullmatch(text)
        rows = self._by_id.rows(RowFilter({"id": (match[1] if match else "",)}), 1)
        # Compared in the same time whether there is such an id or not.
        right = hmac.compare_digest(_digest(text), rows[0][9] if rows else _NOBODY)
        found = _token(rows[0]) if rows and right else None
        return found if found is not None and found.valid(self._clock.now()) else None

    def get(self, id: str, tenants: Sequence[str] | None = None) -> Token:
        """The token with an id, of those that `tenants` may see."""
        rows = self._by_id.rows(RowFilter({"id": (id,)}), 1) if is_storable(id) else []
        if not rows or (tenants is not None and rows[0][2] not in tenants):
            raise NotFoundError(f'there is no token "{id!s:.40}"')
        return _token(rows[0])

    def page(
        self, limit: int = 100, tenants: Sequence[str] | None = None, after: str | None = None
    ) -> Page[Token]:
        """A page of at most `limit` tokens, newest first, from where the page before said `next`."""
        place = None
        if after is not None:
            last = self.get(after, tenants)
            place = (last.created, last.id)
        rows = self._by_time.rows(RowFilter(seen_by(tenants), after=place), limit + 1)
        following = rows[limit - 1][0] if len(rows) > limit else None
        return Page(tuple(_token(row) for row in rows[:limit]), following)

    def revoke(self, id: str, tenants: Sequence[str] | None = None) -> Token:
        """End a token for good; one that was revoked before stays as it was."""
        found = self.get(id, tenants)
        now = self._clock.now()

        def effect(connection: Connection) -> None:
            change = _next_change(connection)
            this = (tokens.c.id == found.id, tokens.c.revoked.is_(None))
            connection.execute(update(tokens).where(*this).values(revoked=now, change=change))

        self._database.write(effect)
        return self.get(id, tenants)

    def pulse(self) -> int:
        """A number that grows whenever a token is made or revoked: ask it before you trust what you found."""
        rows = self._database.fetch("tokens' pulse", lambda: select(func.max(tokens.c.change)), {})
        return int(rows[0][0] or 0)


def _insert(connection: Connection, made: Token, text: str) -> None:
    row: dict[str, Any] = {
        "id": made.id,
        "name": made.name,
        "tenant": made.tenant,
        "role": made.role.value,
        "scopes": sorted(made.scopes),
        "created": made.created,
        "expires": made.expires,
        "revoked": None,
        "made_by": made.by,
        "digest": _digest(text),
    }
    connection.execute(insert(tokens), {**row, "change": _next_change(connection)})


def _next_change(connection: Connection) -> int:
    # One after the other: two changes with one number would be one to who compares numbers.
    lock(connection, "tokens")
    return int(connection.execute(select(func.coalesce(func.max(tokens.c.change), 0))).scalar_one()) + 1


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _token(row: tuple[Any, ...]) -> Token:
    id, name, tenant, role, scopes, created, expires, revoked, by, *_ = row
    return Token(
        id, name, tenant, Role(role), frozenset(json_text.loads(scopes)), created, expires, revoked, by
    )
