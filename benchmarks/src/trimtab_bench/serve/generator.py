"""The process that asks. It sends when the plan says, by a free connection or as soon as there is one.

An answer's latency counts from the planned moment: what a slow answer holds up is not left out. It reads one
object from its input, says a line when it begins to measure and one when it has sent all, and answers with
one object.
"""

import asyncio
import gc
import json
import re
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from trimtab_bench.serve.arrivals import arrivals
from trimtab_bench.serve.latency import Measured
from trimtab_bench.serve.lines import Lines
from trimtab_bench.serve.operations import Asks, Constant, Operations, Request
from trimtab_bench.serve.saying import say
from trimtab_bench.serve.world import World

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
        self._lines = Lines(load.port, CONNECTIONS)
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
        await self._lines.open()
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
        self._lines.close()
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

        self._lines.ask(request.data, answered)

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
