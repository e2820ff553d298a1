"""Event streams during a load: which events each should get, and whether it did.

As a process it reads one `Streams` from its input, writes a line when all are open, reads how many events
each must get, and writes the counts once all have come, or after some patience.
"""

import asyncio
import contextlib
import json
import re
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trimtab_bench.processes import Child, child, write_line
from trimtab_bench.serve import store
from trimtab_bench.serve.load import latency
from trimtab_bench.serve.processes import ServerProcess
from trimtab_bench.serve.requests import get
from trimtab_bench.serve.store import ALL_TENANTS, TENANTS

_SEE_ALL = 0.04  # of streams: of an admin of all tenants, who also sees audit events
_AUDIT = "audit"
_SILENCE = 1.0  # s

Event = tuple[int, str, str]
"""Its id, kind and tenant."""


def stream_owners(count: int) -> list[str]:
    """Owners of so many streams: each tenant in turn, and a few admins of all."""
    everything = max(1, round(_SEE_ALL * count))
    return [ALL_TENANTS] * everything + [store.tenant(number) for number in range(count - everything)]


def expected(events: Sequence[Event], owners: Sequence[str]) -> list[tuple[int, int]]:
    """Number of events that each stream must get, and the sum of their ids."""
    by_owner = {ALL_TENANTS: [id for id, _, _ in events]}
    for name in map(store.tenant, range(TENANTS)):
        by_owner[name] = [id for id, kind, tenant in events if tenant == name and kind != _AUDIT]
    sums = {owner: (len(ids), sum(ids)) for owner, ids in by_owner.items()}
    return [sums[owner] for owner in owners]


@dataclass(slots=True)
class Listening:
    """Open streams; `figures` are set by `close`."""

    process: Child
    file: Path
    since: int
    owners: list[str]
    figures: dict[str, Any] = field(default_factory=dict)

    def close(self) -> None:
        """Wait for all events that must come, and compare."""
        wanted = expected(_all_events(self.file, self.since), self.owners)
        self.process.send([count for count, _ in wanted])
        received = self.process.receive()
        got = list(zip(received["counts"], received["totals"], strict=True))
        self.figures = {
            "open": len(self.owners),
            "complete": sum(one == other for one, other in zip(got, wanted, strict=True)),
            "dropped": received["lost"],
            "events": sum(received["counts"]),
            "wanted": sum(count for count, _ in wanted),
            "lag_p50_ms": received["lag"]["p50_ms"],
            "lag_p99_ms": received["lag"]["p99_ms"],
            "lag_max_ms": received["lag"]["max_ms"],
            "listener_cpus": received["cpus"],
        }


@contextlib.contextmanager
def listening(
    server: ServerProcess, file: Path, tokens: Mapping[str, str], count: int
) -> Iterator[Listening]:
    """So many streams from a server on a SQLite file."""
    since = max((id for id, _, _ in _events(file, 0)), default=0) if count else 0
    owners = stream_owners(count)
    with child("-m", "trimtab_bench.serve.streams") as process:
        process.send(asdict(Streams(server.port, [tokens[owner] for owner in owners], since)))
        process.receive()
        yield Listening(process, file, since, owners)


def _all_events(file: Path, since: int) -> list[Event]:
    """Events, once no more come: a server that was overloaded still writes when no request is open."""
    events, changed = _events(file, since), time.monotonic()
    while time.monotonic() - changed < _SILENCE:
        time.sleep(0.1)
        now = _events(file, since)
        if len(now) != len(events):
            events, changed = now, time.monotonic()
    return events


def _events(file: Path, since: int) -> list[Event]:
    """Events from the file itself, not from the server that is measured."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as raw:
        return raw.execute(
            "SELECT id, kind, tenant FROM events WHERE id > ? ORDER BY id", (since,)
        ).fetchall()


_PATIENCE = 15.0  # s for events that are missing
_OPENED_AT_ONCE = 50  # connections that are opened side by side
_LISTENING = b": listening\n\n"
_EVENT = re.compile(rb'^id: (\d+)\nevent: [^\n]*\ndata: \{"id":\d+,"time":([0-9.e+]+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Streams:
    """A token for each stream at a port, all from after the event `since`."""

    port: int
    tokens: list[str]
    since: int


@dataclass(slots=True, eq=False)
class Stream(asyncio.Protocol):
    """One stream: number of events, the sum of their ids, and how old each was (s)."""

    request: bytes
    listens: "asyncio.Future[None]"
    count: int = 0
    total: int = 0
    lost: bool = False
    lags: list[float] = field(default_factory=list)
    _rest: bytes = b""

    def connection_made(self, transport: Any) -> None:
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now = time.time()
        complete, end, self._rest = (self._rest + data).rpartition(b"\n\n")
        for id, happened in _EVENT.findall(complete + end):
            self.count += 1
            self.total += int(id)
            self.lags.append(now - float(happened))
        if not self.listens.done() and _LISTENING in complete + end:
            self.listens.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self.listens.done():
            self.listens.set_exception(ConnectionError("a stream was refused"))


async def listen(plan: Streams) -> dict[str, Any]:
    """Open all streams, wait for the events that must come, and return what came."""
    loop = asyncio.get_running_loop()
    streams: list[Stream] = []
    for first in range(0, len(plan.tokens), _OPENED_AT_ONCE):
        some = [
            Stream(get(f"/v1/events/stream?since={plan.since}", token), loop.create_future())
            for token in plan.tokens[first : first + _OPENED_AT_ONCE]
        ]
        for stream in some:
            await loop.create_connection(lambda stream=stream: stream, "127.0.0.1", plan.port)  # type: ignore[misc]
        await asyncio.gather(*(stream.listens for stream in some))
        streams += some
    spent, began = time.process_time(), time.monotonic()
    write_line(listening=len(streams))
    expected = json.loads(await asyncio.to_thread(sys.stdin.readline))
    cpus = (time.process_time() - spent) / (time.monotonic() - began)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and any(
        stream.count < wanted for stream, wanted in zip(streams, expected, strict=True)
    ):
        await asyncio.sleep(0.05)
    return {
        "counts": [stream.count for stream in streams],
        "totals": [stream.total for stream in streams],
        "lost": sum(stream.lost for stream in streams),
        "lag": asdict(latency(lag for stream in streams for lag in stream.lags)),
        "cpus": cpus,
    }


def main() -> None:
    """Read a plan, open its streams, and print what came."""
    import uvloop

    plan = Streams(**json.loads(sys.stdin.readline()))
    write_line(**uvloop.run(listen(plan)))


if __name__ == "__main__":
    main()
