"""How a decision touches the world."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trimtab.core.workload import Workload


@dataclass(frozen=True, slots=True)
class Node:
    """A machine an engine can run on: CPUs, bytes, and accelerators of one kind ("" where there are none)."""

    name: str
    cpus: float
    memory: float
    accelerator: str = ""
    gpus: int = 0
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A gang to start: so many workers on each node, and what each of them gets.

    `key` is the caller's own name for the run: launching a key twice starts it once. Every worker finds
    RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in its environment, besides `environment`.
    """

    key: str
    workload: Workload
    parts: tuple[tuple[str, int], ...]
    cpus: float
    memory: float
    gpus: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        """How many there are on all nodes together."""
        return sum(count for _, count in self.parts)


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """Something an engine saw: `what` is started, ended, failed or lost."""

    run_id: str
    time: float
    what: str
    detail: str = ""


class Engine(Protocol):
    """The only way to touch the world. Run ids are the engine's own and survive a restart of Trimtab."""

    def nodes(self) -> Sequence[Node]:
        """The machines that are there now."""
        ...

    def launch(self, launch: Launch) -> str:
        """Start it; the run's id, the same one for the same key."""
        ...

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None:
        """New limits of each worker, where the engine can; None leaves what is."""
        ...

    def signal(self, run_id: str, name: str) -> None:
        """Send every worker a signal such as "USR1", and go on."""
        ...

    def stop(self, run_id: str, grace: float = 10.0) -> None:
        """End it: SIGTERM first, killed after `grace` seconds; returns when it is gone."""
        ...

    def watch(self) -> Iterator[EngineEvent]:
        """Events since the last call; does not wait for more."""
        ...

    def running(self) -> Mapping[str, str]:
        """Ids of the runs that have not ended, with their keys; also those of an earlier Trimtab."""
        ...

    def log(self, run_id: str) -> Path:
        """The file with what the run has written."""
        ...
