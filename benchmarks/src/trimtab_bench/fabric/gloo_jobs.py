"""Training jobs over gloo: ranks, restarts, and the times of steps, checkpoints and collectives.

Besides its steps, a job may print lines such as

loaded 20 seconds 0.012
ready time 1731712345.123
saved 30 seconds 0.034
collective all_reduce bytes 65536 times 20 seconds 0.000184 worst 0.000412 rate 3.56e+08
"""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import IO, Any, Self

from trimtab.collect import Step, StepLines
from trimtab.core import BadInputError, TrimtabError, format_duration
from trimtab.fabric.topology import WorkerDevice
from trimtab.kernel import die_with_parent, end_groups
from trimtab_bench.processes import free_port

_LINE = re.compile(
    rb"(?:(?P<ready>ready) time (\d+(?:\.\d+)?)"
    rb"|(?P<checkpoint>saved|loaded) (\d+) seconds (\d+(?:\.\d+)?)"
    rb"|(?P<collective>collective) (\w+) bytes (\d+) times (\d+) seconds (\S+) worst (\S+) rate (\S+))\s*"
)
_LONGEST_LINE = 2**16  # bytes


@dataclass(frozen=True, slots=True)
class Collective:
    """An operation with messages of one size: median and worst seconds, bytes per second at the median."""

    operation: str
    bytes: int
    times: int
    seconds: float
    worst: float
    rate: float


@dataclass(slots=True)
class Marks:
    """Parsed output. `ready` is in seconds since the epoch; `saved` and `loaded` are seconds by step."""

    ready: float | None = None
    saved: dict[int, float] = field(default_factory=dict)
    loaded: dict[int, float] = field(default_factory=dict)
    collectives: list[Collective] = field(default_factory=list)
    _rest: bytes = b""

    def feed(self, output: bytes) -> None:
        """Parse more output; lines may come in pieces."""
        *lines, self._rest = (self._rest + output).split(b"\n")
        self._rest = self._rest[-_LONGEST_LINE:]
        for match in filter(None, map(_LINE.fullmatch, lines)):
            if match["ready"]:
                self.ready = float(match[2])
            elif match["checkpoint"]:
                seconds = self.saved if match["checkpoint"] == b"saved" else self.loaded
                seconds[int(match[4])] = float(match[5])
            else:
                numbers = [float(match[group]) for group in (10, 11, 12)]
                self.collectives.append(Collective(match[7].decode(), int(match[8]), int(match[9]), *numbers))


@dataclass(frozen=True, slots=True)
class GlooJob:
    """A command that is started once for each rank, as `torchrun` would, and prints lines of its steps.

    Ranks meet at `address`, that of the first one, and talk through the network device `device`. A job with a
    `checkpoint` file writes it every so many steps and resumes from it.
    """

    words: tuple[str, ...]
    ranks: int = 2
    address: str = "127.0.0.1"
    device: str = "lo"
    checkpoint: Path | None = None
    every: int = 10

    def __post_init__(self) -> None:
        if not self.words:
            raise BadInputError("the job has no command; name the script to start")
        if self.ranks < 1 or self.every < 1:
            raise BadInputError(
                f"{self.ranks} ranks, a checkpoint every {self.every} steps; both are at least 1"
            )

    def bound_to(self, first: WorkerDevice) -> "GlooJob":
        """This job over the fabric: ranks meet at the first one's device, and each talks through its own."""
        return replace(self, address=str(first.address.ip), device=first.name)

    def command(self) -> list[str]:
        if self.checkpoint is None:
            return list(self.words)
        return [*self.words, "--checkpoint", str(self.checkpoint), "--every", str(self.every)]

    def variables(self, rank: int, port: int) -> dict[str, str]:
        """Environment variables of a rank; `port` is where rank 0 waits for the others."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(self.ranks),
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": self.device,
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }


Start = Callable[..., "subprocess.Popen[Any]"]
"""Starts a rank: called with its number, its command as words, and options of `subprocess.Popen`.

A lab's `run` is one: rank 0 on its first host, rank 1 on the second.
"""


def on_loopback(rank: int, words: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start a rank on this machine; it dies with the thread that starts it."""
    return subprocess.Popen(words, preexec_fn=lambda: die_with_parent(signal.SIGKILL), **options)


_ERROR_BYTES = 4096  # of the end of a rank's standard error
_POLL = 0.02  # s


