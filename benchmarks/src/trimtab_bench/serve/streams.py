"""Event streams beside a load: which events each should get, and whether it did.

As a process it reads one `Streams` from its input, writes a line when all listen, reads how many events each
must get, and writes what each got once that is so, or after some patience.
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
from functools import partial
from pathlib import Path
from typing import Any

from trimtab_bench.serve import store
from trimtab_bench.serve.load import latency
from trimtab_bench.serve.processes import Child, Server, child, say
from trimtab_bench.serve.requests import get
from trimtab_bench.serve.store import EVERYBODY, TENANTS

_SEE_ALL = 0.04  # of streams: of an admin of all tenants, who also sees who wrote what
_AUDIT = "audit"
_SILENCE = 1.0  # s

Event = tuple[int, str, str]
"""Its id, kind and tenant."""


def owners(count: int) -> list[str]:
    """Whose each of so many streams is: each tenant in turn, and a few of who sees everything."""
    everything = max(1, round(_SEE_ALL * count))
    return [EVERYBODY] * everything + [store.tenant(number) for number in range(count - everything)]


def expected(events: Sequence[Event], whose: Sequence[str]) -> list[tuple[int, int]]:
    """How many events each stream must get, and the sum of their ids."""
    by_owner = {EVERYBODY: [id for id, _, _ in events]}
    for name in map(store.tenant, range(TENANTS)):
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
    with child("streams") as process:
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
    """One of them: how many events came, the sum of their ids, and how old each was (s)."""

    request: bytes
    listens: "asyncio.Future[None]"
    count: int = 0
    total: int = 0
    lost: bool = False
    lags: list[float] = field(default_factory=list)
    _came: bytes = b""

    def connection_made(self, transport: Any) -> None:
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now = time.time()
        whole, between, self._came = (self._came + data).rpartition(b"\n\n")
        for id, happened in _EVENT.findall(whole + between):
            self.count += 1
            self.total += int(id)
            self.lags.append(now - float(happened))
        if not self.listens.done() and _LISTENING in whole + between:
            self.listens.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self.listens.done():
            self.listens.set_exception(ConnectionError("a stream was refused"))


async def listen(asked: Streams) -> dict[str, Any]:
    """Open all, wait for what must come, and say what came."""
    loop = asyncio.get_running_loop()
    streams: list[Stream] = []
    for first in range(0, len(asked.tokens), _OPENED_AT_ONCE):
        some = [
            Stream(get(f"/v1/events/stream?since={asked.since}", token), loop.create_future())
            for token in asked.tokens[first : first + _OPENED_AT_ONCE]
        ]
        for stream in some:
            await loop.create_connection(partial(_itself, stream), "127.0.0.1", asked.port)
        await asyncio.gather(*(stream.listens for stream in some))
        streams += some
    spent, began = time.process_time(), time.monotonic()
    say(listening=len(streams))
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


def _itself(stream: Stream) -> Stream:
    return stream


def main() -> None:
    """Read what to listen to, and say what came."""
    import uvloop

    told = Streams(**json.loads(sys.stdin.readline()))
    say(**uvloop.run(listen(told)))


if __name__ == "__main__":
    main()
