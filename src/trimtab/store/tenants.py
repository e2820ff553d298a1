"""Tenants that share the fleet, and access tokens; only digests of their secrets are kept."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Text, cast, delete, func, insert, select, update

from trimtab.core import BadInputError, Clock, NotFoundError, did_you_mean
from trimtab.store.clock import DatabaseClock
from trimtab.store.database import Database, decode_json, is_storable, lock, require_storable
from trimtab.store.entities import EVERYTHING, Page, Role, Tenant, Token, checked_scopes
from trimtab.store.records import Listing, RowFilter, row_filter
from trimtab.store.tables import tenants, tokens


class Tenants:
    """The tree of tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(self) -> tuple[Tenant, ...]:
        rows = self._database.fetch("tenants", lambda: select(tenants).order_by(tenants.c.name), {})
        return tuple(Tenant(*row) for row in rows)

    def put(self, tenant: Tenant, check: Callable[[tuple[Tenant, ...]], object] = lambda all: None) -> None:
        """Keep a tenant, replacing the one of its name; `check` gets the new list of all and may raise."""
        require_storable(tenant.name, "the tenant's name")
        self._change(lambda known: known | {tenant.name: tenant}, check)

    def remove(self, name: str, check: Callable[[tuple[Tenant, ...]], object] = lambda all: None) -> None:
        """Remove a tenant; its jobs stay. `check` gets the remaining tenants and may raise."""

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
_NO_DIGEST = "0" * 64  # the digest of no text


class Tokens:
    """Every token that was made; revoked ones stay on record."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock: Clock = clock or DatabaseClock(database)
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
        """A new token and its text, which is shown only now; `lifetime` in seconds, None: until revoked.

        `by` is the token that asks for it; None: made at the machine itself.
        """
        scopes = checked_scopes(scopes)
        if not name or not tenant:
            raise BadInputError("a token needs a name and a tenant; give both")
        for value, where in ((name, "the token's name"), (tenant, "the token's tenant")):
            require_storable(value, where)
        if lifetime is not None and not lifetime > 0:
            raise BadInputError(f"a token's lifetime is {lifetime:g} s; it should be more than 0")
        now = self._clock.now()
        expires = None if lifetime is None else now + lifetime
        made = Token(
            secrets.token_hex(6), name, tenant, role, scopes, now, expires, by="" if by is None else by.id
        )
        text = f"tt_{made.id}_{secrets.token_urlsafe(32)}"
        row = {
            **asdict(made),
            "role": role.value,
            "scopes": sorted(scopes),
            "made_by": made.by,
            "digest": _digest(text),
        }
        del row["by"]

        def effect(connection: Connection) -> None:
            connection.execute(insert(tokens), {**row, "change": _next_change(connection)})

        self._database.write(effect)
        return made, text

    def find(self, text: str) -> Token | None:
        """The token with a text; None if it is unknown, wrong, expired or revoked."""
        match = _TEXT.fullmatch(text)
        rows = self._by_id.rows(RowFilter({"id": (match[1] if match else "",)}), 1)
        # Compared in the same time whether there is such an id or not.
        right = hmac.compare_digest(_digest(text), rows[0][9] if rows else _NO_DIGEST)
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
        """At most `limit` tokens, newest first; `after` is the `next` of the page before."""
        place = None
        if after is not None:
            last = self.get(after, tenants)
            place = (last.created, last.id)
        rows = self._by_time.rows(replace(row_filter(tenants), after=place), limit + 1)
        following = rows[limit - 1][0] if len(rows) > limit else None
        return Page(tuple(_token(row) for row in rows[:limit]), following)

    def revoke(self, id: str, tenants: Sequence[str] | None = None) -> Token:
        """Revoke a token for good; revoking it again changes nothing."""
        found = self.get(id, tenants)
        now = self._clock.now()

        def effect(connection: Connection) -> None:
            change = _next_change(connection)
            this = (tokens.c.id == found.id, tokens.c.revoked.is_(None))
            connection.execute(update(tokens).where(*this).values(revoked=now, change=change))

        self._database.write(effect)
        return self.get(id, tenants)

    def pulse(self) -> int:
        """A number that grows whenever a token is made or revoked; a change invalidates cached tokens."""
        rows = self._database.fetch("tokens' pulse", lambda: select(func.max(tokens.c.change)), {})
        return int(rows[0][0] or 0)


def _next_change(connection: Connection) -> int:
    # Locked: two changes with the same number would look like one.
    lock(connection, "tokens")
    return int(connection.execute(select(func.coalesce(func.max(tokens.c.change), 0))).scalar_one()) + 1


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _token(row: tuple[Any, ...]) -> Token:
    id, name, tenant, role, scopes, created, expires, revoked, by, *_ = row
    return Token(id, name, tenant, Role(role), frozenset(decode_json(scopes)), created, expires, revoked, by)