class Ranks:
    """Running ranks of a job; made by `started`. Only the first one's output is read."""

    def __init__(
        self,
        children: Sequence["subprocess.Popen[bytes]"],
        errors: Sequence[IO[bytes]],
        started_at: float,
        attempt: int,
    ) -> None:
        self.steps, self.marks = StepLines(), Marks()
        self.started_at, self.attempt = started_at, attempt
        self.fault: float | None = None  # when the first fault was injected, s since the epoch
        self._children, self._errors = children, errors
        output = children[0].stdout
        assert output is not None
        os.set_blocking(output.fileno(), False)
        self._output = output
        self._selector = selectors.DefaultSelector()
        self._selector.register(output, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._selector.close()

    @property
    def last_step(self) -> int:
        """Number of the last step that has ended; 0 before the first."""
        return self.steps.steps[-1].number if self.steps.steps else 0

    def listen(self, seconds: float) -> None:
        """Read output, for so long at most."""
        if not self._selector.get_map():
            time.sleep(seconds)
        elif self._selector.select(seconds):
            self._read()

    def finished(self) -> bool:
        """Whether all ranks have ended with status 0."""
        done = all(child.poll() == 0 for child in self._children)
        if done:
            self._read()
        return done

    def failure(self) -> str:
        """How the first failed rank ended; "" where none failed."""
        for rank, child in enumerate(self._children):
            code = child.poll()
            if not code:
                continue
            self._read()
            if code < 0:
                return f"rank {rank} was killed by {signal.Signals(-code).name}"
            errors = self._errors[rank]
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - _ERROR_BYTES))
            lines = errors.read().decode(errors="replace").strip().splitlines() or [self.steps.last_words]
            return f"rank {rank} ended with status {code}" + (f": {lines[-1]:.200}" if lines[-1] else "")
        return ""

    def kill(self, rank: int) -> None:
        """Kill the processes of one rank with SIGKILL, as a crash of its host would."""
        self.mark_fault()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._children[rank].pid, signal.SIGKILL)
        self._children[rank].wait()

    def mark_fault(self) -> None:
        """Note that a fault was injected just now; the first time counts."""
        self.fault = self.fault or time.time()

    def _read(self) -> None:
        if not self._selector.get_map():
            return
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._output.fileno(), 65536):
                self.steps.feed(chunk)
                self.marks.feed(chunk)
            self._selector.unregister(self._output)  # the end of the output


@contextlib.contextmanager
def started(job: GlooJob, start: Start = on_loopback, attempt: int = 1) -> Iterator[Ranks]:
    """All ranks of the job; leaving the context leaves no process behind."""
    port, words = free_port(), job.command()
    with contextlib.ExitStack() as stack:
        children = list["subprocess.Popen[bytes]"]()
        stack.callback(end_groups, children)
        errors = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(job.ranks)]
        started_at = time.time()
        for rank in range(job.ranks):
            options = {
                "env": {**os.environ, **job.variables(rank, port)},
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                "stderr": errors[rank],
                "process_group": 0,
            }
            try:
                children.append(start(rank, words, **options))
            except OSError as error:
                raise TrimtabError(f'rank {rank}: "{words[0]}" cannot be started: {error.strerror}') from None
        yield stack.enter_context(Ranks(children, errors, started_at, attempt))


Meanwhile = Callable[[Ranks], None]
"""Called every few milliseconds while a job runs; may inject a fault."""


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a job. Moments are in seconds since the epoch.

    `failure` says how it failed and is empty where it did not; `fault` is when the first fault was injected.
    """

    started_at: float
    ended: float
    steps: tuple[Step, ...]
    marks: Marks
    fault: float | None = None
    failure: str = ""

    @property
    def initialisation(self) -> float | None:
        """Seconds until the first step began; None where there was none."""
        if self.marks.ready is not None:
            return self.marks.ready - self.started_at
        gaps = sorted(self.step_seconds)
        return self.steps[0].time - gaps[len(gaps) // 2] - self.started_at if gaps else None

    @property
    def step_seconds(self) -> tuple[float, ...]:
        """Seconds of all steps but the first, without the checkpoints between them."""
        return tuple(
            after.time - before.time - self.marks.saved.get(before.number, 0.0)
            for before, after in pairwise(self.steps)
        )


@dataclass(frozen=True, slots=True)
class Restarted:
    """All runs, in order, of a job that is started again from its last checkpoint whenever it fails."""

    runs: tuple[Run, ...]

    @property
    def failure(self) -> str:
        """How the last run failed; "" where it did not."""
        return self.runs[-1].failure

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step as it was done last."""
        last = {step.number: step for run in self.runs for step in run.steps}
        return tuple(last[number] for number in sorted(last))

    @property
    def lost_steps(self) -> int:
        """Number of steps that were repeated after a failure."""
        return sum(len(run.steps) for run in self.runs) - len(self.steps)


