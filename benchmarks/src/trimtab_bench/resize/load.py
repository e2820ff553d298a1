"""Requests for the services, and the open-loop client that sends them. They are the same for every policy.

Four loads with the same mean: *fixed*, evenly spaced; *exponential*, independent of one another; *bursty*,
where one service after the other gets several times its load for two seconds; *trace*, in which times and
sizes are those of language-model requests to Azure, sped up.

The client sends requests when they are due, whether or not earlier ones have been answered. Latency counts
from when a request should have been sent, so a service that stalls is charged for every request that had to
wait. A request that fails is sent again until its time is up, as a patient client would.
"""

import asyncio
import csv
import gzip
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError, NotFoundError

Array = NDArray[np.float64]
LOADS = ("fixed", "exponential", "bursty", "trace")
_TRACES = ("azure_2023_conv.csv.gz", "azure_2023_code.csv.gz", "azure_2023_conv.csv.gz")
_BURST, _PAUSE = 2.0, 2.5  # s of a burst, and until the next
_LARGEST = 4.0  # times the mean: no single request is larger
DEADLINE = 10.0  # s after which nobody waits for an answer any more
_AGAIN = 0.05  # s between two attempts


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """A service's mean load, and the load of a burst."""

    role: str
    rate: float  # requests per s
    work: float  # CPU s per request
    burst_cpus: float  # CPUs that a burst asks for
    keep: int = 0  # bytes that a request leaves behind
    seconds: float = 0.0  # for so long


@dataclass(frozen=True, slots=True, eq=False)
class ServiceRequests:
    """Requests of one service, in the order of their times (s from the start)."""

    time: Array
    work: Array  # CPU s

    def __len__(self) -> int:
        return len(self.time)


def arrivals(
    load: str, services: tuple[ServiceLoad, ...], seconds: float, seed: int, data: Path | None = None
) -> list[ServiceRequests]:
    """Everyone's requests for so many seconds; the same seed gives the same."""
    random = np.random.default_rng([seed, LOADS.index(load)])
    if load == "bursty":
        return _bursty(services, seconds, random)
    made = []
    for number, service in enumerate(services):
        if load == "trace":
            made.append(_traced(service, seconds, random, _trace_file(data, number)))
            continue
        count = round(service.rate * seconds)
        if load == "fixed":
            time = np.asarray((np.arange(count) + random.uniform()) / service.rate, dtype=np.float64)
            work = np.full(count, service.work)
        else:
            time = np.sort(random.uniform(0, seconds, count))
            work = _sizes(service, count, random)
        made.append(ServiceRequests(time, work))
    return made


def _bursty(
    services: tuple[ServiceLoad, ...], seconds: float, random: np.random.Generator
) -> list[ServiceRequests]:
    """A fixed load for everyone; and bursts, one at a time, at the services in random order."""
    bursts: list[list[float]] = [[] for _ in services]
    start, order = random.uniform(0, _PAUSE), list(range(len(services)))
    while start < seconds:
        if not any(bursts) or len(order) == 0:
            order = list(range(len(services)))
        bursts[order.pop(int(random.integers(len(order))))].append(start)
        start += _BURST + _PAUSE * random.uniform(0.5, 1.5)
    made = []
    for service, starts in zip(services, bursts, strict=True):
        time = [(np.arange(round(service.rate * seconds)) + random.uniform()) / service.rate]
        for start in starts:
            count = random.poisson(_BURST * max(0.0, service.burst_cpus / service.work - service.rate))
            time.append(start + random.uniform(0, _BURST, count))
        everyone = np.sort(np.concatenate(time))
        everyone = everyone[everyone < seconds]
        made.append(ServiceRequests(everyone, _sizes(service, len(everyone), random)))
    return made


def _traced(service: ServiceLoad, seconds: float, random: np.random.Generator, path: Path) -> ServiceRequests:
    """A random stretch of the trace, as many requests as the mean rate asks for, stretched to fit."""
    time, size = _trace(path)
    count = min(round(service.rate * seconds), len(time) - 1)
    start = int(random.integers(len(time) - count))
    stretch = slice(start, start + count)
    first, after = time[start], time[start + count]
    work = size[stretch] / size.mean() * service.work
    return ServiceRequests(
        (time[stretch] - first) / (after - first) * seconds, np.minimum(work, _LARGEST * service.work)
    )


def _sizes(service: ServiceLoad, count: int, random: np.random.Generator) -> Array:
    return np.minimum(random.gamma(4.0, service.work / 4.0, count), _LARGEST * service.work)


def _trace_file(data: Path | None, number: int) -> Path:
    if data is None:
        raise BadInputError("the trace load needs --data, the folder that has llm-inference")
    path = data / "llm-inference" / _TRACES[number % len(_TRACES)]
    if not path.exists():
        raise NotFoundError(f"there is no {path}; --data names the folder that has llm-inference")
    return path


def _trace(path: Path) -> tuple[Array, Array]:
    """Arrival times, and tokens in and out as a size: a token out costs about as much as four in."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [
            (float(row["t_s"]), float(row["ContextTokens"]) / 4 + float(row["GeneratedTokens"]))
            for row in csv.DictReader(file)
        ]
    table = np.array(sorted(rows))
    return table[:, 0], table[:, 1]


@dataclass(frozen=True, slots=True)
class Target:
    """Requests to a port: when each is due, in seconds from the start, and what it asks for."""

    port: int
    time: tuple[float, ...]
    paths: tuple[str, ...]


def send(targets: Sequence[Target], start: float) -> list[NDArray[np.float64]]:
    """Send everything, from `start` (monotonic time) on; latencies in seconds, NaN where nobody answered."""
    return asyncio.run(_send_all(targets, start))


async def _send_all(targets: Sequence[Target], start: float) -> list[NDArray[np.float64]]:
    return list(await asyncio.gather(*(_send_to(target, start) for target in targets)))


async def _send_to(target: Target, start: float) -> NDArray[np.float64]:
    idle: list[_Connection] = []
    waiting = []
    for due, path in zip(target.time, target.paths, strict=True):
        left = start + due - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
        waiting.append(asyncio.create_task(_answered(target.port, path, start + due, idle)))
    latency = await asyncio.gather(*waiting)
    for connection in idle:
        connection.close()
    return np.array(latency, dtype=float)


async def _answered(port: int, path: str, due: float, idle: list["_Connection"]) -> float:
    while (left := due + DEADLINE - time.monotonic()) > 0:
        connection = None
        try:
            async with asyncio.timeout(left):
                connection = idle.pop() if idle else await _Connection.to(port)
                await connection.ask(path)
        except (OSError, EOFError, TimeoutError):
            if connection is not None:
                connection.close()
            await asyncio.sleep(_AGAIN)
            continue
        idle.append(connection)
        return time.monotonic() - due
    return float("nan")


class _Connection:
    """A connection that is used again."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> "_Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, path: str) -> None:
        """Send a request and read its answer, whose body is two bytes."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await self._reader.readuntil(b"\r\n\r\n")
        await self._reader.readexactly(2)

    def close(self) -> None:
        self._writer.close()
