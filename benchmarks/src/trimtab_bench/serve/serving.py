"""The server on a large SQLite store: a mixed load with streams beside it, its ceiling, pages of lists."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trimtab.store import open_store
from trimtab_bench.serve import ceiling, pages, streams
from trimtab_bench.serve.arrivals import mixed
from trimtab_bench.serve.ceiling import Step
from trimtab_bench.serve.filled import copy_to, kept_store
from trimtab_bench.serve.generator import Load
from trimtab_bench.serve.loading import Loaded, loaded
from trimtab_bench.serve.operations import READS, WRITES
from trimtab_bench.serve.processes import Server, up
from trimtab_bench.serve.tokens import make_tokens
from trimtab_bench.serve.world import World

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
        listed = pages.page_figures(at.server, effort.size, at.tokens, effort.pages, seed)
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
    found = ceiling.steps_to_ceiling(lambda rate: at.step(rate, share), start, at.effort.steps)
    return by_rate(found)


def by_rate(steps: Sequence[Step]) -> dict[str, dict[str, Any]]:
    """Steps as plain data, by what was asked per second."""
    return {f"{step.rate:.0f}": asdict(step) for step in steps}
