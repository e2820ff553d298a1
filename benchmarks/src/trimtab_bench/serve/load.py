"""The load generator: an open-loop client, which sends when its plan says and does not wait for answers.

An answer's latency counts from the planned moment: a slow answer that holds up others is not left out. As a
process it reads one `Load` from its input, writes a line when it begins to measure and one when it has sent
all, and then what it measured.
"""

import asyncio
import gc
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trimtab_bench.serve.processes import say
from trimtab_bench.serve.requests import Asks, Constant, Operations, Request
from trimtab_bench.serve.store import World


@dataclass(frozen=True, slots=True)
class Latency:
    """Of `count` answers, in milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def latency(seconds: Iterable[float]) -> Latency:
    """Quantiles that were reached, not numbers between two of them; infinite where nothing was answered."""
    found = np.sort(np.fromiter(seconds, dtype=np.float64)) * 1e3
    if not len(found):
        return Latency(0, float("inf"), float("inf"), float("inf"))
    p50, p99 = (float(np.quantile(found, share, method="higher")) for share in (0.5, 0.99))
    return Latency(len(found), p50, p99, float(found[-1]))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a generator saw in `seconds`: latencies (s) by operation, failures by what was wrong.

    `answered` is how many answers came within that time, of those whose latencies these are.
    `cpus` is how much CPU time per second the generator itself took; `acknowledged` has, where that was asked
    for, the operation and the id of every write whose success was heard of; `late` is how long, at worst, the
    generator was behind its own plan (s).
    """

    seconds: float
    latencies: Mapping[str, Sequence[float]]
    answered: Mapping[str, int]
    errors: Mapping[str, int]
    cpus: float
    late: float
    acknowledged: Sequence[tuple[str, str]] = ()

    def of(self, names: Iterable[str]) -> Latency:
        """Of some operations together."""
        return latency(each for name in names for each in self.latencies.get(name, ()))

    def per_second(self, names: Iterable[str]) -> float:
        """Answers to some operations that came in time."""
        return sum(self.answered.get(name, 0) for name in names) / self.seconds

    @property
    def failed(self) -> int:
        """How many requests were not answered as they should be."""
        return sum(self.errors.values())


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests in order: seconds from the start, and the name of each one's operation."""

    times: list[float]
    names: list[str]


def arrivals(rates: Mapping[str, float], warm_up: float, seconds: float, seed: int) -> Arrivals:
    """As many of each operation as `rates` (per second) say, at random moments that know of no other.

    There are exactly that many in the seconds that follow the warm-up, so that none are short by chance.
    """
    random = np.random.default_rng(seed)
    names, times, chosen = list(rates), [np.empty(0)], [np.empty(0, dtype=np.int64)]
    for begin, length in ((0.0, warm_up), (warm_up, seconds)):
        # Rounding sums keeps the sum of all whole, and that of any first few.
        sums = np.round(np.cumsum([rates[name] * length for name in names])).astype(np.int64)
        counts = np.diff(sums, prepend=0)
        times.append(np.sort(random.uniform(begin, begin + length, int(sums[-1]))))
        chosen.append(random.permutation(np.repeat(np.arange(len(names)), counts)))
    order = np.concatenate(chosen).tolist()
    return Arrivals(np.concatenate(times).tolist(), [names[index] for index in order])


def mixed(shares: Mapping[str, float], rate: float) -> dict[str, float]:
    """Rates of operations by their shares of `rate` per second in all."""
    whole = sum(shares.values())
    return {name: rate * share / whole for name, share in shares.items()}


Answered = Callable[[int, bytes], None]
"""Called with the status of an answer and its body; status 0 where the connection was lost instead."""


class OpenLoopClient:
    """Sends requests over kept connections, one at a time on each; one that finds none free waits for one."""

    def __init__(self, port: int, connections: int) -> None:
        self._port = port
        self._connections = connections
        self._queue: asyncio.Queue[tuple[bytes, Answered]] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Connect; returns when all connections are open."""
        opened = await asyncio.gather(*(self._connect() for _ in range(self._connections)))
        self._workers = [asyncio.create_task(self._work(*each)) for each in opened]

    def send(self, request: bytes, answered: Answered) -> None:
        """Send a request as soon as a connection is free."""
        self._queue.put_nowait((request, answered))

    async def close(self) -> None:
        """Close all connections."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)

    async def _work(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request, answered = await self._queue.get()
                try:
                    if writer.is_closing() or reader.at_eof():
                        reader, writer = await self._connect()
                    writer.write(request)
                    status, body = await _response(reader)
                except (OSError, asyncio.IncompleteReadError):
                    writer.close()
                    status, body = 0, b""
                answered(status, body)
        finally:
            writer.close()


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head[9:12]), await reader.readexactly(content_length(head))


