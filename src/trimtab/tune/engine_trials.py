"""Trials on any engine: launched as a gang, followed by what they print, stopped when enough was seen."""

import contextlib
import math
import shlex
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from trimtab.collect import Shape, StepLines, TrainingJob, WorkerEndedError
from trimtab.core import BadInputError, Engine, EngineEvent, Launch, Node, Workload
from trimtab.engines import engine
from trimtab.observe import Interrupts
from trimtab.tune.job_space import Setup
from trimtab.tune.trials import Effort, Running

_PAUSE = 0.2  # s between two looks at a log
_GRACE = 2.0  # s that workers have to end; there is nothing to save
_LONGEST = 40.0  # windows, after which a run ends itself where nobody is left to stop it
_MARGIN = 120.0  # s on top of that
_FINAL = ("ended", "failed", "lost")
_LAST_WORDS = 200  # characters


class EngineTrials:
    """Launches every trial on the engine that a URL names; its runs are kept apart from those of others."""

    def __init__(self, url: str, folder: Path) -> None:
        self.name = url
        self._engine = engine(url, folder)
        self._nodes = tuple(self._engine.nodes())

    def has_room(self, setup: Setup) -> bool:
        """Whether the nodes could ever hold it."""
        return spread(setup, self._nodes) is not None

    @contextlib.contextmanager
    def started(self, job: TrainingJob, setup: Setup, effort: Effort) -> Iterator[Running]:
        run_id = None
        try:
            with _uninterrupted():
                run_id = self._launched(_launch(job, setup, effort, self._nodes))
            run = EngineRun(self._engine, run_id, setup.workers)
            run.wait_for_nodes()
            yield run
        finally:
            if run_id is not None:
                self._stop(run_id)

    def clear(self) -> None:
        for run_id in self._engine.running():
            self._stop(run_id)

    def _launched(self, launch: Launch) -> str:
        try:
            return self._engine.launch(launch)
        except BadInputError as error:  # not this configuration; another may do
            raise WorkerEndedError(f"it cannot be launched: {error}") from None

    def _stop(self, run_id: str) -> None:
        with _uninterrupted():
            self._engine.stop(run_id, _GRACE)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """What is begun within is finished; who has asked for an end meanwhile is heard afterwards."""
    with Interrupts() as interrupts:
        yield
    if interrupts.received is not None:
        raise KeyboardInterrupt


class EngineRun:
    """Workers on an engine, as far as one can see them from here: by what they print, and how they end."""

    def __init__(self, engine: Engine, run_id: str, workers: int) -> None:
        self.lines = StepLines()
        self._engine, self._run_id, self._workers = engine, run_id, workers
        self._read = 0  # bytes of the log so far
        self._started = False
        self._end: EngineEvent | None = None

    def __len__(self) -> int:
        return self._workers

    def wait_for_nodes(self) -> None:
        """Until they have started, however long the engine's queue is."""
        while not self._started:
            self._look()
            time.sleep(_PAUSE)

    def listen(self, seconds: float) -> None:
        """Take in what was printed; raises when they have ended."""
        until = time.monotonic() + seconds
        while not self._look() and time.monotonic() < until:
            time.sleep(_PAUSE)

    def _look(self) -> bool:
        """Whether there were new steps."""
        self._hear()
        known = len(self.lines.steps)
        with self._engine.log(self._run_id).open("rb") as log:
            log.seek(self._read)
            said = log.read()
        self._read += len(said)
        self.lines.feed(said)
        if self._end is not None:
            raise WorkerEndedError(self._how_it_ended(self._end))
        return len(self.lines.steps) > known

    def _hear(self) -> None:
        for event in self._engine.watch():
            if event.run_id == self._run_id:
                self._started = True  # also where the first that is heard of it is its end
                self._end = event if event.what in _FINAL else self._end

    def _how_it_ended(self, end: EngineEvent) -> str:
        if end.what == "ended":
            return f"it ended by itself after {len(self.lines.steps)} steps; give it more epochs"
        said = f": {self.lines.last_words:.{_LAST_WORDS}}" if self.lines.last_words else ""
        return f"it {end.what}, {end.detail}{said}"

    def out_of_memory(self) -> bool:
        """Whether the engine says so of its end."""
        return self._end is not None and "out of memory" in self._end.detail

    def shape(self, shape: Shape) -> None:
        """It was launched with it."""

    def cpu_seconds(self) -> float:
        """Nobody tells."""
        return 0.0

    throttled_seconds = memory = bytes_sent = cpu_seconds


def _launch(job: TrainingJob, setup: Setup, effort: Effort, nodes: Sequence[Node]) -> Launch:
    """A gang that prints from its first worker only, and ends by itself even if nobody stops it."""
    longest = math.ceil(effort.patience + _LONGEST * effort.window + _MARGIN)
    line = (
        f'cd {shlex.quote(str(job.folder))} && {{ [ "${{RANK:-0}}" = 0 ] || exec > /dev/null; }}'
        f" && exec timeout -k 5 {longest} {shlex.join(job.words(setup.batch))}"
    )
    return Launch(
        key=f"tune {job.name}, {setup.name}, {uuid.uuid4().hex[:8]}",
        workload=Workload(f"tune {job.name}", command=("sh", "-c", line)),
        parts=spread(setup, nodes) or (),
        cpus=setup.shape.cpus,
        memory=setup.shape.memory,
        environment={"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    )


def spread(setup: Setup, nodes: Sequence[Node]) -> tuple[tuple[str, int], ...] | None:
    """One worker to a node while nodes have room, then another to each; None where they do not fit."""
    shape = setup.shape
    room = {
        node.name: int(min((node.cpus + 1e-9) / shape.cpus, node.memory / shape.memory)) for node in nodes
    }
    given = dict.fromkeys(room, 0)
    for _ in range(setup.workers):
        free = [name for name in room if given[name] < room[name]]
        if not free:
            return None
        given[min(free, key=lambda name: given[name])] += 1
    return tuple((name, count) for name, count in given.items() if count)
