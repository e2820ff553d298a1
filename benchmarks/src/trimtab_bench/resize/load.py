"""Requests for the services, the same for every policy, and how they are sent.

Four loads with the same mean: *fixed*, evenly spaced; *exponential*, independent of one another; *bursty*,
where one service after the other gets several times its load for two seconds; *trace*, in which times and
sizes are those of language-model requests to Azure, sped up.

An open-loop client sends requests when they are due, whether or not earlier ones have been answered. Latency
counts from when a request should have been sent, so a service that stalls is charged for every request that
had to wait. A request whose connection is lost is sent again until its time is up, as a patient client would.
"""

import asyncio
import contextlib
import csv
import gzip
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trimtab.core import BadInputError, NotFoundError
from trimtab_bench.open_loop import OpenLoopClient

Array = NDArray[np.float64]
LOADS = ("fixed", "exponential", "bursty", "trace")
_TRACES = ("azure_2023_conv.csv.gz", "azure_2023_code.csv.gz", "azure_2023_conv.csv.gz")
_BURST, _PAUSE = 2.0, 2.5  # s of a burst, and until the next
_LARGEST = 4.0  # times the mean: no single request is larger
DEADLINE = 10.0  # s after which an answer no longer counts
_CONNECTIONS = 256  # to a service: more than a stalled one ever leaves unanswered but in long stalls
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
    """Requests of all services for so many seconds; they follow from the seed."""
    random = np.random.default_rng([seed, LOADS.index(load)])
    if load == "bursty":
        return _bursty(services, seconds, random)
    requests = []
    for number, service in enumerate(services):
        if load == "trace":
            requests.append(_traced(service, seconds, random, data, _TRACES[number % len(_TRACES)]))
            continue
        count = round(service.rate * seconds)
        if load == "fixed":
            time = np.asarray((np.arange(count) + random.uniform()) / service.rate, dtype=np.float64)
            work = np.full(count, service.work)
        else:
            time = np.sort(random.uniform(0, seconds, count))
            work = _sizes(service, count, random)
        requests.append(ServiceRequests(time, work))
    return requests


def _bursty(
    services: tuple[ServiceLoad, ...], seconds: float, random: np.random.Generator
) -> list[ServiceRequests]:
    """A fixed load for every service; and bursts, one at a time, at the services in random order."""
    bursts: list[list[float]] = [[] for _ in services]
    start, order = random.uniform(0, _PAUSE), list(range(len(services)))
    while start < seconds:
        if not any(bursts) or len(order) == 0:
            order = list(range(len(services)))
        bursts[order.pop(int(random.integers(len(order))))].append(start)
        start += _BURST + _PAUSE * random.uniform(0.5, 1.5)
    requests = []
    for service, starts in zip(services, bursts, strict=True):
        time = [(np.arange(round(service.rate * seconds)) + random.uniform()) / service.rate]
        for start in starts:
            count = random.poisson(_BURST * max(0.0, service.burst_cpus / service.work - service.rate))
            time.append(start + random.uniform(0, _BURST, count))
        times = np.sort(np.concatenate(time))
        times = times[times < seconds]
        requests.append(ServiceRequests(times, _sizes(service, len(times), random)))
    return requests


def _traced(
    service: ServiceLoad, seconds: float, random: np.random.Generator, data: Path | None, name: str
) -> ServiceRequests:
    """A random stretch of the trace, as many requests as the mean rate gives, stretched to fit.

    A request's size is its tokens: a token out costs about as much as four in.
    """
    if data is None:
        raise BadInputError("the trace load needs --data, the folder that has llm-inference")
    path = data / "llm-inference" / name
    if not path.exists():
        raise NotFoundError(f"there is no {path}; --data names the folder that has llm-inference")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [
            (float(row["t_s"]), float(row["ContextTokens"]) / 4 + float(row["GeneratedTokens"]))
            for row in csv.DictReader(file)
        ]
    time, size = np.array(sorted(rows)).T
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


@dataclass(frozen=True, slots=True)
class Target:
    """Requests to a port: when each is due, in seconds from the start, and its path."""

    port: int
    time: tuple[float, ...]
    paths: tuple[str, ...]


def send(targets: Sequence[Target], start: float) -> list[Array]:
    """Send everything, from `start` (monotonic time) on; latencies in seconds, NaN where no answer came."""

    async def send_all() -> list[Array]:
        return list(await asyncio.gather(*(_send_to(target, start) for target in targets)))

    return asyncio.run(send_all())


async def _send_to(target: Target, start: float) -> Array:
    loop, client = asyncio.get_running_loop(), OpenLoopClient(target.port, _CONNECTIONS)
    latency = np.full(len(target.time), np.nan)
    waiting, all_answered = set(range(len(target.time))), asyncio.Event()

    def send(number: int) -> None:
        due = start + target.time[number]
        request = f"GET {target.paths[number]} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

        def answered(status: int, body: bytes) -> None:
            late = time.monotonic() - due
            if status == 0 and late + _AGAIN < DEADLINE:
                loop.call_later(_AGAIN, send, number)
                return
            if status != 0 and late <= DEADLINE:
                latency[number] = late
            waiting.discard(number)
            if not waiting:
                all_answered.set()

        client.send(request, answered)

    for number, due in enumerate(target.time):
        await asyncio.sleep(max(0.0, start + due - time.monotonic()))
        send(number)
    last = max(target.time, default=0.0)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(start + last + DEADLINE - time.monotonic()):
            if waiting:
                await all_answered.wait()
    await client.close()
    return latency
