"""The process that listens: event streams as dashboards have them open, and what arrives by each.

It reads one object from its input, says when all listen, reads how many events each must get, and answers
with what each got once that is so, or after some patience.
"""

import asyncio
import json
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from trimtab_bench.serve.latency import latency
from trimtab_bench.serve.operations import get
from trimtab_bench.serve.saying import say

_PATIENCE = 15.0  # s for events that are missing
_AT_ONCE = 50  # connections that are opened side by side
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
    for first in range(0, len(asked.tokens), _AT_ONCE):
        some = [
            Stream(get(f"/v1/events/stream?since={asked.since}", token), loop.create_future())
            for token in asked.tokens[first : first + _AT_ONCE]
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
