"""Training jobs over gloo: ranks, restarts, and the times of steps, checkpoints and collectives.

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
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import IO, Any, Self

from trimtab.collect import Step, StepLines
from trimtab.core import BadInputError, TrimtabError, format_duration
from trimtab.fabric.advice import Assumption
from trimtab.fabric.topology import WorkerDevice
from trimtab.kernel import die_with_parent, end_groups

_LINE = re.compile(
    rb"(?:(?P<ready>ready) time (\d+(?:\.\d+)?)"
    rb"|(?P<kept>saved|loaded) (\d+) seconds (\d+(?:\.\d+)?)"
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
    """Fed with output as it comes. `ready` is in seconds since the epoch, `saved` and `loaded` by step."""

    ready: float | None = None
    saved: dict[int, float] = field(default_factory=dict)
    loaded: dict[int, float] = field(default_factory=dict)
    collectives: list[Collective] = field(default_factory=list)
    _rest: bytes = b""

    def feed(self, output: bytes) -> None:
        """Take in what was printed since the last time."""
        *lines, self._rest = (self._rest + output).split(b"\n")
        self._rest = self._rest[-_LONGEST_LINE:]
        for line in lines:
            if (found := _LINE.fullmatch(line)) is not None:
                self._take(found)

    def _take(self, found: "re.Match[bytes]") -> None:
        if found["ready"]:
            self.ready = float(found[2])
        elif found["kept"]:
            kept = self.saved if found["kept"] == b"saved" else self.loaded
            kept[int(found[4])] = float(found[5])
        else:
            numbers = [float(found[place]) for place in (10, 11, 12)]
            self.collectives.append(Collective(found[7].decode(), int(found[8]), int(found[9]), *numbers))


@dataclass(frozen=True, slots=True)
class Job:
    """A command that is started once for each rank, as `torchrun` would, and prints lines of its steps.

    Ranks meet at `address`, that of the first one, and talk through the network device `device`. A job with a
    `checkpoint` file is told to write it every so many steps and goes on from it.
    """

    words: tuple[str, ...]
    ranks: int = 2
    address: str = "127.0.0.1"
    device: str = "lo"
    checkpoint: Path | None = None
    every: int = 10
    folder: Path | None = None

    def __post_init__(self) -> None:
        if not self.words:
            raise BadInputError("a job without a command; name the script to start")
        if self.ranks < 1 or self.every < 1:
            raise BadInputError(
                f"{self.ranks} ranks, a checkpoint every {self.every} steps; both are at least 1"
            )

    def bound_to(self, first: WorkerDevice) -> "Job":
        """A job over the fabric: ranks meet at the first one's device, and each talks through its own."""
        return replace(self, address=str(first.address.ip), device=first.name)

    def command(self) -> list[str]:
        """Command line of a rank, equal on every rank."""
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


_LAST_WORDS = 4096  # bytes


Start = Callable[..., "subprocess.Popen[Any]"]
"""Called with a rank, its command as words, and options of `subprocess.Popen`; starts it where it is to run.

A lab's `run` is one: rank 0 on its first host, rank 1 on the second.
"""


def on_loopback(rank: int, words: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """All ranks on this machine; they die with the thread that starts them."""
    return subprocess.Popen(words, preexec_fn=lambda: die_with_parent(signal.SIGKILL), **options)


class Ranks:
    """Running ranks of a job; made by `started`. The first one's output is read, all the others' is not."""

    def __init__(
        self,
        children: Sequence["subprocess.Popen[bytes]"],
        errors: Sequence[IO[bytes]],
        begun: float,
        attempt: int,
    ) -> None:
        self.steps, self.marks = StepLines(), Marks()
        self.begun, self.attempt = begun, attempt
        self.fault: float | None = None  # when something was done to it
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
        """The number of the last step that has ended; 0 before the first."""
        return self.steps.steps[-1].number if self.steps.steps else 0

    def listen(self, seconds: float) -> None:
        """Take in what is printed, for so long at most."""
        if not self._selector.get_map():
            time.sleep(seconds)
        elif self._selector.select(seconds):
            self._read()

    def finished(self) -> bool:
        """Whether all ranks have ended well."""
        done = all(each.poll() == 0 for each in self._children)
        if done:
            self._read()
        return done

    def failure(self) -> str:
        """How the first of them ended that did not end well; "" where none did."""
        for rank, each in enumerate(self._children):
            if (code := each.poll()) not in (None, 0):
                self._read()
                return self._how_it_ended(rank, code or 0)
        return ""

    def kill(self, rank: int) -> None:
        """Kill the processes of one rank with SIGKILL, as a crash of its host would."""
        self.mark_fault()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._children[rank].pid, signal.SIGKILL)
        self._children[rank].wait()

    def mark_fault(self) -> None:
        """Note that something was done to the job just now; the first time counts."""
        self.fault = self.fault or time.time()

    def _read(self) -> None:
        if not self._selector.get_map():
            return
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._output.fileno(), 65536):
                self.steps.feed(chunk)
                self.marks.feed(chunk)
            self._selector.unregister(self._output)  # nobody writes to it any more

    def _how_it_ended(self, rank: int, code: int) -> str:
        if code < 0:
            return f"rank {rank} was killed by {signal.Signals(-code).name}"
        errors = self._errors[rank]
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_WORDS))
        said = errors.read().decode(errors="replace").strip().splitlines() or [self.steps.last_words]
        return f"rank {rank} ended with status {code}" + (f": {said[-1]:.200}" if said[-1] else "")


