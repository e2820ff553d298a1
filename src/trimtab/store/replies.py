"""Requests that do their work once, however often they are sent."""

from collections.abc import Callable

from sqlalchemy import Connection, delete, insert, select

from trimtab.core import BadInputError, Clock, RealClock
from trimtab.store.database import Database, lock
from trimtab.store.records import require_storable
from trimtab.store.reply import Reply, ReusedKeyError
from trimtab.store.tables import replies

KEPT = 86400.0
"""Seconds for which a reply is kept."""

_PRUNED_EVERY = 600.0
_LONGEST_KEY = 200


class Replies:
    """What was replied to requests that came with a key, for a day."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or RealClock()
        self._pruned = float("-inf")

    def once(self, key: str, owner: str, fingerprint: str, effect: Callable[[], Reply]) -> Reply:
        """The reply that `effect` gives, or gave when `owner` came with this key before.

        What the effect writes and its reply are kept together or not at all; where it raises, nothing is, and
        the key is free again. It may run in another thread, and should be brief. A key that was used with
        another `fingerprint` raises ReusedKeyError.
        """
        _require_key(key)
        require_storable(owner, "the request's owner")
        now = self._clock.now()

        def reply(connection: Connection) -> Reply:
            lock(connection, f"reply {owner} {key}")
            kept = _kept(connection, key, owner, fingerprint, now)
            if kept is not None:
                return kept
            new = effect()
            this = (replies.c.owner == owner, replies.c.key == key)
            connection.execute(delete(replies).where(*this))
            row = {"owner": owner, "key": key, "fingerprint": fingerprint, "time": now}
            connection.execute(insert(replies), {**row, "status": new.status, "body": new.body})
            return new

        answer = self._database.write(reply)
        if now - self._pruned > _PRUNED_EVERY:
            self._pruned = now
            self.prune()
        return answer

    def find(self, key: str, owner: str, fingerprint: str) -> Reply | None:
        """What was replied to this request before, for who would rather not work out an effect twice."""
        _require_key(key)
        with self._database.reading() as connection:
            return _kept(connection, key, owner, fingerprint, self._clock.now())

    def prune(self) -> int:
        """Forget replies that are older than a day; how many there were."""
        old = delete(replies).where(replies.c.time < self._clock.now() - KEPT)
        return int(self._database.write(lambda connection: connection.execute(old).rowcount))


def _kept(connection: Connection, key: str, owner: str, fingerprint: str, now: float) -> Reply | None:
    query = select(replies.c.fingerprint, replies.c.status, replies.c.body).where(
        replies.c.owner == owner, replies.c.key == key, replies.c.time >= now - KEPT
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    if row.fingerprint != fingerprint:
        raise ReusedKeyError(f'the key "{key}" was used for another request; give this one a key of its own')
    return Reply(row.status, row.body, repeated=True)


def _require_key(key: str) -> None:
    if not (0 < len(key) <= _LONGEST_KEY and key.isprintable()):
        raise BadInputError(f"a request's key is 1 to {_LONGEST_KEY} printable characters; give such a one")
