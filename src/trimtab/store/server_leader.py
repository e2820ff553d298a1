"""Leader election on PostgreSQL: an advisory lock in a session that the server ends without heartbeats.

The leader sends a query every half second, and holds the lease for two seconds from the last query that was
answered. The server ends a session that has been silent for three seconds, and the lock with it. So a leader
that was stopped, cut off or hangs gives up the lease a second before another can lead; clocks need not agree,
only run at the same rate. Transactions that are still on their way are fenced by terms: a new leader writes
the next term, and each transaction of a leader holds the row with its own term to the end, or fails.
"""

import os
import select
import socket
import threading
import time
from typing import Any

import psycopg
from sqlalchemy import Connection, text

from trimtab.core import StorageError
from trimtab.kernel import seconds_since_boot
from trimtab.store.database import Address, lock_number
from trimtab.store.leader import Leader, LostLeadError

BEAT = 0.5
"""Seconds between two heartbeats."""

LEASE = 2.0
"""Seconds from an answered heartbeat for which a leader leads."""

SESSION_TIMEOUT = 3.0
"""Seconds without a heartbeat after which the server ends the session."""

_RETRY = 0.3
_NEXT_TERM = (
    "INSERT INTO leaders (name, term, holder, since) VALUES (%(name)s, 1, %(holder)s, %(since)s) "
    "ON CONFLICT (name) DO UPDATE SET term = leaders.term + 1, holder = %(holder)s, since = %(since)s "
    "RETURNING term"
)
_THIS_TERM = text("SELECT term FROM leaders WHERE name = :name FOR SHARE")
# An old leader that was stopped in the middle of a transaction must not keep the row from the next one.
_TIMEOUT = text(f"SET LOCAL idle_in_transaction_session_timeout = {round(1000 * LEASE)}")


class ServerLeader(Leader):
    """Leadership under a name among all processes that share a PostgreSQL database."""

    passes = True

    def __init__(self, name: str, address: Address) -> None:
        super().__init__()
        self._name = name
        self._address = address
        self._session: psycopg.Connection[Any] | None = None
        self._term = 0
        self._until = 0.0
        self._beating: threading.Thread | None = None

    def wait(self, timeout: float) -> bool:
        deadline = seconds_since_boot() + timeout
        while not self.holds():
            self.leave()
            try:
                if self._acquire(deadline):
                    break
            except psycopg.Error as error:
                self._close()
                if seconds_since_boot() >= deadline:
                    reason = self._address.without_secrets(str(error).strip().partition("\n")[0])
                    raise StorageError(
                        f"the store {self._address.name} cannot be reached ({reason}); check that it runs"
                    ) from None
                time.sleep(_RETRY)
                continue
            return False
        return True

    def holds(self) -> bool:
        """Whether the lease lasts, so that no other process can have the lock."""
        return not self.lost.is_set() and seconds_since_boot() < self._until

    def require(self, connection: Connection) -> None:
        if self.holds():
            connection.execute(_TIMEOUT)
            if connection.execute(_THIS_TERM, {"name": self._name}).scalar() == self._term:
                return
        raise LostLeadError(f"another process may lead as {self._name} by now; this write is not kept")

    def leave(self) -> None:
        self.lost.set()
        if self._beating is not None and self._beating is not threading.current_thread():
            self._beating.join()
        self._close()

    def _acquire(self, deadline: float) -> bool:
        """Try to take the lock until `deadline`; with it, write a new term and start the heartbeat."""
        session = self._session = self._connect()
        while True:
            sent = seconds_since_boot()
            answer = session.execute("SELECT pg_try_advisory_lock(%s)", [lock_number(f"leader {self._name}")])
            if answer.fetchone() == (True,):
                break
            if seconds_since_boot() >= deadline:
                self._close()
                return False
            time.sleep(_RETRY)
        about = {"name": self._name, "holder": f"{socket.gethostname()} {os.getpid()}", "since": time.time()}
        row = session.execute(_NEXT_TERM, about).fetchone()
        assert row is not None
        self._term = int(row[0])
        self._until = sent + LEASE
        self.lost.clear()
        self._beating = threading.Thread(target=self._beat, args=(session,), name="leader", daemon=True)
        self._beating.start()
        return True

    def _connect(self) -> "psycopg.Connection[Any]":
        url = self._address.url.set(drivername="postgresql").render_as_string(hide_password=False)
        session = psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=2,
            keepalives_idle=1,
            keepalives_interval=1,
            keepalives_count=2,
            tcp_user_timeout=round(1000 * LEASE),
            options=f"-c idle_session_timeout={round(1000 * SESSION_TIMEOUT)} "
            f"-c lock_timeout={round(1000 * LEASE)}",
        )
        session.prepare_threshold = None
        return session

    def _beat(self, session: "psycopg.Connection[Any]") -> None:
        while not self.lost.wait(BEAT):
            sent = seconds_since_boot()
            if sent >= self._until or not _answered(session, self._until):
                break
            self._until = sent + LEASE
        self.lost.set()
        session.close()

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _answered(session: "psycopg.Connection[Any]", until: float) -> bool:
    """Whether the server answers before `until`, at which a blocking call could not be interrupted."""
    line = session.pgconn
    try:
        line.send_query(b"SELECT 1")
        while True:
            while line.is_busy():
                left = until - seconds_since_boot()
                if left <= 0 or not select.select([line.socket], [], [], left)[0]:
                    return False
                line.consume_input()
            answer = line.get_result()
            if answer is None:
                return True
            if answer.status != psycopg.pq.ExecStatus.TUPLES_OK:
                return False
    except (psycopg.Error, OSError):
        return False
