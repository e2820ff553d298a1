"""The server on a large SQLite store: a mixed load with event streams, its ceiling, pages of lists."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trimtab.store import open_store
from trimtab_bench.harness import seconds_of
from trimtab_bench.processes import child
from trimtab_bench.serve import store, streams
from trimtab_bench.serve.load import Load, LoadResult, latency, mixed
from trimtab_bench.serve.processes import ServerProcess, up
from trimtab_bench.serve.requests import READS, WRITES, StoreRequests
from trimtab_bench.serve.store import ALL_TENANTS, PRICE, TENANTS, StoreSize, copy_to, kept_store, make_tokens

LIMIT_MS = 50.0
"""Milliseconds that one answer in a hundred may take longer than."""

_FACTOR = 1.2
_ARRIVED = 0.97  # of what was sent must have been answered within the time


@dataclass(frozen=True, slots=True)
class RateStep:
    """Measurements at a rate: answers per second, their p99 in milliseconds, failures, CPUs."""

    rate: float
    reached: float
    p99_ms: float
    errors: int
    server_cpus: float
    generator_cpus: float

    @property
    def stood(self) -> bool:
        """Whether the server kept up with the rate."""
        return self.errors == 0 and self.p99_ms < LIMIT_MS and self.reached >= _ARRIVED * self.rate


def steps_to_ceiling(measure: Callable[[float], RateStep], start: float, most: int) -> list[RateStep]:
    """At most so many steps, up from a rate until one fails, or down until one is stood."""
    steps = [measure(start)]
    factor = _FACTOR if steps[0].stood else 1.0 / _FACTOR
    while len(steps) < most and steps[-1].stood is steps[0].stood:
        steps.append(measure(steps[-1].rate * factor))
    return steps


def ceiling(steps: list[RateStep]) -> float:
    """The most answers per second of a step that the server stood; 0 where it stood none."""
    return max((step.reached for step in steps if step.stood), default=0.0)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Result of a load; `server_cpus` is CPU time of the server per second."""

    result: LoadResult
    server_cpus: float

    def figures(self) -> dict[str, Any]:
        """Rates, latencies in milliseconds, failures and CPUs; reads and writes apart."""
        figures: dict[str, Any] = {}
        for name, operations in (("reads", (*READS, "constant")), ("writes", tuple(WRITES))):
            if any(operation in self.result.latencies for operation in operations):
                latencies = asdict(self.result.of(operations))
                figures[name] = {"per_s": self.result.per_second(operations), **latencies}
        return figures | {
            "errors": self.result.failed,
            "server_cpus": self.server_cpus,
            "generator_cpus": self.result.cpus,
            "generator_late_ms": self.result.late * 1e3,
        }

    def by_operation(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Latencies in milliseconds of each operation in the load."""
        return {name: asdict(self.result.of([name])) for name in names if name in self.result.latencies}

    def step(self, rate: float) -> RateStep:
        """This load as a step on the way to the ceiling."""
        result, names = self.result, tuple(self.result.latencies)
        groups = [group for group in (READS, WRITES, ("constant",)) if {*group} & {*names}]
        p99 = max(result.of(group).p99_ms for group in groups)
        return RateStep(rate, result.per_second(names), p99, result.failed, self.server_cpus, result.cpus)


def loaded(server: ServerProcess, load: Load) -> Loaded:
    with child("-m", "trimtab_bench.serve.load") as generator:
        generator.send(asdict(load))
        generator.receive()
        before = server.cpu_seconds()
        generator.receive()
        cpus = (server.cpu_seconds() - before) / load.seconds
        return Loaded(LoadResult(**generator.receive()), cpus)


LISTS = tuple(name for name in READS if ".list " in name)
"""Reads that are pages of lists."""


def page_figures(
    server: ServerProcess, size: StoreSize, tokens: Mapping[str, str], times: int, seed: int
) -> dict[str, Any]:
    """Latencies (ms) of each list, read `times` by tenants in turn and as often by an admin of all."""
    requests = StoreRequests(size, tokens, "pages", seed)
    figures = {}
    with contextlib.ExitStack() as stack:
        connections = {name: stack.enter_context(server.connection(text)) for name, text in tokens.items()}
        for name in LISTS:
            for callers, single in (("one tenant", True), ("all tenants", False)):
                seconds = list[float]()
                for number in range(times):
                    owner = number % TENANTS if single else None
                    path = requests.path(name, owner)
                    connection = connections[ALL_TENANTS if owner is None else store.tenant(owner)]
                    seconds.append(seconds_of(partial(connection, "GET", path)))
                figures[f"{name}, {callers}"] = asdict(latency(seconds))
    return figures


ENGINE = ("--engine", "local://?gpus=1&accelerator=t4", *PRICE)
"""An accelerator that is only a number; submitted jobs cannot afford it and wait."""

READS_PER_S, WRITES_PER_S = 1530.0, 306.0
"""A little more than the goals, because open requests at the end do not count."""

_NO_LIMIT = ("--rate-limit", "100000")  # counted, but no caller reaches it


@dataclass(frozen=True, slots=True)
class ServeEffort:
    """How much is measured: seconds of the load and of a step, steps, streams, requests for each list."""

    size: StoreSize
    warm_up: float
    seconds: float
    step_warm_up: float
    step_seconds: float
    steps: int
    streams: int
    pages: int


@dataclass(frozen=True, slots=True)
class BenchServer:
    """A server on a copy of a filled store, with tokens by tenant."""

    server: ServerProcess
    file: Path
    tokens: dict[str, str]
    effort: ServeEffort
    seed: int

    def load(self, reads: float, writes: float, warm_up: float, seconds: float, run: str) -> Loaded:
        """Put a mixed load on it, of so many reads and writes per second."""
        rates = mixed(READS, reads) | (mixed(WRITES, writes) if writes else {})
        size = asdict(self.effort.size)
        load = Load(self.server.port, rates, warm_up, seconds, self.seed, run, self.tokens, size)
        return loaded(self.server, load)

    def step(self, rate: float, share_of_writes: float) -> RateStep:
        """One step on the way to its ceiling: `rate` requests per second, a share of which write."""
        writes = share_of_writes * rate
        run = f"step-{rate:.0f}-{share_of_writes:.2f}"
        effort = self.effort
        return self.load(rate - writes, writes, effort.step_warm_up, effort.step_seconds, run).step(rate)

    def steps(self, start: float, share_of_writes: float) -> dict[str, dict[str, Any]]:
        """Steps to the ceiling, by their rate."""
        return by_rate(
            steps_to_ceiling(lambda rate: self.step(rate, share_of_writes), start, self.effort.steps)
        )


@contextlib.contextmanager
def bench(folder: Path, effort: ServeEffort, seed: int) -> Iterator[BenchServer]:
    """The server at work, as a user would start it."""
    file = folder / "store.sqlite"
    copy_to(file, kept_store(effort.size))
    url = f"sqlite:///{file}"
    with open_store(url) as opened:
        tokens = make_tokens(opened)
    with up(folder / "home", url, *ENGINE, *_NO_LIMIT) as server:
        yield BenchServer(server, file, tokens, effort, seed)


def serving_figures(folder: Path, effort: ServeEffort, seed: int) -> dict[str, Any]:
    """Lists, the load with event streams, and the ceilings."""
    share = WRITES_PER_S / (READS_PER_S + WRITES_PER_S)
    with bench(folder, effort, seed) as at:
        lists = page_figures(at.server, effort.size, at.tokens, effort.pages, seed)
        with streams.listening(at.server, at.file, at.tokens, effort.streams) as listening:
            load = at.load(READS_PER_S, WRITES_PER_S, effort.warm_up, effort.seconds, "load")
            listening.close()
        figures: dict[str, Any] = {
            "lists": lists,
            "load": load.figures() | {"failures": dict(load.result.errors)},
            "operations": load.by_operation((*READS, *WRITES)),
            "streams": listening.figures,
            "memory_mib": at.server.memory() / 2**20,
            "ready_s": at.server.ready,
        }
        with streams.listening(at.server, at.file, at.tokens, effort.streams) as listening:
            figures["steps"] = at.steps(READS_PER_S + WRITES_PER_S, share)
            listening.close()
        figures["streams_at_ceiling"] = listening.figures
        figures["steps_of_reads"] = at.steps(READS_PER_S, 0.0)
    return figures


def by_rate(steps: Sequence[RateStep]) -> dict[str, dict[str, Any]]:
    return {f"{step.rate:.0f}": asdict(step) for step in steps}