def content_length(head: bytes) -> int:
    """Bytes of the body that follows a head; 0 where it does not tell."""
    at = head.lower().find(_LENGTH)
    return 0 if at < 0 else int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])


_LENGTH = b"content-length:"
CONNECTIONS = 64
_PATIENCE = 10.0  # s for answers after the last request
_JOB = re.compile(rb'"id":\s*"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Load:
    """What to ask of the server at a port: operations per second by name, for how long (s).

    The first `warm_up` seconds are not measured. Without `tokens`, the one request of the constant server is
    asked. `acknowledged` says that ids of what was written are wanted.
    """

    port: int
    rates: dict[str, float]
    warm_up: float
    seconds: float
    seed: int
    run: str = ""
    tokens: dict[str, str] | None = None
    size: dict[str, int] | None = None
    acknowledged: bool = False


class Generator:
    """One load, from its first request to its last answer."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._plan = arrivals(load.rates, load.warm_up, load.seconds, load.seed)
        self._asks = _asks(load)
        self._client = OpenLoopClient(load.port, CONNECTIONS)
        self._latencies: dict[str, list[float]] = {}
        self._answered: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._acknowledged: list[tuple[str, str]] = []
        self._next = 0
        self._open = 0
        self._began = 0.0
        self._late = 0.0
        self._spent = 0.0
        self._all_sent = asyncio.Event()
        self._quiet = asyncio.Event()

    async def run(self) -> Measured:
        """Ask, and wait for the answers."""
        await self._client.open()
        loop = asyncio.get_running_loop()
        loop.call_later(self._load.warm_up, self._measure)
        self._began = time.perf_counter()
        self._tick()
        await self._all_sent.wait()
        say(sent=True)
        cpus = (time.process_time() - self._spent) / self._load.seconds
        try:
            async with asyncio.timeout(_PATIENCE):
                while self._open:
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            self._errors["not answered"] += self._open
        await self._client.close()
        return Measured(
            self._load.seconds,
            self._latencies,
            dict(self._answered),
            dict(self._errors),
            cpus,
            self._late,
            self._acknowledged,
        )

    def _measure(self) -> None:
        self._spent, self._late = time.process_time(), 0.0
        say(begun=True)

    def _tick(self) -> None:
        """Send all that is due, and come again when the next one is."""
        times = self._plan.times
        while self._next < len(times):
            ahead = times[self._next] - (time.perf_counter() - self._began)
            if ahead > 0.0:
                asyncio.get_running_loop().call_later(ahead, self._tick)
                return
            self._late = max(self._late, -ahead)
            self._send(self._began + times[self._next], self._plan.names[self._next])
            self._next += 1
        left = self._began + self._load.warm_up + self._load.seconds - time.perf_counter()
        asyncio.get_running_loop().call_later(max(0.0, left), self._all_sent.set)

    def _send(self, due: float, name: str) -> None:
        request = self._asks.request(name)
        counts = due >= self._began + self._load.warm_up
        self._open += 1

        def answered(status: int, body: bytes) -> None:
            took = time.perf_counter() - due
            self._open -= 1
            if not self._open:
                self._quiet.set()
            if not 200 <= status < 300:
                self._errors[_what(request.name, status, body)] += 1
                return
            if counts:
                self._latencies.setdefault(request.name, []).append(took)
                self._answered[request.name] += not self._all_sent.is_set()
            self._remember(request, body)

        self._client.send(request.data, answered)

    def _remember(self, request: Request, body: bytes) -> None:
        if request.name == "jobs.submit" and (found := _JOB.search(body)):
            self._asks.submitted(request.token, found[1].decode())
        if self._load.acknowledged and request.data.startswith(b"POST"):
            self._acknowledged.append((request.name, _written(request.name, body)))


def _asks(load: Load) -> Asks:
    if load.tokens is None or load.size is None:
        return Constant()
    return Operations(World(**load.size), load.tokens, load.run, load.seed)


def _written(name: str, body: bytes) -> str:
    """By what a thing that was written can be found again; an outcome by its decision and its note."""
    told = json.loads(body)
    if name == "outcomes.record":
        return f"{told['decision_id']} {told['note']}"
    return str(told["items"][0]["id"] if name == "jobs.submit" else told["id"])


def _what(name: str, status: int, body: bytes) -> str:
    if status == 0:
        return f"{name}: connection lost"
    try:
        return f"{name}: {status} {json.loads(body)['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"{name}: {status}"


def main() -> None:
    """Read a load, ask, and say what came of it."""
    import uvloop

    gc.disable()  # it lives for a minute, and looking for garbage would make it late
    told: dict[str, Any] = json.loads(sys.stdin.readline())

    async def whole() -> Measured:
        return await Generator(Load(**told)).run()

    say(**asdict(uvloop.run(whole())))


if __name__ == "__main__":
    main()
