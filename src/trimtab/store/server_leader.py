"""Leading a store in PostgreSQL: whoever has an advisory lock, in a session that must be heard of to live.

The leader asks the server something every half second, and believes to lead for two seconds from when it
last asked and was answered. The server ends a session that it has not heard of for three, and the lock with
it. So a leader that was stopped, cut off or hangs knows that it does not lead a second before another can;
clocks need not agree, only run alike. For what was on its way meanwhile there are terms: who comes to lead
writes down the next one, and each transaction of a leader holds the row with its own to the end, or fails.
"""

import os
import select
import socket
import threading
import time
from typing import Any, Self

import psycopg
from sqlalchemy import Connection, text

from trimtab.core import StorageError
from trimtab.store.address import Address
from trimtab.store.database import number_of
from trimtab.store.leader import LostLeadError

BEAT = 0.5
"""Seconds between two signs of life."""

BELIEVED = 2.0
"""Seconds from a sign of life for which a leader believes to lead."""

ENDED = 3.0
"""Seconds without a sign of life after which the server ends the session."""

_ASKED_EVERY = 0.3
_NEXT_TERM = (
    "INSERT INTO leaders (name, term, holder, since) VALUES (%(name)s, 1, %(holder)s, %(since)s) "
    "ON CONFLICT (name) DO UPDATE SET term = leaders.term + 1, holder = %(holder)s, since = %(since)s "
    "RETURNING term"
)
_THIS_TERM = text("SELECT term FROM leaders WHERE name = :name FOR SHARE")
# Stopped in the middle of a transaction, an old leader must not keep the row from the next one.
_BRIEFLY = text(f"SET LOCAL idle_in_transaction_session_timeout = {round(1000 * BELIEVED)}")


class ServerLeader:
    """The only one of a name among all who share a PostgreSQL database."""

    passes = True

    def __init__(self, name: str, address: Address) -> None:
        self._name = name
        self._address = address
        self._session: psycopg.Connection[Any] | None = None
        self._term = 0
        self._until = 0.0
        self._beating: threading.Thread | None = None
        self.lost = threading.Event()
        self.lost.set()

    def wait(self, timeout: float) -> bool:
        """Lead as soon as nobody else does; False where somebody did for `timeout` seconds."""
        deadline = _now() + timeout
        while not self.holds():
            self.leave()
            try:
                if self._tried(deadline):
                    break
            except psycopg.Error as error:
                self._close()
                if _now() >= deadline:
                    said = self._address.without_secrets(str(error).strip().partition("\n")[0])
                    raise StorageError(
                        f"the store {self._address.name} cannot be reached ({said}); check that it runs"
                    ) from None
                time.sleep(_ASKED_EVERY)
                continue
            return False
        return True

    def holds(self) -> bool:
        """Whether the server was heard of so lately that nobody else can have the lock."""
        return not self.lost.is_set() and _now() < self._until

    def require(self, connection: Connection) -> None:
        """Make a transaction fail unless this term lasts to its end."""
        if self.holds():
            connection.execute(_BRIEFLY)
            if connection.execute(_THIS_TERM, {"name": self._name}).scalar() == self._term:
                return
        raise LostLeadError(f"another may lead as {self._name} by now; what was decided here is not kept")

    def leave(self) -> None:
        """Let another lead."""
        self.lost.set()
        if self._beating is not None and self._beating is not threading.current_thread():
            self._beating.join()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.leave()

    def _tried(self, deadline: float) -> bool:
        """Ask for the lock until `deadline`; True with the lock, a new term, and a heart that beats."""
        session = self._session = self._opened()
        while True:
            sent = _now()
            got = session.execute("SELECT pg_try_advisory_lock(%s)", [number_of(f"leader {self._name}")])
            if got.fetchone() == (True,):
                break
            if _now() >= deadline:
                self._close()
                return False
            time.sleep(_ASKED_EVERY)
        about = {"name": self._name, "holder": f"{socket.gethostname()} {os.getpid()}", "since": time.time()}
        row = session.execute(_NEXT_TERM, about).fetchone()
        assert row is not None
        self._term = int(row[0])
        self._until = sent + BELIEVED
        self.lost.clear()
        self._beating = threading.Thread(target=self._beat, args=(session,), name="leader", daemon=True)
        self._beating.start()
        return True

    def _opened(self) -> "psycopg.Connection[Any]":
        url = self._address.url.set(drivername="postgresql").render_as_string(hide_password=False)
        session = psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=2,
            keepalives_idle=1,
            keepalives_interval=1,
            keepalives_count=2,
            tcp_user_timeout=round(1000 * BELIEVED),
            options=f"-c idle_session_timeout={round(1000 * ENDED)} -c lock_timeout={round(1000 * BELIEVED)}",
        )
        session.prepare_threshold = None
        return session

    def _beat(self, session: "psycopg.Connection[Any]") -> None:
        while not self.lost.wait(BEAT):
            sent = _now()
            if sent >= self._until or not _answered(session, self._until):
                break
            self._until = sent + BELIEVED
        self.lost.set()
        session.close()

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _answered(session: "psycopg.Connection[Any]", until: float) -> bool:
    """Whether the server answers before `until`; a blocking call could not be interrupted then."""
    line = session.pgconn
    try:
        line.send_query(b"SELECT 1")
        while True:
            while line.is_busy():
                left = until - _now()
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


def _now() -> float:
    """Seconds that go on also while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
