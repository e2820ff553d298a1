"""Jobs, a store, and an engine that lives in memory and outlives whoever drives it."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from job_texts import parse_jobs

from trimtab.core import EngineEvent, Launch, Node, NotFoundError, TrimtabError
from trimtab.schedule import Submission
from trimtab.schedule.loop.journal import RestartRules
from trimtab.schedule.loop.runs import LoopSettings
from trimtab.schedule.loop.scheduler import Scheduler
from trimtab.schedule.policies import policy
from trimtab.store import Store, open_store


class MemoryEngine:
    """Runs last until somebody ends them. Events are told again until the one after is asked for."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.machines = list(nodes)
        self.away, self.refused = False, 0
        self.launches = list[Launch]()
        self.runs = dict[str, str]()
        self.over = set[str]()
        self.signals = list[tuple[str, str]]()
        self.untold = list[EngineEvent]()

    def _there(self) -> None:
        if self.away:
            self.refused += 1
            raise TrimtabError("the engine does not answer")

    def nodes(self) -> Sequence[Node]:
        self._there()
        return self.machines

    def launch(self, launch: Launch) -> str:
        self._there()
        run_id = f"run-{launch.key}"
        if run_id not in self.runs:
            self.runs[run_id] = launch.key
            self.launches.append(launch)
            self.untold.append(EngineEvent(run_id, time.time(), "started"))
        return run_id

    def resize(self, run_id: str, cpus: float | None, memory: float | None) -> None: ...

    def signal(self, run_id: str, name: str) -> None:
        self._there()
        if run_id in self.over:
            raise NotFoundError("it has ended")
        self.signals.append((run_id, name))

    def execute(
        self, run_id: str, command: Sequence[str], environment: Mapping[str, str], timeout: float
    ) -> int | None:
        self._there()
        try:
            variables = {"PATH": os.environ["PATH"], **environment}
            return subprocess.run(command, env=variables, timeout=timeout, check=False).returncode
        except subprocess.TimeoutExpired:
            return None

    def stop(self, run_id: str, grace: float = 10.0) -> None:
        self._there()
        if run_id not in self.over:
            self.end(run_id, "ended", "stopped, status 143")

    def watch(self) -> Iterator[EngineEvent]:
        self._there()
        for event in list(self.untold):
            yield event
            self.untold.remove(event)

    def running(self) -> Mapping[str, str]:
        self._there()
        return {run_id: key for run_id, key in self.runs.items() if run_id not in self.over}

    def log(self, run_id: str) -> Path:
        raise NotFoundError("nothing was written")

    def end(self, run_id: str, what: str = "ended", detail: str = "status 0") -> None:
        """A run ends."""
        self.over.add(run_id)
        self.untold.append(EngineEvent(run_id, time.time(), what, detail))

    def keys(self) -> list[str]:
        """Keys of all that was ever started, in order."""
        return [launch.key for launch in self.launches]


@pytest.fixture
def memory_engine() -> Callable[..., MemoryEngine]:
    """Two nodes with two accelerators each, or others."""

    def make(*nodes: Node) -> MemoryEngine:
        return MemoryEngine(nodes or [Node(f"n{n}", 8.0, 2.0**34, "T4", 2) for n in (1, 2)])

    return make


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.sqlite") as opened:
        yield opened


@pytest.fixture
def submit(store: Store) -> Callable[..., Submission]:
    """Hand in a job by its id and a few lines of YAML."""

    def hand_in(id: str, text: str = "", command: str = "'true'") -> Submission:
        (job,) = parse_jobs(f"name: {id}\ncommand: {command}\n{text}", "job.yaml")
        named = job.named(id, time.time())
        store.jobs.submit([named.record()])
        return named

    return hand_in


@pytest.fixture
def scheduler(store: Store) -> Callable[..., Scheduler]:
    """A scheduler that looks often."""

    def make(engine: object, name: str = "fifo", **settings: object) -> Scheduler:
        at_once = RestartRules(first=0.0)
        usual = {"round": 0.2, "look": 0.02, "grace": 0.5, "restarts": at_once, **settings}
        return Scheduler(store, engine, policy(name), name, LoopSettings(**usual))  # type: ignore[arg-type]

    return make