@contextlib.contextmanager
def started(job: Job, start: Start = on_loopback, attempt: int = 1) -> Iterator[Ranks]:
    """All ranks of the job; leaving the context leaves no process behind."""
    port = _free_port()
    with contextlib.ExitStack() as stack:
        children = list["subprocess.Popen[bytes]"]()
        stack.callback(end_groups, children)
        errors = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(job.ranks)]
        begun = time.time()
        for rank in range(job.ranks):
            children.append(_start(job, rank, port, start, errors[rank]))
        yield stack.enter_context(Ranks(children, errors, begun, attempt))


def _start(job: Job, rank: int, port: int, start: Start, errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    words = job.command()
    try:
        return start(
            rank,
            words,
            cwd=job.folder,
            env={**os.environ, **job.variables(rank, port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            stderr=errors,
            process_group=0,
        )
    except OSError as error:
        raise TrimtabError(f'rank {rank}: "{words[0]}" cannot be started: {error.strerror}') from None


def _free_port() -> int:
    """One that nobody uses here; a namespace made for the job has nobody in it anyway."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


_LOOK = 0.02  # s

Meanwhile = Callable[[Ranks], None]
"""Called every few milliseconds while a job runs; may do something to it."""


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a job. Moments are in seconds since the epoch; `saved` and `loaded` are seconds by step.

    `failure` says how it ended, and is empty where it ended well; `fault` is when something was done to it.
    """

    begun: float
    ready: float | None
    ended: float
    steps: tuple[Step, ...]
    saved: dict[int, float]
    loaded: dict[int, float]
    collectives: tuple[Collective, ...]
    fault: float | None
    failure: str

    @property
    def seconds(self) -> float:
        """From start to end."""
        return self.ended - self.begun

    @property
    def initialisation(self) -> float | None:
        """Seconds until the first step began; None where there was none."""
        if self.ready is not None:
            return self.ready - self.begun
        gaps = sorted(self.step_seconds)
        return self.steps[0].time - gaps[len(gaps) // 2] - self.begun if gaps else None

    @property
    def step_seconds(self) -> tuple[float, ...]:
        """Seconds of all steps but the first, without the checkpoints between them."""
        return tuple(
            after.time - before.time - self.saved.get(before.number, 0.0)
            for before, after in pairwise(self.steps)
        )

    @property
    def noticing(self) -> float | None:
        """Seconds from a fault until the job failed; None where it did not."""
        return self.ended - self.fault if self.failure and self.fault is not None else None


@dataclass(frozen=True, slots=True)
class Restarted:
    """A job that is started again from its last checkpoint whenever it fails: all its runs in order."""

    runs: tuple[Run, ...]

    @property
    def failure(self) -> str:
        """How the last one ended."""
        return self.runs[-1].failure

    @property
    def seconds(self) -> float:
        """From the first start to the last end."""
        return self.runs[-1].ended - self.runs[0].begun

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step as it was done last."""
        last = {step.number: step for run in self.runs for step in run.steps}
        return tuple(last[number] for number in sorted(last))

    @property
    def lost_steps(self) -> int:
        """How many were done more than once."""
        return sum(len(run.steps) for run in self.runs) - len(self.steps)


def run_job(
    job: Job,
    start: Start = on_loopback,
    *,
    limit: float,
    meanwhile: Meanwhile | None = None,
    attempt: int = 1,
) -> Run:
    """Until all ranks have ended, one has failed, or `limit` seconds are over; then no process is left."""
    with started(job, start, attempt) as ranks:
        until = time.monotonic() + limit
        failure = ""
        while not failure and not ranks.finished():
            ranks.listen(_LOOK)
            if meanwhile is not None:
                meanwhile(ranks)
            failure = ranks.failure()
            if not failure and time.monotonic() > until:
                failure = f"it had not ended after {format_duration(limit)}"
        return _run(ranks, failure)


def run_restarting(
    job: Job,
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
        raise BadInputError(
            "a job that is started again after a failure needs a checkpoint file to go on from"
        )
    until = time.monotonic() + limit
    runs = list[Run]()
    while not runs or (runs[-1].failure and len(runs) < most and time.monotonic() < until):
        left = max(until - time.monotonic(), 0.0)
        runs.append(run_job(job, start, limit=left, meanwhile=meanwhile, attempt=len(runs) + 1))
    return Restarted(tuple(runs))


def kill_at(step: int, rank: int, attempt: int = 1) -> Meanwhile:
    """Kills a rank as soon as the job has done that step, in one of its attempts."""

    def meanwhile(ranks: Ranks) -> None:
        if ranks.attempt == attempt and ranks.fault is None and ranks.last_step >= step:
            ranks.kill(rank)

    return meanwhile


def loss_difference(first: Run | Restarted, second: Run | Restarted) -> float:
    """The largest difference between the losses of a step that both have done; they must share one."""
    losses = {step.number: step.loss for step in first.steps}
    differences = [abs(step.loss - losses[step.number]) for step in second.steps if step.number in losses]
    if not differences:
        raise BadInputError("the two runs have no step in common, so their losses cannot be compared")
    return max(differences)


def _run(ranks: Ranks, failure: str) -> Run:
    marks = ranks.marks
    return Run(
        ranks.begun,
        marks.ready,
        time.time(),
        tuple(ranks.steps.steps),
        dict(marks.saved),
        dict(marks.loaded),
        tuple(marks.collectives),
        ranks.fault,
        failure,
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds, each time they were measured."""

    seconds: tuple[float, ...]

    @property
    def mean(self) -> float:
        """On average."""
        return fmean(self.seconds)

    @property
    def option(self) -> str:
        """From the least to the most, as a command line takes it."""
        return f"{min(self.seconds):.4f}s..{max(self.seconds):.4f}s"

    def assumption(self) -> Assumption:
        """For the advisor: the mean, and all that was seen."""
        reason = f"measured {len(self.seconds)} times"
        return Assumption(self.mean, min(self.seconds), max(self.seconds), reason)


@dataclass(frozen=True, slots=True)
class JobCosts:
    """Seconds until the first step, of a step and of an epoch, and to write and read a checkpoint."""

    initialisation: Measured
    step: float
    epoch: float
    saving: Measured
    loading: Measured

    @property
    def options(self) -> str:
        """Command-line options that give `trimtab fabric advise` the measured values."""
        return f"--saving {self.saving.option} --restarting {self.initialisation.option}"


def measure_costs(
    job: Job, start: Start = on_loopback, *, steps_per_epoch: int, limit: float
) -> tuple[JobCosts, Restarted]:
    """Run the job, kill its last rank after a checkpoint, let it go on; what that showed.

    The checkpoint is a new one, beside the job's own where it has one. The job must make more steps than it
    takes to write two checkpoints.
    """
    beside = job.checkpoint.parent if job.checkpoint is not None else None
    with TemporaryDirectory(dir=beside) as folder:
        watched = replace(job, checkpoint=Path(folder) / "checkpoint")
        done = run_restarting(
            watched, start, limit=limit, meanwhile=kill_at(job.every + 1, job.ranks - 1), most=2
        )
    if done.failure:
        raise TrimtabError(f"the job's costs cannot be measured: {done.failure}")
    if len(done.runs) < 2 or not done.runs[1].loaded:
        raise TrimtabError(
            f"the job's costs cannot be measured: it ended before step {job.every + 1} or did not print "
            'what its checkpoints took, such as "saved 10 seconds 0.03" and "loaded 10 seconds 0.01"'
        )
    return _costs(done, steps_per_epoch), done


def _costs(done: Restarted, steps_per_epoch: int) -> JobCosts:
    step = median(seconds for run in done.runs for seconds in run.step_seconds)
    return JobCosts(
        Measured(tuple(run.initialisation or 0.0 for run in done.runs)),
        step,
        step * steps_per_epoch,
        Measured(tuple(seconds for run in done.runs for seconds in run.saved.values())),
        Measured(tuple(seconds for run in done.runs for seconds in run.loaded.values())),
    )
