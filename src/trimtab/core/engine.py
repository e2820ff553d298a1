"""Interfaces to the world: engines, which run jobs, and clocks, which are real or simulated."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from trimtab.core.units import MIB
from trimtab.core.workload import Workload

DEFAULT_PROCESSES = 4096
"""Processes and threads that each worker may have where a job does not say."""

DEFAULT_LOG = 64.0 * MIB
"""Bytes of output that are kept of a run where its job does not say."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of an engine: CPUs, bytes of memory, and accelerators of one kind ("" for none)."""

    name: str
    cpus: float
    memory: float
    accelerator: str = ""
    gpus: int = 0
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A gang to start: `parts` are workers by node; `cpus`, `memory` (bytes) and `gpus` are per worker.

    `key` is the caller's own name for the run: launching a key twice starts it once. Every worker finds
    RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in its environment, besides `environment`.
    `processes` bounds the processes and threads of each worker, `log` the bytes of output that are kept,
    where the engine can.
    """

    key: str
    workload: Workload
    parts: tuple[tuple[str, int], ...]
    cpus: float
    memory: float
    gpus: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: int = DEFAULT_PROCESSES
    log: float = DEFAULT_LOG

    @property
    def workers(self) -> int:
        """Workers on all nodes together."""
        return sum(count for _, count in self.parts)


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """A change of a run: `what` is started, ended, failed or lost."""

    run_id: str
    time: float
    what: str
    detail: str = ""


class Engine(Protocol):
    """Runs jobs. Run ids are the engine's own and survive a restart of Trimtab."""

    def nodes(self) -> Sequence[Node]:
        """The present machines."""
        ...

    def launch(self, launch: Launch) -> str:
        """Start a gang; the run's id, equal for equal keys."""
        ...

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None:
        """Set new limits of each worker, where the engine can; None keeps a limit."""
        ...

    def signal(self, run_id: str, name: str) -> None:
        """Send every worker a signal such as "USR1"; does not wait."""
        ...

    def execute(
        self, run_id: str, command: Sequence[str], environment: Mapping[str, str], timeout: float
    ) -> int | None:
        """Run a command where the run's first worker runs, under its limits; returns the exit status.

        The command gets the worker's environment; `environment` is that of the launch, for engines that
        cannot read the worker's. None if it has not ended after `timeout` seconds.
        """
        ...

    def stop(self, run_id: str, grace: float = 10.0) -> None:
        """Send SIGTERM, kill after `grace` seconds; returns when the run has ended."""
        ...

    def watch(self) -> Iterator[EngineEvent]:
        """Events since the last call; does not wait."""
        ...

    def running(self) -> Mapping[str, str]:
        """Keys by id of the runs that have not ended, also those of an earlier process."""
        ...

    def log(self, run_id: str) -> Path:
        """The file with the run's output."""
        ...


@runtime_checkable
class WaitingEngine(Protocol):
    """An engine that can wait for the end of a run, so that it need not be polled often."""

    def wait(self, seconds: float) -> None:
        """Return when a run ends, or after `seconds`."""
        ...


@runtime_checkable
class Clock(Protocol):
    """A source of time, in seconds."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...


class RealClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


class SimulatedClock:
    """A clock that only `sleep` and `advance` move; `sleep` returns at once."""

    def __init__(self, start: float = 0.0) -> None:
        self._start = start
        self._elapsed = 0.0

    def now(self) -> float:
        return self._start + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        if not seconds >= 0:
            raise ValueError(f"the clock cannot advance by {seconds} s; time does not run backwards")
        self._elapsed += seconds