def run_job(
    job: GlooJob,
    start: Start = on_loopback,
    *,
    limit: float,
    meanwhile: Meanwhile | None = None,
    attempt: int = 1,
) -> Run:
    """Run until all ranks have ended, one has failed, or `limit` seconds are over; no process is left."""
    with started(job, start, attempt) as ranks:
        until = time.monotonic() + limit
        failure = ""
        while not failure and not ranks.finished():
            ranks.listen(_POLL)
            if meanwhile is not None:
                meanwhile(ranks)
            failure = ranks.failure()
            if not failure and time.monotonic() > until:
                failure = f"it had not ended after {format_duration(limit)}"
        steps = tuple(ranks.steps.steps)
        return Run(ranks.started_at, time.time(), steps, ranks.marks, ranks.fault, failure)


def run_restarting(
    job: GlooJob,
    start: Start = on_loopback,
    *,
    limit: float,
    meanwhile: Meanwhile | None = None,
    most: int = 10,
) -> Restarted:
    """The alternative to a fabric: start the job again when it fails, until it ends well.

    `limit` seconds are for all starts together, of which there are `most` at most; then a failure stays.
    """
    if job.checkpoint is None:
        raise BadInputError("a job that is started again after a failure needs a checkpoint file to resume")
    until = time.monotonic() + limit
    runs = list[Run]()
    while not runs or (runs[-1].failure and len(runs) < most and time.monotonic() < until):
        left = max(until - time.monotonic(), 0.0)
        runs.append(run_job(job, start, limit=left, meanwhile=meanwhile, attempt=len(runs) + 1))
    return Restarted(tuple(runs))


def kill_at(step: int, rank: int) -> Meanwhile:
    """Kills a rank as soon as the job has done that step, in its first attempt."""

    def meanwhile(ranks: Ranks) -> None:
        if ranks.attempt == 1 and ranks.fault is None and ranks.last_step >= step:
            ranks.kill(rank)

    return meanwhile


def loss_difference(first: Run | Restarted, second: Run | Restarted) -> float:
    """The largest difference between the losses of a step that both have done; they must share one."""
    losses = {step.number: step.loss for step in first.steps}
    differences = [abs(step.loss - losses[step.number]) for step in second.steps if step.number in losses]
    if not differences:
        raise BadInputError("the two runs have no step in common, so their losses cannot be compared")
    return max(differences)


@dataclass(frozen=True, slots=True)
class JobCosts:
    """Seconds of a step and an epoch; every measured time, in seconds, to the first step and to write and
    read a checkpoint."""

    initialisation: tuple[float, ...]
    step: float
    epoch: float
    saving: tuple[float, ...]
    loading: tuple[float, ...]

    @property
    def options(self) -> str:
        """Command-line options that give `trimtab fabric advise` the measured values."""
        saving, restarting = (
            f"{min(seconds):.4f}s..{max(seconds):.4f}s" for seconds in (self.saving, self.initialisation)
        )
        return f"--saving {saving} --restarting {restarting}"


def measure_costs(
    job: GlooJob, start: Start = on_loopback, *, steps_per_epoch: int, limit: float
) -> tuple[JobCosts, Restarted]:
    """Costs of a failure, measured: run the job, kill its last rank after a checkpoint, let it resume.

    The checkpoint is a new one, in the folder of the job's own where it has one. The job must make more steps
    than it takes to write two checkpoints.
    """
    with tempfile.TemporaryDirectory(dir=job.checkpoint.parent if job.checkpoint else None) as folder:
        saving = replace(job, checkpoint=Path(folder) / "checkpoint")
        meanwhile = kill_at(job.every + 1, job.ranks - 1)
        done = run_restarting(saving, start, limit=limit, meanwhile=meanwhile, most=2)
    if done.failure:
        raise TrimtabError(f"the job's costs cannot be measured: {done.failure}")
    if len(done.runs) < 2 or not done.runs[1].marks.loaded:
        raise TrimtabError(
            f"the job's costs cannot be measured: it ended before step {job.every + 1} or did not print the "
            'time of its checkpoints, such as "saved 10 seconds 0.03" and "loaded 10 seconds 0.01"'
        )
    step = median(seconds for run in done.runs for seconds in run.step_seconds)
    costs = JobCosts(
        tuple(run.initialisation or 0.0 for run in done.runs),
        step,
        step * steps_per_epoch,
        tuple(seconds for run in done.runs for seconds in run.marks.saved.values()),
        tuple(seconds for run in done.runs for seconds in run.marks.loaded.values()),
    )
    return costs, done
