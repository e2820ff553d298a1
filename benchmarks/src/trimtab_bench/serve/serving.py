"""The server on a large SQLite store: a mixed load with streams beside it, its ceiling, pages of lists."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trimtab.store import open_store
from trimtab_bench.serve import store, streams
from trimtab_bench.serve.load import Load, Measured, latency, mixed
from trimtab_bench.serve.processes import Server, child, up
from trimtab_bench.serve.requests import READS, WRITES, Operations
from trimtab_bench.serve.store import EVERYBODY, TENANTS, World, copy_to, kept_store, make_tokens

LIMIT_MS = 50.0
"""Milliseconds that one answer in a hundred may take longer than."""

_FACTOR = 1.2
_ARRIVED = 0.97  # of what was sent must have been answered within the time


@dataclass(frozen=True, slots=True)
class Step:
    """What was seen at a rate: answers per second, their p99 in milliseconds, failures, the server's CPUs."""

    rate: float
    reached: float
    p99_ms: float
    errors: int
    server_cpus: float
    generator_cpus: float

    @property
    def stood(self) -> bool:
        """Whether the server kept up."""
        return self.errors == 0 and self.p99_ms < LIMIT_MS and self.reached >= _ARRIVED * self.rate


def steps_to_ceiling(measure: Callable[[float], Step], start: float, most: int) -> list[Step]:
    """At most so many steps from a rate on."""
    found = [measure(start)]
    factor = _FACTOR if found[0].stood else 1.0 / _FACTOR
    while len(found) < most and found[-1].stood is found[0].stood:
        found.append(measure(found[-1].rate * factor))
    return found


def ceiling(steps: list[Step]) -> float:
    """The most answers per second of a step that the server stood; 0 where it stood none."""
    return max((step.reached for step in steps if step.stood), default=0.0)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of a load; `server_cpus` is CPU time of the server per second."""

    seen: Measured
    server_cpus: float

    def figures(self) -> dict[str, Any]:
        """Rates, latencies in milliseconds, failures and CPUs; reads and writes apart."""
        told: dict[str, Any] = {}
        for name, names in (("reads", (*READS, "constant")), ("writes", tuple(WRITES))):
            if any(each in self.seen.latencies for each in names):
                told[name] = {"per_s": self.seen.per_second(names), **asdict(self.seen.of(names))}
        return told | {
            "errors": self.seen.failed,
            "server_cpus": self.server_cpus,
            "generator_cpus": self.seen.cpus,
            "generator_late_ms": self.seen.late * 1e3,
        }

    def by_operation(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Latencies in milliseconds of each operation that was asked."""
        return {name: asdict(self.seen.of([name])) for name in names if name in self.seen.latencies}


def loaded(server: Server, load: Load) -> Loaded:
    """Put a load on a server."""
    with child("load") as generator:
        generator.tell(asdict(load))
        generator.heard()
        before = server.cpu_seconds()
        generator.heard()
        cpus = (server.cpu_seconds() - before) / load.seconds
        told = generator.heard()
    return Loaded(Measured(**told), cpus)


LISTS = tuple(name for name in READS if ".list " in name)
"""Reads that are pages of lists."""


def page_figures(
    server: Server, size: World, tokens: Mapping[str, str], times: int, seed: int
) -> dict[str, Any]:
    """Latencies (ms) of each list, read `times` by tenants in turn and as often by an admin of all."""
    requests = Operations(size, tokens, "pages", seed)
    found = {}
    with contextlib.ExitStack() as stack:
        connections = {name: stack.enter_context(server.connection(text)) for name, text in tokens.items()}
        for name in LISTS:
            for who, callers in (("one tenant", TENANTS), ("all tenants", 0)):
                took = list[float]()
                for number in range(times):
                    whose = number % callers if callers else None
                    path = requests.path(name, whose)
                    began = time.perf_counter()
                    connections[EVERYBODY if whose is None else store.tenant(whose)]("GET", path)
                    took.append(time.perf_counter() - began)
                found[f"{name}, {who}"] = asdict(latency(took))
    return found


