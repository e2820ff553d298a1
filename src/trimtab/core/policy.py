"""How a decision is asked for, and how it touches the world."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from trimtab.core.decision import Decision
from trimtab.core.offer import Configuration
from trimtab.core.workload import Workload

State = TypeVar("State", contravariant=True)


class Policy(Protocol[State]):
    """A pure function of the state it is shown; clock and random source are part of that state."""

    def decide(self, state: State) -> Decision: ...


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """Something an engine saw: `what` is started, progressed, ended, failed or lost."""

    run_id: str
    time: float
    what: str
    detail: str = ""


class Engine(Protocol):
    """The only way to touch the world. Run ids are the engine's own and survive a restart of Trimtab."""

    def launch(self, workload: Workload, configuration: Configuration) -> str: ...

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None: ...

    def stop(self, run_id: str) -> None: ...

    def watch(self) -> Iterator[EngineEvent]: ...
