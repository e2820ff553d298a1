"""The load generator: an open-loop client, which sends when its plan says and does not wait for answers.

An answer's latency counts from the planned moment: a slow answer that holds up others is not left out. As a
process it reads one `Load` from its input, writes a line when it begins to measure and one when it has sent
all, and then the `LoadResult`.
"""

import asyncio
import gc
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from trimtab_bench.open_loop import OpenLoopClient
from trimtab_bench.processes import write_line
from trimtab_bench.serve.requests import ConstantRequests, StoreRequests
from trimtab_bench.serve.store import StoreSize


@dataclass(frozen=True, slots=True)
class Latency:
    """Quantiles of the latencies of `count` answers, in milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def latency(seconds: Iterable[float]) -> Latency:
    """Quantiles that are measured values, not interpolated; infinite without an answer."""
    milliseconds = np.sort(np.fromiter(seconds, dtype=np.float64)) * 1e3
    if not len(milliseconds):
        return Latency(0, float("inf"), float("inf"), float("inf"))
    p50, p99 = (float(np.quantile(milliseconds, share, method="higher")) for share in (0.5, 0.99))
    return Latency(len(milliseconds), p50, p99, float(milliseconds[-1]))


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Measurements of a generator over `seconds`: latencies (s) and answers in time by operation, and errors.

    `cpus` is the generator's own CPU time per second, `late` how far it was behind its plan at worst (s);
    `acknowledged` has, where the load wants it, the operation and the id of every successful write.
    """

    seconds: float
    latencies: Mapping[str, Sequence[float]]
    answered: Mapping[str, int]
    errors: Mapping[str, int]
    cpus: float
    late: float
    acknowledged: Sequence[tuple[str, str]] = ()

    def of(self, names: Iterable[str]) -> Latency:
        """Latency of some operations together."""
        return latency(seconds for name in names for seconds in self.latencies.get(name, ()))

    def per_second(self, names: Iterable[str]) -> float:
        """Answers in time to some operations."""
        return sum(self.answered.get(name, 0) for name in names) / self.seconds

    @property
    def failed(self) -> int:
        return sum(self.errors.values())


def arrivals(
    rates: Mapping[str, float], warm_up: float, seconds: float, seed: int
) -> tuple[list[float], list[str]]:
    """Requests in order: seconds from the start, and operations, at random independent moments.

    The seconds after the warm-up have exactly as many of each operation as `rates` (per second) give.
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
    return np.concatenate(times).tolist(), [names[index] for index in order]


def mixed(shares: Mapping[str, float], rate: float) -> dict[str, float]:
    """Rates of operations by their shares of `rate` per second in all."""
    total = sum(shares.values())
    return {name: rate * share / total for name, share in shares.items()}


CONNECTIONS = 64
_PATIENCE = 10.0  # s for answers after the last request
_JOB = re.compile(rb'"id":\s*"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Load:
    """Requests to the server at a port: operations per second by name, for how long (s).

    The first `warm_up` seconds are not measured. Without `tokens`, the one request of the constant server is
    sent. `acknowledged` adds the ids of everything written to the result.
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
        self._times, self._names = arrivals(load.rates, load.warm_up, load.seconds, load.seed)
        self._requests: ConstantRequests | StoreRequests = ConstantRequests()
        if load.tokens is not None and load.size is not None:
            self._requests = StoreRequests(StoreSize(**load.size), load.tokens, load.run, load.seed)
        self._client = OpenLoopClient(load.port, CONNECTIONS)
        self._latencies: dict[str, list[float]] = {}
        self._answered: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._acknowledged: list[tuple[str, str]] = []
        self._next = self._open = 0
        self._began = self._late = self._spent = 0.0
        self._all_sent, self._all_answered = asyncio.Event(), asyncio.Event()

    async def run(self) -> LoadResult:
        """Send all requests, and wait for the answers."""
        asyncio.get_running_loop().call_later(self._load.warm_up, self._measure)
        self._began = time.perf_counter()
        self._tick()
        await self._all_sent.wait()
        write_line(sent=True)
        cpus = (time.process_time() - self._spent) / self._load.seconds
        try:
            async with asyncio.timeout(_PATIENCE):
                while self._open:
                    self._all_answered.clear()
                    await self._all_answered.wait()
        except TimeoutError:
            self._errors["not answered"] += self._open
        await self._client.close()
        return LoadResult(
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
        write_line(begun=True)

    def _tick(self) -> None:
        """Send all requests that are due, and come again when the next one is."""
        while self._next < len(self._times):
            ahead = self._times[self._next] - (time.perf_counter() - self._began)
            if ahead > 0.0:
                asyncio.get_running_loop().call_later(ahead, self._tick)
                return
            self._late = max(self._late, -ahead)
            self._send(self._began + self._times[self._next], self._names[self._next])
            self._next += 1
        left = self._began + self._load.warm_up + self._load.seconds - time.perf_counter()
        asyncio.get_running_loop().call_later(max(0.0, left), self._all_sent.set)

    def _send(self, due: float, name: str) -> None:
        request = self._requests.request(name)
        counts = due >= self._began + self._load.warm_up
        self._open += 1

        def answered(status: int, body: bytes) -> None:
            seconds = time.perf_counter() - due
            self._open -= 1
            if not self._open:
                self._all_answered.set()
            if not 200 <= status < 300:
                self._errors[_error(request.name, status, body)] += 1
                return
            if counts:
                self._latencies.setdefault(request.name, []).append(seconds)
                self._answered[request.name] += not self._all_sent.is_set()
            if request.name == "jobs.submit" and (job := _JOB.search(body)):
                self._requests.submitted(request.token, job[1].decode())
            if self._load.acknowledged and request.data.startswith(b"POST"):
                self._acknowledged.append((request.name, _written(request.name, body)))

        self._client.send(request.data, answered)


def _written(name: str, body: bytes) -> str:
    """Identifies a written record: its id, or an outcome's decision and note."""
    answer = json.loads(body)
    if name == "outcomes.record":
        return f"{answer['decision_id']} {answer['note']}"
    return str(answer["items"][0]["id"] if name == "jobs.submit" else answer["id"])


def _error(name: str, status: int, body: bytes) -> str:
    if status == 0:
        return f"{name}: connection lost"
    try:
        return f"{name}: {status} {json.loads(body)['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"{name}: {status}"


def main() -> None:
    """Read a load, put it on the server, and print the result."""
    import uvloop

    gc.disable()  # it lives for a minute, and looking for garbage would make it late
    load = Load(**json.loads(sys.stdin.readline()))

    async def run() -> LoadResult:
        return await Generator(load).run()

    write_line(**asdict(uvloop.run(run())))


if __name__ == "__main__":
    main()