ENGINE = "local://?gpus=1&accelerator=t4"
"""An accelerator that is only a number; no tenant may have it, so what is submitted waits."""

READS_PER_S, WRITES_PER_S = 1530.0, 306.0
"""A little more than is aimed at, because what is under way when the time is over does not count."""

_NO_LIMIT = ("--rate-limit", "100000")  # counted, but no caller reaches it


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: seconds of the load and of a step, steps, streams, requests for each list."""

    size: World
    warm_up: float
    seconds: float
    step_warm_up: float
    step_seconds: float
    steps: int
    streams: int
    pages: int


@dataclass(frozen=True, slots=True)
class Bench:
    """A server on a copy of a filled store, and who may ask it."""

    server: Server
    file: Path
    tokens: dict[str, str]
    effort: Effort
    seed: int

    def load(self, reads: float, writes: float, warm_up: float, seconds: float, run: str) -> Loaded:
        """Put a mixed load on it."""
        rates = mixed(READS, reads) | (mixed(WRITES, writes) if writes else {})
        load = Load(
            self.server.port, rates, warm_up, seconds, self.seed, run, self.tokens, asdict(self.effort.size)
        )
        return loaded(self.server, load)

    def step(self, rate: float, share_of_writes: float) -> Step:
        """One step on the way to its ceiling: `rate` requests per second, a share of which write."""
        writes = share_of_writes * rate
        run = f"step-{rate:.0f}-{share_of_writes:.2f}"
        seen = self.load(rate - writes, writes, self.effort.step_warm_up, self.effort.step_seconds, run)
        return step_of(rate, seen)


def step_of(rate: float, seen: Loaded) -> Step:
    """What a load says about a rate."""
    names = tuple(seen.seen.latencies)
    worst = max(seen.seen.of(each).p99_ms for each in (READS, WRITES, ("constant",)) if {*each} & {*names})
    reached = seen.seen.per_second(names)
    return Step(rate, reached, worst, seen.seen.failed, seen.server_cpus, seen.seen.cpus)


@contextlib.contextmanager
def bench(folder: Path, effort: Effort, seed: int) -> Iterator[Bench]:
    """The server at work, as a user would start it."""
    file = folder / "store.sqlite"
    copy_to(file, kept_store(effort.size))
    url = f"sqlite:///{file}"
    with open_store(url) as store:
        tokens = make_tokens(store)
    with up(folder / "home", url, "--engine", ENGINE, *_NO_LIMIT) as server:
        yield Bench(server, file, tokens, effort, seed)


def serving_figures(folder: Path, effort: Effort, seed: int) -> dict[str, Any]:
    """All of it."""
    share = WRITES_PER_S / (READS_PER_S + WRITES_PER_S)
    with bench(folder, effort, seed) as at:
        listed = page_figures(at.server, effort.size, at.tokens, effort.pages, seed)
        with streams.listening(at.server, at.file, at.tokens, effort.streams) as listening:
            seen = at.load(READS_PER_S, WRITES_PER_S, effort.warm_up, effort.seconds, "load")
            listening.close()
        told: dict[str, Any] = {
            "lists": listed,
            "load": seen.figures() | {"failures": dict(seen.seen.errors)},
            "operations": seen.by_operation((*READS, *WRITES)),
            "streams": listening.figures,
            "memory_mib": at.server.memory() / 2**20,
            "ready_s": at.server.ready,
        }
        with streams.listening(at.server, at.file, at.tokens, effort.streams) as listening:
            told["steps"] = _steps(at, READS_PER_S + WRITES_PER_S, share)
            listening.close()
        told["streams_at_ceiling"] = listening.figures
        told["steps_of_reads"] = _steps(at, READS_PER_S, 0.0)
    return told


def _steps(at: Bench, start: float, share: float) -> dict[str, dict[str, Any]]:
    found = steps_to_ceiling(lambda rate: at.step(rate, share), start, at.effort.steps)
    return by_rate(found)


def by_rate(steps: Sequence[Step]) -> dict[str, dict[str, Any]]:
    """Steps as plain data, by what was asked per second."""
    return {f"{step.rate:.0f}": asdict(step) for step in steps}
