"""Idempotent requests: a request with a deduplication key takes effect once, however often it is sent."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Select, Text, bindparam, delete, select

from trimtab.core import BadInputError, Clock
from trimtab.store.clock import DatabaseClock
from trimtab.store.database import Database, lock, require_storable
from trimtab.store.entities import Reply, ReusedKeyError
from trimtab.store.tables import replies

KEPT = 86400.0
"""Seconds for which a reply is kept."""

_PRUNED_EVERY = 600.0
_LONGEST_KEY = 200


class Replies:
    """Replies to requests with a deduplication key, kept for a day."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock: Clock = clock or DatabaseClock(database)
        self._pruned = float("-inf")

    def once(self, key: str, owner: str, fingerprint: str, effect: Callable[[], Reply]) -> Reply:
        """The reply of `effect`, or the kept one if `owner` has used this key before.

        The effect's writes and its reply are kept together or not at all; if it raises, nothing is kept, and
        the key is free again. It may run in another thread, and should be brief. A key that was used with
        another `fingerprint` raises ReusedKeyError.
        """
        _require_key(key)
        require_storable(owner, "the request's owner")
        now = self._clock.now()

        def reply(connection: Connection) -> Reply:
            lock(connection, f"reply {owner} {key}")
            if now - self._pruned > _PRUNED_EVERY:
                self._pruned = now
                self.prune()
            kept = self._kept(key, owner, fingerprint, now)
            if kept is not None:
                return kept
            new = effect()
            row = {"owner": owner, "key": key, "fingerprint": fingerprint, "time": now}
            self._database.add(replies, {**row, "status": new.status, "body": new.body})
            return new

        return self._database.write(reply)

    def find(self, key: str, owner: str, fingerprint: str) -> Reply | None:
        """The kept reply to this request, None if there is none: saves computing an effect twice."""
        _require_key(key)
        return self._kept(key, owner, fingerprint, self._clock.now())

    def prune(self) -> int:
        """Delete replies that are older than a day; returns how many there were."""
        old = delete(replies).where(replies.c.time < self._clock.now() - KEPT)
        return int(self._database.write(lambda connection: connection.execute(old).rowcount))

    def _kept(self, key: str, owner: str, fingerprint: str, now: float) -> Reply | None:
        def build() -> Select[Any]:
            c = replies.c
            same = (c.owner == bindparam("owner", type_=Text()), c.key == bindparam("key", type_=Text()))
            return select(c.fingerprint, c.status, c.body, c.time).where(*same)

        rows = self._database.fetch("reply", build, {"owner": owner, "key": key})
        if not rows:
            return None
        known, status, body, time = rows[0]
        if time < now - KEPT:
            self.prune()
            return None
        if known != fingerprint:
            raise ReusedKeyError(
                f'the key "{key}" was used for another request; give this one a key of its own'
            )
        return Reply(status, body, repeated=True)


def _require_key(key: str) -> None:
    if not (0 < len(key) <= _LONGEST_KEY and key.isprintable()):
        raise BadInputError(f"a request's key is 1 to {_LONGEST_KEY} printable characters")
