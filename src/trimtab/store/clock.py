"""The time by which tokens expire and replies are forgotten: one for all processes that share a store."""

from typing import Any

from sqlalchemy import Select, func, select

from trimtab.core import StorageError
from trimtab.kernel import SteadyClock
from trimtab.store.database import Database

_INTERVAL = 60.0  # s between two readings of the server's clock


class DatabaseClock(SteadyClock):
    """PostgreSQL's clock, read every minute and carried on by the monotonic clock; for a file, `SteadyClock`.

    Setting this machine's wall clock changes neither.
    """

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._ahead = 0.0  # s of the server's clock
        self._read = float("-inf")

    def now(self) -> float:
        if self._database.address.path is None and self.monotonic() - self._read >= _INTERVAL:
            self._read_server()
        return super().now() + self._ahead

    def _read_server(self) -> None:
        def build() -> Select[Any]:
            return select(func.extract("epoch", func.clock_timestamp()))

        try:
            rows = self._database.fetch("clock", build, {})
        except StorageError:
            if self._read == float("-inf"):
                raise
            return
        self._ahead = float(rows[0][0]) - super().now()
        self._read = self.monotonic()
