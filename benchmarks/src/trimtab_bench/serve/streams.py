"""Event streams beside a load: who should have got which events, and whether they did."""

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trimtab_bench.serve import world
from trimtab_bench.serve.listeners import Streams
from trimtab_bench.serve.processes import Child, Server, child
from trimtab_bench.serve.world import EVERYBODY, TENANTS

_SEE_ALL = 0.04  # of streams: of an admin of all tenants, who also sees who wrote what
_AUDIT = "audit"
_SILENCE = 1.0  # s

Event = tuple[int, str, str]
"""Its id, kind and tenant."""


def owners(count: int) -> list[str]:
    """Whose each of so many streams is: each tenant in turn, and a few of who sees everything."""
    everything = max(1, round(_SEE_ALL * count))
    return [EVERYBODY] * everything + [world.tenant(number) for number in range(count - everything)]


def expected(events: Sequence[Event], whose: Sequence[str]) -> list[tuple[int, int]]:
    """How many events each stream must get, and the sum of their ids."""
    by_owner = {EVERYBODY: [id for id, _, _ in events]}
    for name in map(world.tenant, range(TENANTS)):
        by_owner[name] = [id for id, kind, tenant in events if tenant == name and kind != _AUDIT]
    sums = {owner: (len(ids), sum(ids)) for owner, ids in by_owner.items()}
    return [sums[owner] for owner in whose]


@dataclass(slots=True)
class Listening:
    """Streams that are open; `figures` are there once `close` was called."""

    process: Child
    file: Path
    since: int
    whose: list[str]
    figures: dict[str, Any] = field(default_factory=dict)

    def close(self) -> None:
        """Wait for all that must come, and compare."""
        wanted = expected(_all_events(self.file, self.since), self.whose)
        self.process.tell([count for count, _ in wanted])
        told = self.process.heard()
        got = list(zip(told["counts"], told["totals"], strict=True))
        self.figures = {
            "open": len(self.whose),
            "complete": sum(one == other for one, other in zip(got, wanted, strict=True)),
            "dropped": told["lost"],
            "events": sum(told["counts"]),
            "wanted": sum(count for count, _ in wanted),
            "lag_p50_ms": told["lag"]["p50_ms"],
            "lag_p99_ms": told["lag"]["p99_ms"],
            "lag_max_ms": told["lag"]["max_ms"],
            "listener_cpus": told["cpus"],
        }


@contextlib.contextmanager
def listening(server: Server, file: Path, tokens: Mapping[str, str], count: int) -> Iterator[Listening]:
    """So many streams from a server whose store is a SQLite file."""
    since = max((id for id, _, _ in _events(file, 0)), default=0) if count else 0
    whose = owners(count)
    with child("listeners") as process:
        process.tell(asdict(Streams(server.port, [tokens[owner] for owner in whose], since)))
        process.heard()
        yield Listening(process, file, since, whose)


def _all_events(file: Path, since: int) -> list[Event]:
    """When no more come: a server that had too much to do writes on when nobody waits for it any more."""
    found, seen_at = _events(file, since), time.monotonic()
    while time.monotonic() - seen_at < _SILENCE:
        time.sleep(0.1)
        now = _events(file, since)
        if len(now) != len(found):
            found, seen_at = now, time.monotonic()
    return found


def _events(file: Path, since: int) -> list[Event]:
    """From the file itself, not by way of the server that is measured."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as raw:
        return raw.execute(
            "SELECT id, kind, tenant FROM events WHERE id > ? ORDER BY id", (since,)
        ).fetchall()
